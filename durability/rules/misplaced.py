"""Rule 21: a record is in a partition that it was not sent to."""

from holdfast.durability.rules.rule import Looks, Rule

RULE = Rule(
    name="misplaced",
    meaning="in a partition that it was not sent to",
    false_alarm="none is known",
    looks=Looks.PAIRS,
    sql="""
        SELECT log_topic AS topic, log_partition AS partition, log_offset AS offset, run, producer, pseq,
               concat('was sent to ', topic, '-', partition) AS detail
        FROM odd
        WHERE log_topic IS NOT NULL AND state <> 'damaged' AND known AND NOT refused
          AND log_partition <> partition""",
)
