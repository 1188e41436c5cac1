"""Rules 17 and 20: bytes of a replica cannot be read below its high watermark, or where they were flushed.

What a power cut may have left is damage in a replica that is in sync, and stays so when sessions have ended
(`durability.power_cuts`): its broker has truncated that since.
"""

from holdfast.durability.rules.rule import NO_SEND, Looks, Rule

RULE = Rule(
    name="damaged",
    meaning="replica cannot be read where it must be whole",
    false_alarm="the end of a log after a power cut, on a disk that lies about what it has flushed; what a "
    "power cut left, while sessions last longer than 12 s; the beginning of one that was copied from a "
    "compacted log",
    looks=Looks.REPLICAS,
    needs="uneven",
    sql=f"""
        SELECT r.topic, r.partition, r.base_offset AS offset, {NO_SEND},
               concat('batch on replica ', broker, ', ', coalesce(segment, 'no segment'), ' at byte ',
                      position, CASE WHEN problem LIKE 'the %' THEN concat(': ', problem) ELSE '' END)
                   AS detail, broker, segment, position
        FROM replica r
        LEFT JOIN marks USING (broker, topic, partition)
        LEFT JOIN flushed USING (broker, topic, partition)
        LEFT JOIN members USING (broker, topic, partition)
        WHERE coalesce(damaged, is_in_sync AND problem IS NOT NULL, false)
          AND base_offset < greatest(high_watermark, flushed_offset)""",
)
