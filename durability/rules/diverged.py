"""Rules 16 and 17: below their high watermarks two replicas hold different batches, or one has a hole.

Where nothing was committed before files were read, a replica may be truncated and filled again meanwhile.
"""

from holdfast.durability.rules.rule import NO_SEND, Looks, Rule

#: All copies of each batch that is not the same everywhere below the high watermarks.
_UNEQUAL = """
    SELECT broker, topic, partition, base_offset, last_offset, leader_epoch, crc, segment, position,
           concat(leader_epoch, ' ', crc, ' ', last_offset) AS copy
    FROM replica JOIN marks USING (broker, topic, partition)
    LEFT SEMI JOIN (SELECT topic, partition, base_offset
                    FROM replica JOIN marks USING (broker, topic, partition)
                    WHERE last_offset < high_watermark AND problem IS NULL
                    GROUP BY topic, partition, base_offset
                    HAVING min(struct(leader_epoch, crc, last_offset))
                        <> max(struct(leader_epoch, crc, last_offset)))
      USING (topic, partition, base_offset)
    WHERE last_offset < high_watermark AND problem IS NULL"""

#: The odd one is the copy that fewest replicas have; of two, none of them alone.
_ODD_ONE = f"""
    SELECT topic, partition, base_offset, copies,
           min_by(struct(broker, segment, position, leader_epoch, crc, last_offset),
                  struct(likes, broker)) AS odd,
           array_join(array_sort(collect_list(broker)), ', ') AS brokers,
           min(likes) AS fewest, max(likes) AS most
    FROM (SELECT *, count(*) OVER (PARTITION BY topic, partition, base_offset) AS copies,
                 count(*) OVER (PARTITION BY topic, partition, base_offset, copy) AS likes
          FROM ({_UNEQUAL}))
    GROUP BY topic, partition, base_offset, copies"""

RULE = Rule(
    name="diverged",
    meaning="replicas differ below their high watermarks",
    false_alarm="files of running brokers that were copied at different times",
    looks=Looks.REPLICAS,
    needs="uneven",
    sql=f"""
        SELECT topic, partition, base_offset AS offset, {NO_SEND},
               concat('replicas ', brokers, ' hold different batches',
                      CASE WHEN fewest = most THEN ''
                           ELSE concat(': the odd one is replica ', odd.broker, ', epoch ', odd.leader_epoch,
                                       ' crc ', odd.crc, ' up to offset ', odd.last_offset, ', ', odd.segment,
                                       ' at byte ', odd.position) END) AS detail,
               odd.broker AS broker, odd.segment AS segment, odd.position AS position
        FROM ({_ODD_ONE})
        UNION ALL
        SELECT topic, partition, next_offset, NULL, NULL, NULL,
               concat('replica ', broker, ' goes on at offset ', base_offset, ', ', segment, ' at byte ',
                      position),
               broker, segment, position
        FROM (SELECT *, max(last_offset) OVER before + 1 AS next_offset,
                     last_value(problem) OVER before IS NULL AS follows_a_batch
              FROM replica
              WINDOW before AS (PARTITION BY broker, topic, partition ORDER BY base_offset, position
                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
        LEFT JOIN marks USING (broker, topic, partition)
        LEFT JOIN flushed USING (broker, topic, partition)
        LEFT JOIN members USING (broker, topic, partition)
        LEFT JOIN ends USING (topic, partition)
        WHERE next_offset < base_offset AND problem IS NULL AND follows_a_batch
          AND ((is_in_sync AND next_offset <= greatest(settled_end, high_watermark))
               OR next_offset < flushed_offset
               OR (base_offset < high_watermark AND last_offset IS NOT NULL))""",
)
