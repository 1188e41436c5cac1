"""Rules 17 and 20: bytes of a replica below its high watermark cannot be read."""

from holdfast.durability.rules.rule import NO_SEND, Looks, Rule

RULE = Rule(
    name="damaged",
    meaning="replica cannot be read below its high watermark",
    false_alarm="the end of a log after a power cut, on a disk that lies about what it has flushed; the "
    "beginning of one that was copied from a compacted log",
    looks=Looks.REPLICAS,
    needs="uneven",
    sql=f"""
        SELECT r.topic, r.partition, r.base_offset AS offset, {NO_SEND},
               concat('batch on replica ', r.broker, ', ', r.segment, ' at byte ', r.position) AS detail,
               r.broker, r.segment, r.position
        FROM replica r JOIN marks m USING (broker, topic, partition)
        WHERE r.damaged AND r.base_offset < m.high_watermark""",
)
