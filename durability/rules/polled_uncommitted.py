"""Rule 14: a consumer was given a record at or above the high watermark of the very answer that had it."""

from holdfast.durability.rules.rule import Looks, Rule, told_of_poll

RULE = Rule(
    name="polled_uncommitted",
    meaning="polled, not below the high watermark of its own answer",
    false_alarm="the consumer's tool writes down the high watermark of another answer",
    looks=Looks.POLLS,
    sql=f"""
        SELECT topic, partition, offset, run, producer, pseq,
               {told_of_poll("'high watermark ', high_watermark")} AS detail
        FROM polls WHERE high_watermark >= 0 AND offset >= high_watermark""",
)
