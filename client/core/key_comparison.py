"""Compares the replicas of a compacted partition by the last record of each key; says which one is odd.

Owns the verdict; sends nothing. Each replica is compacted by itself, so batches differ and only this must be
the same: below the high watermark that was known at first, each key's last record, where a tombstone counts
as none. A replica that lacks such a record may have removed it since then, for a later one of that key: so it
is read up to its own high watermark before it is judged.
"""

import hashlib
from collections.abc import Iterable, Sequence

from holdfast.client.core.replica_comparison import Finding, FindingKind, agreed, end_of, names_of
from holdfast.protocol.cleaned_batch import keyed_records, plain_records
from holdfast.protocol.record_batch import BatchHeader, Buffer, CorruptBatch

_DIGEST_BYTES = 16
#: A later record may be superseded in its turn before it is read: so often is one looked for.
_EXTENSIONS_MAX = 10
#: (offset, digest of the record), None for a tombstone
_Last = tuple[int, bytes | None]


class _Replica:
    """What was read of one replica."""

    __slots__ = ("extensions", "high_watermark", "last", "later", "limit_offset", "position")

    def __init__(self) -> None:
        self.position = 0
        self.high_watermark = -1
        #: {digest of a key: its last record below the end of the comparison}
        self.last: dict[bytes, _Last] = {}
        #: digests of keys with a record above that end
        self.later: set[bytes] = set()
        #: where reading ends
        self.limit_offset = -1
        #: how often that was moved
        self.extensions = 0

    def take(self, header: BatchHeader, batch: Buffer, end_offset: int) -> None:
        plain = plain_records(batch, header)
        for record in keyed_records(plain, header):
            if record.key is None:
                continue
            key = _digest(record.key)
            if record.offset >= end_offset >= 0:
                self.later.add(key)
            else:
                told = b"%d " % record.timestamp_ms + plain[record.time_end : record.end]
                self.last[key] = record.offset, None if record.is_tombstone else _digest(told)
        self.position = header.next_offset


class KeyComparison:
    """Of one partition. To be used as a `ReplicaComparison`."""

    def __init__(self, broker_ids: Sequence[int], leader_id: int | None) -> None:
        """`leader_id`: who is compared with where no two agree; None for any."""
        self._replicas = {broker_id: _Replica() for broker_id in broker_ids}
        self._leader_id = leader_id
        self.findings: list[Finding] = []
        #: first offset that all of them keep, and the end of what was compared so far
        self.start_offset = 0
        self.compared_offset = 0
        #: end of what is compared: the highest high watermark that a replica knew at the beginning
        self._end_offset = -1
        self._is_over = False

    def wanted(self) -> dict[int, int]:
        """{broker: offset to be read from}: the replicas that the comparison waits for."""
        if self._is_over:
            return {}
        end = self._end_offset
        return {
            broker_id: replica.position
            for broker_id, replica in self._replicas.items()
            if (replica.high_watermark < 0 if end < 0 else replica.position < max(end, replica.limit_offset))
        }

    def took(
        self, broker_id: int, high_watermark: int, batches: Iterable[tuple[BatchHeader, Buffer]]
    ) -> bool:
        """A replica has answered with whole batches; False when there was nothing new among them."""
        replica = self._replicas[broker_id]
        is_new = replica.high_watermark < 0
        replica.high_watermark = max(replica.high_watermark, high_watermark)
        try:
            for header, batch in batches:
                if replica.position < header.next_offset <= replica.high_watermark and self._end_offset >= 0:
                    replica.take(header, batch, self._end_offset)
                    is_new = True
        except CorruptBatch as error:
            self.give_up(broker_id, FindingKind.UNREADABLE, str(error))
            return True
        self._compare()
        return is_new

    def begins_at(self, log_start_offset: int) -> None:
        """A replica keeps nothing below this offset."""
        self.start_offset = max(self.start_offset, log_start_offset)
        for replica in self._replicas.values():
            replica.position = max(replica.position, log_start_offset)
        self._compare()

    def give_up(self, broker_id: int, kind: FindingKind, reason: str) -> None:
        """Go on without a replica."""
        replica = self._replicas.pop(broker_id)
        offset = replica.position if kind is FindingKind.BEHIND else self.start_offset
        self.findings.append(Finding(broker_id, kind, offset, reason))
        self._compare()

    # --- the verdict -----------------------------------------------------------------------------------

    def _compare(self) -> None:
        replicas = self._replicas
        if self._end_offset < 0:
            self._end_offset = end_of([replica.high_watermark for replica in replicas.values()])
            if self._end_offset < 0:
                return
        if self._is_over or self.wanted():
            return
        odd = self._odd()
        unread = [
            replicas[broker_id]
            for broker_id, _, _ in odd
            if replicas[broker_id].position < replicas[broker_id].high_watermark
            and replicas[broker_id].extensions < _EXTENSIONS_MAX
        ]
        if unread:
            for replica in unread:
                replica.limit_offset = replica.high_watermark
                replica.extensions += 1
            return
        self._is_over = True
        self.compared_offset = max(self._end_offset, self.start_offset)
        for broker_id, offset, reason in odd:
            del self._replicas[broker_id]
            self.findings.append(Finding(broker_id, FindingKind.DIFFERS, offset, reason))

    def _odd(self) -> list[tuple[int, int, str]]:
        """(broker, offset, reason) of each replica that does not have what others have, once."""
        found: dict[int, tuple[int, int, str]] = {}
        for key in sorted({key for replica in self._replicas.values() for key in replica.last}):
            lasts = {
                broker_id: self._last_of(replica, key)
                for broker_id, replica in self._replicas.items()
                if key not in replica.later
            }
            if len(set(lasts.values())) < 2:
                continue
            right = agreed(lasts, self._leader_id)
            for broker_id, last in lasts.items():
                if last != right and broker_id not in found:
                    others = [other for other, theirs in lasts.items() if theirs == right]
                    offset = min(one[0] for one in (last, right) if one is not None)
                    found[broker_id] = broker_id, offset, _reason(last, right, others)
        return sorted(found.values())

    def _last_of(self, replica: _Replica, key: bytes) -> _Last | None:
        last = replica.last.get(key)
        return None if last is None or last[1] is None or last[0] < self.start_offset else last


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _reason(last: _Last | None, right: _Last | None, others: list[int]) -> str:
    reason = f"the last record of a key is {_story(last)}, and {_story(right)} on {names_of(others)}"
    return reason if len(others) > 1 else f"{reason}; no two agree, so which one is right is not known"


def _story(last: _Last | None) -> str:
    if last is None or last[1] is None:
        return "not there"
    return f"at offset {last[0]} with digest {last[1].hex()[:8]}"
