"""Rule 20 for headers: a record has other headers than it was sent with, or the same in another order.

Judged where the ledger tells of them: older ones say nothing of what a record is beside its value.
"""

from holdfast.durability.rules.rule import Looks, Rule

RULE = Rule(
    name="headers_changed",
    meaning="other headers than it was sent with",
    false_alarm="a program between producer and cluster adds headers",
    looks=Looks.FIELDS,
    sql="""
        SELECT log_topic AS topic, log_partition AS partition, log_offset AS offset, run, producer, pseq,
               CASE WHEN headers_crc32c IS NULL THEN 'was sent without headers'
                    WHEN log_headers_crc32c IS NULL THEN 'its headers are gone'
                    ELSE 'checksum of its headers is not the ledger''s' END AS detail
        FROM odd WHERE headers_differ""",
)
