"""Rule 8: a record that was sent after another one's acknowledgement comes before it, of any producer.

Compares times, so it runs only where all ledgers are of one clock (`--one-clock`): producers on one machine
that was not started again meanwhile.
"""

from holdfast.durability.rules.rule import Looks, Rule

RULE = Rule(
    name="overtaken",
    meaning="sent after another's acknowledgement, smaller offset",
    false_alarm="the ledgers are of machines with different monotonic clocks",
    looks=Looks.TIMES,
    sql="""
        SELECT topic, partition, offset, run, producer, pseq,
               concat('acknowledged ', latest - t1, ' ns before a record below it was sent') AS detail
        FROM (SELECT topic, partition, offset, run, producer, pseq, t1,
                     max(t0) OVER (PARTITION BY topic, partition ORDER BY offset
                                   RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
              FROM sends WHERE acked)
        WHERE latest > t1""",
)
