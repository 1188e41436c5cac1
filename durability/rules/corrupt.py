"""Rule 20: a value's own checksum does not hold, or is not the ledger's."""

from holdfast.durability.rules.rule import Looks, Rule

_NEEDS = "state = 'damaged' OR differs"

RULE = Rule(
    name="corrupt",
    meaning="checksum does not hold",
    false_alarm="none is known",
    looks=Looks.PAIRS,
    needs=_NEEDS,
    sql=f"""
        SELECT log_topic AS topic, log_partition AS partition, log_offset AS offset, run, producer, pseq,
               CASE WHEN differs THEN 'checksum is not the ledger''s'
                    ELSE 'checksum does not hold' END AS detail
        FROM odd WHERE {_NEEDS}""",
)
