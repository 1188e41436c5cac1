"""What became of a record that is lost, in sentences.

Pure. What replicas have in the place that was acknowledged says whether it is still there, another one has
its place since, or the log ends before it. What the metadata log says of the partition's leaders tells by
which election that came about, and a history of the run what was done to the cluster meanwhile. Where a
source does not tell, the story says so, and blames no election.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from holdfast.durability.replica_places import Found, Has

#: Faults that a story names.
_FAULTS_MAX = 5


@dataclass(frozen=True, slots=True)
class LostRecord:
    """An acknowledged record that is not served, and the place that was acknowledged."""

    topic: str
    partition: int
    offset: int
    producer: str
    pseq: int
    #: leader epoch of the acknowledgement; -1 when the ledger does not say it
    leader_epoch: int = -1
    #: monotonic time of the acknowledgement, as the ledger has it
    acked_ns: int | None = None
    #: the first later leader epoch that acknowledged its offset, or one below it, again
    given_in: int | None = None
    #: the last epoch before that one that acknowledged only what is behind it: its leader went on there
    outlived: int | None = None


@dataclass(frozen=True, slots=True)
class Election:
    """A leader epoch of a partition, as the metadata log has it."""

    leader_epoch: int
    #: None: no replica may lead
    leader: int | None
    #: the ISR when it began, and when the next one began
    first_isr: tuple[int, ...]
    last_isr: tuple[int, ...]
    #: nothing proved that the leader's log was complete
    is_unclean: bool
    #: wall time in ms since 1970
    timestamp_ms: int
    #: what led to it, in words
    cause: str
    #: the ELR and last known ELR when the next one began
    last_elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    #: where the leader's log ended, where logs were compared
    log_end: int | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was done to a cluster, from wall time to wall time in ms since 1970."""

    text: str
    since_ms: int
    #: None: it was never healed
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class RunHistory:
    """What was done to a cluster while producers on the same machine sent."""

    #: both clocks of that machine at one moment, before the first fault
    wall_ms: int
    mono_ns: int
    faults: tuple[Fault, ...]

    def wall_time(self, mono_ns: int | None) -> int | None:
        """In ms; None for no time, and for one before the run."""
        if mono_ns is None or mono_ns < self.mono_ns:
            return None
        return self.wall_ms + (mono_ns - self.mono_ns) // 1_000_000


def story_of(
    found: Sequence[Found],
    lost: LostRecord,
    elections: Sequence[Election] = (),
    history: RunHistory | None = None,
) -> str:
    """Sentences about a lost record, empty when nothing is known of its partition. `found`: what replicas
    have in its place; `elections`: of the partition in the order of their epochs, the last ones without a
    gap."""
    blamed = _blamed(lost, found, elections)
    meanwhile = "" if history is None else _meanwhile(lost, blamed, history)
    return "; ".join(filter(None, (_stored(lost, found), _course(lost, found, elections, blamed), meanwhile)))


# --- what replicas have --------------------------------------------------------------------------------


def _stored(lost: LostRecord, found: Sequence[Found]) -> str:
    """What replicas have of it."""
    if not found:
        return ""
    told = []
    kept = _each(found, Has.RECORD, lambda one: f"still has it, {one.where}")
    if kept:
        told.append(f"stored but not served: {'; '.join(kept)}")
    others = [one for one in found if one.has is Has.OTHER]
    if others:
        by = ", ".join(f"replica {one.broker} in epoch {one.epoch}" for one in others)
        told.append(f"its offset was given to another record: {by}{_since(lost, others)}")
    nothing = [
        *_each(found, Has.UNREADABLE, lambda one: f"cannot be read there, {one.where}"),
        *_each(found, Has.HOLE, lambda one: f"has a gap there and goes on at {one.offset}"),
        *_each(found, Has.LATER, lambda one: f"begins at {one.offset}"),
        *_each(found, Has.ENDS, lambda one: f"ends at {one.offset}"),
    ]
    if not nothing or kept:
        return "; ".join(told)
    if others:
        return "; ".join([*told, *nothing])
    if all(one.has is Has.ENDS for one in found):
        return f"no replica has it or anything behind it: {', '.join(nothing)}; truncated, or never stored"
    return f"no replica has it: {', '.join(nothing)}"


def _each(found: Sequence[Found], has: Has, say: Callable[[Found], str]) -> list[str]:
    return [f"replica {one.broker} {say(one)}" for one in found if one.has is has]


def _since(lost: LostRecord, others: Sequence[Found]) -> str:
    """How another record came to its place, as far as leader epochs tell: a leader gives an offset once."""
    epochs = {one.epoch for one in others if one.epoch is not None}
    if lost.leader_epoch < 0 or all(epoch > lost.leader_epoch for epoch in epochs):
        return "; what was stored there was truncated, or lost with its files"
    if epochs == {lost.leader_epoch}:
        return ", the one that acknowledged it: it was never stored there"
    return f"; it was acknowledged in epoch {lost.leader_epoch}"


# --- who had led ---------------------------------------------------------------------------------------


def _blamed(lost: LostRecord, found: Sequence[Found], elections: Sequence[Election]) -> Sequence[Election]:
    """The elections of which one gave its place to another log: the unclean ones among those that may have.
    Empty when it is not known, or when none did."""
    if not any(one.leader_epoch == lost.leader_epoch for one in elections):
        return ()
    given, outlived = _bounds(lost, found, elections)
    within = [
        one
        for one in elections
        if one.leader is not None
        and outlived < one.leader_epoch
        and (given is None or one.leader_epoch <= given)
    ]
    return [one for one in within if one.is_unclean] or within


def _bounds(
    lost: LostRecord, found: Sequence[Found], elections: Sequence[Election]
) -> tuple[int | None, int]:
    """(first epoch whose leader lacked it, last one before that whose leader had what is there), as far as is
    known."""
    later = [one for one in elections if one.leader_epoch > lost.leader_epoch and one.log_end is not None]
    lacking = [one.leader_epoch for one in later if one.log_end is not None and one.log_end <= lost.offset]
    lacking += [one.epoch for one in found if one.epoch is not None and one.epoch > lost.leader_epoch]
    lacking += [] if lost.given_in is None else [lost.given_in]
    given = min(lacking, default=None)
    having = [one.leader_epoch for one in later if one.log_end is not None and one.log_end > lost.offset]
    having += [] if lost.outlived is None else [lost.outlived]
    return given, max(
        (epoch for epoch in having if given is None or epoch < given), default=lost.leader_epoch
    )


def _course(
    lost: LostRecord, found: Sequence[Found], elections: Sequence[Election], blamed: Sequence[Election]
) -> str:
    """Who had led, and by which election its place came to another log."""
    if not elections:
        return ""
    acked = next((one for one in elections if one.leader_epoch == lost.leader_epoch), None)
    if acked is None:
        return _unknown_course(lost, elections)
    text = (
        f"acknowledged in epoch {acked.leader_epoch} by leader {acked.leader}, whose ISR was "
        f"{_ids(acked.first_isr)}"
    )
    if acked.last_isr != acked.first_isr:
        text += f" at first and {_ids(acked.last_isr)} at last"
    if not any(one.leader_epoch > acked.leader_epoch and one.leader is not None for one in elections):
        return f"{text}; no other leader was elected since"
    if not blamed:
        _, outlived = _bounds(lost, found, elections)
        return f"{text}; it outlived the elections until epoch {outlived}, the last one"
    if not blamed[0].is_unclean:
        chain = ", ".join(f"{one.leader} in epoch {one.leader_epoch}" for one in blamed)
        if len(blamed) > 1:
            return f"{text}; since then only clean elections: {chain}: a log that had to be complete was not"
    told = [f"{text}{_or_one_of(blamed)}"]
    told += [_election(one, elections) for one in blamed]
    cut = sorted({one.broker for one in found if one.has in (Has.OTHER, Has.ENDS)} - {blamed[0].leader})
    if len(blamed) == 1 and cut:
        told[-1] += f", to whose log {_replicas(cut)} had to be cut"
    before = [
        one
        for one in elections
        if one.leader is not None and acked.leader_epoch < one.leader_epoch < blamed[0].leader_epoch
    ]
    if before:
        told.append(
            f"between them led {', '.join(f'{one.leader} in epoch {one.leader_epoch}' for one in before)}"
        )
    return "; ".join(told)


def _unknown_course(lost: LostRecord, elections: Sequence[Election]) -> str:
    """What is said when nothing is known of the epoch of the acknowledgement."""
    if lost.leader_epoch < 0:
        unclean = [one for one in elections if one.is_unclean]
        text = "the ledger does not say in which epoch it was acknowledged"
        if not unclean:
            return f"{text}; the metadata log has no unclean election of the partition"
        return "; ".join([text, *(_election(one, elections) for one in unclean)])
    first, last = elections[0].leader_epoch, elections[-1].leader_epoch
    told = f"from epoch {first} on" if lost.leader_epoch < first else f"to epoch {last}"
    return (
        f"acknowledged in epoch {lost.leader_epoch}; the metadata log tells only {told}, so by which "
        "election it was lost is not known"
    )


def _or_one_of(blamed: Sequence[Election]) -> str:
    return "" if len(blamed) == 1 else f"; one of these {len(blamed)} elections gave its place to another log"


def _election(one: Election, elections: Sequence[Election]) -> str:
    """How it came, and the sets before it."""
    how = "uncleanly" if one.is_unclean else "cleanly"
    why = one.cause
    earlier = [other for other in elections if other.leader_epoch < one.leader_epoch]
    if earlier:
        last = earlier[-1]
        why += f"; before it ISR: {_ids(last.last_isr)}, ELR: {_ids(last.last_elr)}"
        why += f", last known ELR: {_ids(last.last_known_elr)}" if last.last_known_elr else ""
    text = (
        f"epoch {one.leader_epoch} began {how} with leader {one.leader} at {_time(one.timestamp_ms)} ({why})"
    )
    return text if one.is_unclean else f"{text}, whose log had to be complete and was not"


# --- what was done -------------------------------------------------------------------------------------


def _meanwhile(lost: LostRecord, blamed: Sequence[Election], history: RunHistory) -> str:
    """What was done to the cluster from the acknowledgement to the election that gave its place away."""
    acked_ms = history.wall_time(lost.acked_ns)
    since = history.wall_ms if acked_ms is None else acked_ms
    until = blamed[-1].timestamp_ms if blamed else None
    near = [
        fault
        for fault in history.faults
        if (until is None or fault.since_ms <= until) and (fault.until_ms is None or fault.until_ms >= since)
    ]
    text = "" if acked_ms is None else f"acknowledged at {_time(acked_ms)}; "
    if not near:
        return f"{text}the run's history has no fault in that time" if text else ""
    shown = ", ".join(
        f"{fault.text} at {_time(fault.since_ms)}"
        + ("" if fault.until_ms is None else f" (healed at {_time(fault.until_ms)})")
        for fault in near[-_FAULTS_MAX:]
    )
    more = f", the last of {len(near)}" if len(near) > _FAULTS_MAX else ""
    return f"{text}what was done to the cluster{' meanwhile' if text else ''}{more}: {shown}"


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(ids))) or "empty"


def _replicas(brokers: Sequence[int]) -> str:
    return f"{'replica' if len(brokers) == 1 else 'replicas'} {_ids(brokers)}"


def _time(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03}Z"
