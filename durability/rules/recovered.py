"""Sent, not acknowledged, there: allowed, for the answer may have been lost and not the record."""

from holdfast.durability.rules.rule import Looks, Rule

_NEEDS = """known AND NOT acked AND NOT weakly_acked AND NOT refused AND NOT differs
            AND log_partition = coalesce(partition, log_partition)"""

RULE = Rule(
    name="recovered",
    meaning="not acknowledged, there all the same",
    false_alarm="it is allowed",
    looks=Looks.PAIRS,
    needs=_NEEDS,
    is_forbidden=False,
    sql=f"""
        SELECT log_topic AS topic, log_partition AS partition, min(log_offset) AS offset, run, producer, pseq,
               'sent, not acknowledged, there' AS detail
        FROM odd WHERE {_NEEDS}
        GROUP BY ALL""",
)
