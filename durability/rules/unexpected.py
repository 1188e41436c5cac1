"""Rules 3 and 4: a record is in the log that was never sent, or whose send was refused before the append.

A producer writes a send down before it sends it, so the ledger must know what lay below the log's end before
the ledger was read (`settled_end`). Of records behind that nothing is said: the cluster may be in use.
"""

from holdfast.durability.rules.rule import Looks, Rule

#: Of a record that no send names; what else is unexpected needs no other send to be known.
NEVER_SENT = "never sent"

RULE = Rule(
    name="unexpected",
    meaning="in the log, never sent",
    false_alarm="another producer, whose ledger is not here, writes to the topic",
    looks=Looks.PAIRS,
    needs="log_topic IS NOT NULL AND (refused OR NOT known)",
    sql=f"""
        SELECT log_topic AS topic, log_partition AS partition, log_offset AS offset, run, producer, pseq,
               CASE WHEN state = 'foreign' THEN 'not the value of a ledger'
                    WHEN NOT known THEN '{NEVER_SENT}'
                    ELSE 'was refused before the append' END AS detail
        FROM odd LEFT JOIN (SELECT topic AS end_topic, partition AS end_partition, settled_end FROM ends) e
          ON log_topic = end_topic AND log_partition = end_partition
        WHERE log_topic IS NOT NULL AND state <> 'damaged'
          AND (refused OR (NOT known AND (settled_end IS NULL OR log_offset < settled_end)))""",
)
