"""What a rule of the verdict is, and the pieces of SQL that several of them use.

Views that the queries read:
- `sends`: one row a send (durability.ledger). A send is *acked* when acks=all was promised and answered.
- `log`: topic, partition, offset, state, producer, pseq, value_crc32c, timestamp_ms, key_crc32c,
  headers_crc32c, batch_crc32c, batch_epoch: one row a record that the cluster serves. The timestamp is NULL
  where the broker has set it, batch_crc32c and batch_epoch (crc and leader epoch of the record's batch) where
  no replicas are compared. `state` is
  `good`; `damaged` (its own checksum does not hold, so its name cannot be trusted); `foreign` (no value of a
  ledger's producer). A value names (producer, pseq), unique in a topic.
- `odd`: every send with each log row that bears its name, without the perfect pairs (`PAIRS_SQL`): of a good
  cluster nothing is left. `near`: all log rows of the sends in `odd`, the perfect ones too.
- `disordered`: sends at offsets below that of an earlier send of their producer (`ORDER_SQL`).
- `ends`: topic, partition, settled_end (the log's end before the ledger was read), served_end (the log's end
  afterwards: log rows lie below it), log_start (its first offset then).
- `replica`, `marks`: batches of replica segment files, and each replica's high watermark. A row with a
  `problem` cannot be read; `damaged` is NULL where a power cut may have left it so. An empty segment is a row
  with nothing but its first offset; `damaged` is NULL of one far behind the log's end, too.
- `flushed`: broker, topic, partition, flushed_offset: below it a replica was flushed all the time that files
  were read; behind every offset after a clean stop.
- `epochs`: broker, topic, partition, epoch, start_offset, end_offset, flushed_offset: rows of replicas'
  leader epoch checkpoints; end_offset is where the next epoch begins, NULL of the last one. Below
  flushed_offset a checkpoint is as new as the log. A checkpoint without rows is one of epoch NULL.
- `stray`: broker, topic, partition, offset, segment, position, and as in `log` state, producer, pseq,
  value_crc32c, key_crc32c: records of batches of `replica` that are not served (`STRAYS_SQL`), of those
  behind served_end only while `is_told`. `state` may also be `unreadable`, of a batch whose crc holds.
  `is_told`: neither ledger nor log had grown when all was read.
- `batches`: each batch of `replica`, all copies of it together (`BATCHES_SQL`): `uneven`, `unserved`.
- `all_sends`: as `sends`, also those whose places retention has taken; and rows with a pseq below 0.
- `polls`: file, line, nth, run, consumer, session, poll, topic, partition, high_watermark, t1, offset,
  leader_epoch, value_crc32c, producer, pseq: a record that a consumer was given (`durability.poll_files`), in
  the order of line and nth; without a name when its value is none of a ledger. `all_sends` is there, too.
- `members`: broker, topic, partition, is_in_sync: replicas that there should be, of brokers whose log
  dirs are known; not in sync where a power cut may have left something (`durability.power_cuts`).
"""

from dataclasses import dataclass
from enum import Enum


class Looks(Enum):
    """What a rule looks at: it has nothing to say where that is missing."""

    #: sends and log rows that are no perfect pairs
    PAIRS = "pairs"
    #: the same, and the keys, headers and timestamps that newer ledgers tell
    FIELDS = "fields"
    #: the order of the ledger's own offsets
    ORDER = "order"
    #: times of sends and answers, all of one clock
    TIMES = "times"
    #: segment files of replicas
    REPLICAS = "replicas"
    #: segment files, and the checkpoints of leader epochs beside them
    EPOCHS = "epochs"
    #: segment files, and who should have them
    MEMBERS = "members"
    #: records in segment files that are not served
    STRAYS = "strays"
    #: what consumers were given
    POLLS = "polls"


@dataclass(frozen=True, slots=True)
class Rule:
    """One class of the verdict. `sql` gives (topic, partition, offset, run, producer, pseq, detail), and
    (broker, segment, position) behind them when it is of replicas."""

    name: str
    #: what a row means, in words of a table
    meaning: str
    #: when a row is there although the cluster kept its promises
    false_alarm: str
    looks: Looks
    sql: str
    #: SQL of a row of `odd` or, of a rule that looks at replicas, of `batches`: where no row is so the rule
    #: has none to show, and is not asked
    needs: str = "true"
    #: False: it may happen, and is counted
    is_forbidden: bool = True

    @property
    def is_of_replicas(self) -> bool:
        """Its rows name a replica and a place in a file."""
        return self.looks in (Looks.REPLICAS, Looks.EPOCHS, Looks.MEMBERS, Looks.STRAYS)


#: Where what a row of `replica` is known to hold ends. A batch whose crc does not hold says nothing of its
#: offsets; the name of its segment does.
END_OF_ROW = """CASE WHEN problem IS NULL THEN coalesce(last_offset + 1, base_offset)
                          ELSE CAST(substring_index(segment, '.', 1) AS long) END"""
#: The columns of a send.
SENT = "SELECT DISTINCT topic, partition, offset, run, producer, pseq"
SAME_SEND = "n.producer = o.producer AND n.pseq = o.pseq"
SAME_PARTITION = "n.topic = o.topic AND n.partition = o.partition"
NO_SEND = "CAST(NULL AS string) AS run, CAST(NULL AS string) AS producer, CAST(NULL AS long) AS pseq"
#: The records that one session was given of a partition; they rise, without gaps.
IN_SESSION = """(PARTITION BY run, consumer, session, topic, partition ORDER BY line, nth)"""


def told_of_poll(what: str) -> str:
    """`detail` of a row of `polls`: who was given it, and SQL `what`."""
    return f"concat('consumer ', consumer, ', session ', session, ', poll ', poll, ': ', {what})"
