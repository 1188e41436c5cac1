"""Rule 20 for keys: a record has another key than it was sent with.

Judged where the ledger tells of them: older ones say nothing of what a record is beside its value.
"""

from holdfast.durability.rules.rule import Looks, Rule

RULE = Rule(
    name="key_changed",
    meaning="another key than it was sent with",
    false_alarm="none is known",
    looks=Looks.FIELDS,
    sql="""
        SELECT log_topic AS topic, log_partition AS partition, log_offset AS offset, run, producer, pseq,
               CASE WHEN key_crc32c IS NULL THEN 'was sent without a key'
                    WHEN log_key_crc32c IS NULL THEN 'its key is gone'
                    ELSE 'checksum of its key is not the ledger''s' END AS detail
        FROM odd WHERE key_differ""",
)
