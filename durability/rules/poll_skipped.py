"""Rule 10: between two offsets that a session was given one after the other there is a record.

Offsets may be without records (compaction removes some, control batches are none), so only what is served
counts. What retention has deleted since is not served.
"""

from holdfast.durability.rules.rule import IN_SESSION, Looks, Rule, told_of_poll

RULE = Rule(
    name="poll_skipped",
    meaning="passed over between two records polled one after the other",
    false_alarm="the consumer was moved and did not begin another session",
    looks=Looks.POLLS,
    sql=f"""
        SELECT l.topic, l.partition, l.offset, g.run, l.producer, l.pseq,
               {told_of_poll("'offset ', before, ', then ', g.offset")} AS detail
        FROM (SELECT *, lag(offset) OVER {IN_SESSION} AS before FROM polls) g
        JOIN log l ON l.topic = g.topic AND l.partition = g.partition
          AND l.offset > g.before AND l.offset < g.offset
        WHERE g.offset > g.before + 1""",
)
