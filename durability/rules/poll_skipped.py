"""Rule 10: between two offsets that a session was given one after the other there is a record.

Offsets may be without records (compaction removes some, control batches are none), so only what is served
counts. What retention has deleted since is not served.
"""

from holdfast.durability.rules.rule import IN_SESSION, Looks, Rule, told_of_poll


def skipped_sql(gaps: str) -> str:
    """Records of view `log` in `gaps`: rows of polls with the offset polled `before`."""
    return f"""
        SELECT l.topic, l.partition, l.offset, g.run, l.producer, l.pseq,
               {told_of_poll("'offset ', before, ', then ', g.offset")} AS detail
        FROM {gaps} g
        JOIN log l ON l.topic = g.topic AND l.partition = g.partition
          AND l.offset > g.before AND l.offset < g.offset"""


#: Polls with a gap before them, each with the offset polled `before`.
GAPS = f"""(
        SELECT * FROM (SELECT *, lag(offset) OVER {IN_SESSION} AS before FROM polls)
        WHERE offset > before + 1)"""
RULE = Rule(
    name="poll_skipped",
    meaning="passed over between two records polled one after the other",
    false_alarm="the consumer was moved and did not begin another session",
    looks=Looks.POLLS,
    sql=skipped_sql(GAPS),
)
