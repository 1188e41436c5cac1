"""Rule 12: one session was told a high watermark below one that it was told before.

A leader tells none before it has reached the start of its epoch (A-6), below which everything was committed,
and a consumer asks no leader of an earlier epoch: what it is told rises. `-1` tells nothing.
"""

from holdfast.durability.rules.rule import Looks, Rule, told_of_poll

RULE = Rule(
    name="watermark_back",
    meaning="polled, and the high watermark of its answer below one told before (counts polls)",
    false_alarm="an unclean election; a cluster that lets followers answer consumers",
    looks=Looks.POLLS,
    sql=f"""
        SELECT topic, partition, offset, run, producer, pseq,
               {told_of_poll("'high watermark ', high_watermark, ', before it ', highest")} AS detail
        FROM (SELECT *, max(CASE WHEN high_watermark >= 0 THEN high_watermark END) OVER (
                  PARTITION BY run, consumer, session, topic, partition ORDER BY line, nth
                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest FROM polls)
        WHERE nth = 0 AND high_watermark >= 0 AND high_watermark < highest""",
)
