"""Rules 3, 19 and 21 for what replicas hold beyond the served log: a record that was never sent like this.

What lies below its replica's high watermark is compared with the other replicas and with what is served
(`diverged`, `unserved`). Above, and where nothing is served, replicas may hold what will be truncated, and
all of them the same: but what they hold, a producer has sent. *Never sent* is only said while neither the
ledger nor the log has grown until the files had been read (`is_told`): another writer may have its ledger
elsewhere.
"""

from holdfast.durability.rules.rule import Looks, Rule

RULE = Rule(
    name="unsent",
    meaning="above its high watermark a replica holds what was never sent",
    false_alarm="another producer, whose ledger is not here, writes to the topic",
    looks=Looks.STRAYS,
    needs="unserved",
    sql="""
        SELECT topic, partition, offset, CAST(NULL AS string) AS run, producer, pseq,
               concat(CASE WHEN count(DISTINCT broker) = 1 THEN 'replica ' ELSE 'replicas ' END,
                      array_join(array_sort(collect_set(broker)), ', '), ', ', min_by(segment, broker),
                      ' at byte ', min_by(position, broker), ': ', what) AS detail,
               min(broker) AS broker, min_by(segment, broker) AS segment,
               min_by(position, broker) AS position
        FROM (SELECT t.*,
                     CASE WHEN t.state = 'unreadable' THEN 'records that cannot be read'
                          WHEN t.state = 'damaged' THEN 'checksum does not hold'
                          WHEN t.state = 'foreign' AND is_told THEN 'not the value of a ledger'
                          WHEN t.state = 'foreign' THEN NULL
                          WHEN s.pseq IS NULL AND is_told THEN 'never sent'
                          WHEN s.pseq IS NULL THEN NULL
                          WHEN s.refused THEN 'was refused before the append'
                          WHEN s.partition <> t.partition
                              THEN concat('was sent to ', t.topic, '-', s.partition)
                          WHEN s.value_crc32c <> t.value_crc32c THEN 'checksum is not the ledger''s'
                          WHEN s.timestamp_ms IS NOT NULL AND NOT s.key_crc32c <=> t.key_crc32c
                              THEN 'its key is not the ledger''s' END AS what
              FROM stray t LEFT JOIN (SELECT * FROM all_sends WHERE pseq >= 0) s
                ON s.topic = t.topic AND s.producer = t.producer AND s.pseq = t.pseq)
        WHERE what IS NOT NULL
        GROUP BY topic, partition, offset, producer, pseq, what""",
)
