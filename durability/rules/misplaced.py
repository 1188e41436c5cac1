"""Rule 21: a record is in a partition that it was not sent to."""

from holdfast.durability.rules.rule import Looks, Rule

_NEEDS = """log_topic IS NOT NULL AND state <> 'damaged' AND known AND NOT refused
            AND log_partition <> partition"""

RULE = Rule(
    name="misplaced",
    meaning="in a partition that it was not sent to",
    false_alarm="none is known",
    looks=Looks.PAIRS,
    needs=_NEEDS,
    sql=f"""
        SELECT log_topic AS topic, log_partition AS partition, log_offset AS offset, run, producer, pseq,
               concat('was sent to ', topic, '-', partition) AS detail
        FROM odd WHERE {_NEEDS}""",
)
