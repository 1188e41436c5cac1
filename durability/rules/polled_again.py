"""Rule 9: in one session a consumer was given an offset that is not above the one before it."""

from holdfast.durability.rules.rule import IN_SESSION, Looks, Rule, told_of_poll

RULE = Rule(
    name="polled_again",
    meaning="polled, not above the offset polled before it",
    false_alarm="the consumer was moved and did not begin another session",
    looks=Looks.POLLS,
    sql=f"""
        SELECT topic, partition, offset, run, producer, pseq,
               {told_of_poll("'after offset ', before")} AS detail
        FROM (SELECT *, lag(offset) OVER {IN_SESSION} AS before FROM polls)
        WHERE offset <= before""",
)
