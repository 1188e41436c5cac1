"""Rule 20 for timestamps: a record has another one than its producer gave it.

Judged where the ledger tells it, and not of records whose timestamp the broker has set (LogAppendTime).
"""

from holdfast.durability.rules.rule import Looks, Rule

RULE = Rule(
    name="timestamp_changed",
    meaning="another timestamp than it was sent with",
    false_alarm="none is known",
    looks=Looks.FIELDS,
    sql="""
        SELECT log_topic AS topic, log_partition AS partition, log_offset AS offset, run, producer, pseq,
               concat('was sent with timestamp ', timestamp_ms, ', has ', log_timestamp_ms) AS detail
        FROM odd WHERE timestamp_differs""",
)
