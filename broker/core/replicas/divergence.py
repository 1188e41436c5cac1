"""Where two logs part: what a leader tells who reads from it, and what a follower cuts then.

Pure functions of a log and of what the other side has said; own nothing. Rules R55, R80, R81, R88, A-16, D8.
"""

from typing import NamedTuple, Protocol

from holdfast.protocol.errors import ErrorCode


class LogView(Protocol):
    """What decisions may read of a log. `storage.log.Log` is one."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int:
        """End (exclusive) of what is durable."""

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last batch, -1 for none."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(largest epoch known that is not above `epoch`, its end), None when there is none."""


class Refusal(NamedTuple):
    """Why a row of a fetch gets no records. `diverging` is (epoch, end offset) with error NONE."""

    error_code: ErrorCode
    diverging: tuple[int, int] | None = None


def check_read(log: LogView, fetch_offset: int, last_fetched_epoch: int) -> Refusal | None:
    """A log that does not hold what a consumer read before `fetch_offset` says where the two part, as to a
    follower: an unclean election has cut it (R88). None when it may go on; epoch -1 for nothing read."""
    if last_fetched_epoch >= 0:
        found = log.end_offset_for_epoch(last_fetched_epoch)
        if found is None and log.log_start_offset < fetch_offset <= log.log_end_offset:
            # all that is here is of later epochs: what was read may be deleted below the start, not behind it
            found = last_fetched_epoch, log.log_start_offset
        if found is not None and _parts_at(found, fetch_offset, last_fetched_epoch):
            return Refusal(ErrorCode.NONE, found)
    if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
        return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
    return None


def check_copy(
    log: LogView, fetch_offset: int, last_fetched_epoch: int, *, is_isr_or_elr_member: bool
) -> Refusal | None:
    """Whether a follower's log is a prefix of the leader's `log` (R80); None when it is.
    `is_isr_or_elr_member`: it is in the ISR or the ELR."""
    if fetch_offset < log.log_start_offset:
        return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
    if last_fetched_epoch >= 0:
        found = log.end_offset_for_epoch(last_fetched_epoch)
        if found is None:
            if fetch_offset == log.log_start_offset and is_isr_or_elr_member:
                return None  # retention has taken what both had up to here
            return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
        if _parts_at(found, fetch_offset, last_fetched_epoch):
            return Refusal(ErrorCode.NONE, found)
    if fetch_offset > log.log_end_offset:
        return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
    return None


def _parts_at(found: tuple[int, int], fetch_offset: int, last_fetched_epoch: int) -> bool:
    epoch, end_offset = found
    return epoch < last_fetched_epoch or end_offset < fetch_offset


def truncation_offset(
    log: LogView, diverging_epoch: int, leader_end_offset: int, *, is_isr_or_elr_member: bool
) -> int | None:
    """Where a follower cuts its `log` after a diverging answer (R81, A-16): own end of that epoch, never
    above the leader's of the same epoch; where we do not have it own end of the next lower one. 0 when no
    epoch so low is known: everything goes (D8). None when the beginning is deleted besides: what there was
    parts from the leader's as well, so the log begins anew where the leader's does. An empty one at our start
    would lack what the leader has written since below it. Not so for who is seated and parts from the leader
    no lower than at its start: it must not end below what is committed (I-8). May be below the log start,
    too, where both were equal."""
    found = log.end_offset_for_epoch(diverging_epoch)
    if found is None:
        start = log.log_start_offset
        has_more = start < log.log_end_offset  # else that has been tried
        keeps_start = has_more and start <= leader_end_offset and is_isr_or_elr_member
        return start if keeps_start or not start else None
    epoch, end_offset = found
    if epoch == diverging_epoch:
        end_offset = min(end_offset, leader_end_offset)
    return min(end_offset, log.log_end_offset)
