"""Where two logs diverge: what a leader answers to a reader or follower, and where a follower truncates.

Pure functions of one log and of what the other side says about its own; own nothing. The rules are Kafka's
(KIP-101, KIP-320), with a decision of Holdfast's own where the epochs of one log are all later (D8).
"""

from typing import NamedTuple, Protocol

from holdfast.protocol.errors import ErrorCode


class LogView(Protocol):
    """What decisions may read of a log; `storage.log.Log` is one."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def durable_start_offset(self) -> int:
        """First offset that is kept after a power loss."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int:
        """End (exclusive) of what is durable."""

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last batch, -1 for none."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(largest known epoch not above `epoch`, its end), None when there is none."""


class Refusal(NamedTuple):
    """Why a row of a fetch gets no records. With error NONE, `diverging` is (epoch, end offset)."""

    error_code: ErrorCode
    diverging: tuple[int, int] | None = None


def check_read(log: LogView, fetch_offset: int, last_fetched_epoch: int) -> Refusal | None:
    """Check a consumer's position. If the log does not hold what the consumer read before `fetch_offset`,
    because an unclean election cut it, the refusal says where they diverge, as for a follower (R88). None
    when the consumer may go on; `last_fetched_epoch` is -1 when it has read nothing."""
    if last_fetched_epoch >= 0:
        found = log.end_offset_for_epoch(last_fetched_epoch)
        if found is None and log.log_start_offset < fetch_offset <= log.log_end_offset:
            # All epochs here are later: only what lies below the log start can be what the consumer read.
            found = last_fetched_epoch, log.log_start_offset
        if found is not None and _parts_at(found, fetch_offset, last_fetched_epoch):
            return Refusal(ErrorCode.NONE, found)
    if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
        return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
    return None


def check_copy(
    log: LogView, fetch_offset: int, last_fetched_epoch: int, *, is_isr_or_elr_member: bool
) -> Refusal | None:
    """Check whether a follower's log is a prefix of the leader's `log` (R55, R80); None when it is."""
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
    """Where a follower truncates its `log` after a diverging answer (R81, A-16); None to drop the log and
    start where the leader's log starts.

    The offset is the end of the diverging epoch in its own log, at most the leader's end of that epoch;
    without that epoch, the end of the next lower one; without a lower one, the start 0. If that start is
    deleted, all that is left diverges from the leader's log, and an empty log there would miss what the
    leader has written below it: so None (D8). An ISR or ELR member that diverges no lower than its log start
    keeps the start: it must not end below committed records (I-8). The offset may lie below the log start
    when both logs were equal there.
    """
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
