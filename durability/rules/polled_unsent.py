"""Rules 3, 4, 20 and 21 for what consumers were given: a record that was never sent like this.

Polls are read before the ledger, which a producer writes before it sends: a record that was polled is in it.
Of values without a name only the served log can say what they should be (`polled_and_gone`).
"""

from holdfast.durability.rules.rule import Looks, Rule, told_of_poll
from holdfast.durability.rules.unexpected import NEVER_SENT

RULE = Rule(
    name="polled_unsent",
    meaning="polled, never sent like this",
    false_alarm="another producer, whose ledger is not here, writes to the topic",
    looks=Looks.POLLS,
    sql=f"""
        SELECT topic, partition, offset, run, producer, pseq, min(detail) AS detail
        FROM (SELECT *, {told_of_poll("what")} AS detail
              FROM (SELECT p.*, CASE WHEN s.pseq IS NULL THEN '{NEVER_SENT}'
                                     WHEN s.refused THEN 'was refused before the append'
                                     WHEN s.partition <> p.partition
                                         THEN concat('was sent to ', p.topic, '-', s.partition)
                                     WHEN s.value_crc32c <> p.value_crc32c
                                         THEN 'checksum is not the ledger''s' END AS what
                    FROM polls p LEFT JOIN (SELECT * FROM all_sends WHERE pseq >= 0) s
                      ON s.topic = p.topic AND s.producer = p.producer AND s.pseq = p.pseq
                    WHERE p.producer IS NOT NULL)
              WHERE what IS NOT NULL)
        GROUP BY topic, partition, offset, run, producer, pseq""",
)
