"""Replicas against the served log: below their high watermarks all hold one batch, and another is served.

Batches are compared by their crc and their leader epoch, which that does not cover, where the last record of
the replicas' batch is served: what deletion took from the log, and what came in after it was read, is not
compared here. Where replicas differ from each other it is `diverged`.
"""

from holdfast.durability.rules.rule import NO_SEND, Looks, Rule

#: Batches below the high watermarks of which all replicas there hold the same.
_AGREED = """
    SELECT topic, partition, base_offset, max(last_offset) AS last_offset, max(crc) AS crc,
           max(leader_epoch) AS leader_epoch,
           array_sort(collect_set(broker)) AS brokers, min(struct(broker, segment, position)) AS first
    FROM replica JOIN marks USING (broker, topic, partition)
    WHERE last_offset < high_watermark AND problem IS NULL
    GROUP BY topic, partition, base_offset
    HAVING min(struct(leader_epoch, crc, last_offset)) = max(struct(leader_epoch, crc, last_offset))"""

RULE = Rule(
    name="unserved",
    meaning="replicas hold another batch than is served",
    false_alarm="an unclean election while the log and the files were read; the topic was compacted before",
    looks=Looks.REPLICAS,
    needs="unserved",
    sql=f"""
        SELECT topic, partition, base_offset AS offset, {NO_SEND},
               concat(CASE WHEN size(brokers) = 1 THEN 'replica ' ELSE 'replicas ' END,
                      array_join(brokers, ', '), CASE WHEN size(brokers) = 1 THEN ' holds' ELSE ' hold' END,
                      ' another batch than is served: epoch ', leader_epoch, ' crc ', crc, ' up to offset ',
                      last_offset, ', ', first.segment, ' at byte ', first.position, ', served is ',
                      concat_ws(' ', 'epoch ' || batch_epoch, 'crc ' || batch_crc32c)) AS detail,
               first.broker AS broker, first.segment AS segment, first.position AS position
        FROM ({_AGREED})
        JOIN (SELECT topic, partition, offset AS last_offset, batch_crc32c, batch_epoch FROM log)
          USING (topic, partition, last_offset)
        WHERE crc <> batch_crc32c OR (batch_crc32c IS NOT NULL AND leader_epoch <> batch_epoch)""",
)
