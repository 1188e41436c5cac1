"""Properties of requests that wait in a broker: for news that are there, or for longer than they asked to;
and how many they are.

Owns what no loss and no later moment shows: a client that is not answered asks again, and only time is lost.
"""

from collections.abc import Sequence

from holdfast.broker.core.broker import Broker
from holdfast.metadata.ids import PartitionId
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Before, Late, Property, ReplicaView
from holdfast.sim.cluster.nodes import SimBroker, State

#: looks at a broker are so far apart at most, else it may have stood still between them; ms
_LOOKED_AWAY_MS = 1_200
#: looks, not closer than that, at which the same request was overdue
_LOOK_MS, _LOOKS = 150, 4
#: no client of a run asks to wait for longer
_LONGEST_MS = 20_000


class FetchesHearOfNews(Property):
    """R55, R80: no fetch waits at a leader for records that it could have: a consumer's below the high
    watermark, a follower's below the end of the log, nor for another leader epoch than there is."""

    name = "R80 FetchesHearOfNews"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        node, leadership = view.broker.node, view.leadership
        is_there = view.broker.state is State.RUNNING and not view.process.is_dead
        if node is None or not hasattr(node, "core") or not is_there or view.log.failure is not None:
            return
        fetches, key = node.core.fetch_path, view.replica.key
        serves = leadership is not None and leadership.start_offset is not None
        for delayed in fetches._purgatory.waiting_for(key):
            row = next(
                one for one in delayed.request.partitions if (one.topic_id, one.partition_index) == key
            )
            has_some = row.fetch_offset < view.replica.high_watermark and delayed.request.min_bytes <= 1
            if not serves or has_some:
                story = f"{view.broker.name} as {view.role.value} at {view.replica.high_watermark}"
                seen.broken(self, view.index, f"{story} lets a consumer wait for {row.fetch_offset}")
        for listed in fetches._sessions.rows_of(key):
            if not listed.is_open or listed.session.parked is None or not serves or leadership is None:
                continue
            if node.server.pump.is_settling_due and listed.session in fetches._sessions.woken:
                continue  # answered in the next turn of the event loop, with what else comes in this one
            has_some = listed.refusal is None and listed.fetch_offset < view.log.log_end_offset
            if has_some or listed.leader_epoch < leadership.leader_epoch:
                story = f"{view.broker.name} of epoch {leadership.leader_epoch}, ends at {view.end_offset}"
                follower = f"follower {listed.session.replica_id} of epoch {listed.leader_epoch}"
                seen.broken(self, view.index, f"{story}: lets {follower} wait for {listed.fetch_offset}")


class WaitsEnd(Property):
    """A-18: a write or a fetch is answered when the time is over that it asked to wait, and waits for no
    partition that has gone from here. A broker that stops ends its connections instead."""

    name = "A-18 WaitsEnd"

    def __init__(self) -> None:
        #: {process: (when it was looked at last, what was due then, looks at which that was overdue)}
        self._overdue: dict[str, tuple[int, int | None, int]] = {}

    def broker_called(self, seen: Observer, broker: SimBroker) -> None:
        assert broker.node is not None
        if broker.state is State.STOPPING:
            return
        now_ms, name = broker.clock_ms, broker.process.name
        looked_ms, former_ms, looks = self._overdue.get(name, (now_ms - _LOOK_MS, None, 0))
        if now_ms < looked_ms + _LOOK_MS:
            return
        core = broker.node.core
        due = _due(core)
        if max(due, default=now_ms) > now_ms + _LONGEST_MS:
            seen.broken(
                self, None, f"{broker.name} lets a request wait until {max(due) - now_ms} ms from now"
            )
        for key in _waited_for(core):
            if key not in core.partitions:
                seen.broken(self, seen.place(*key), f"{broker.name} lets a request wait for what it has not")
        due_ms = min(due, default=None)
        if due_ms is None or due_ms >= now_ms:
            self._overdue[name] = now_ms, None, 0
            return
        is_same = former_ms == due_ms and now_ms - looked_ms <= _LOOKED_AWAY_MS
        looks = looks + 1 if is_same else 1
        self._overdue[name] = now_ms, due_ms, looks
        if looks >= _LOOKS:
            seen.broken(
                self, None, f"{broker.name} lets a request wait that was due {now_ms - due_ms} ms ago"
            )


class WaitingIsCounted(Property):
    """A-18: as many requests count as waiting as wait. One that is counted for ever takes the place of one
    that may wait, until the broker takes no more."""

    name = "A-18 WaitingIsCounted"

    def __init__(self) -> None:
        #: {process: when it was looked at last, virtual ns}; what is counted wrongly stays so
        self._looked: dict[str, int] = {}

    def broker_called(self, seen: Observer, broker: SimBroker) -> None:
        assert broker.node is not None
        now_ns, name = seen.world.loop.now_ns, broker.process.name
        if now_ns < self._looked.get(name, 0):
            return
        self._looked[name] = now_ns + _LOOK_MS * 1_000_000
        produces, fetches = broker.node.core.produce_path, broker.node.core.fetch_path._purgatory
        for what, purgatory in (("commits", produces._replicating), ("flushes", produces._flushing)):
            rows = (row for queue in purgatory._queues.values() for row in queue if not row.is_decided)
            self._compare(
                seen, broker, f"writes for {what}", len({id(row.delayed) for row in rows}), purgatory.size
            )
        waiting = {id(delayed) for delayeds in fetches._by_key.values() for delayed in delayeds}
        self._compare(seen, broker, "fetches", len(waiting), fetches.size)

    def _compare(self, seen: Observer, broker: SimBroker, what: str, there: int, counted: int) -> None:
        if there != counted:
            seen.broken(self, None, f"{broker.name} counts {counted} {what}, {there} wait")


class CommittedIsNotLate(Property):
    """A-18: no write is told to be late that its leader has committed by then, also when others of the same
    request are late."""

    name = "A-18 CommittedIsNotLate"

    def told_late(self, seen: Observer, view: ReplicaView, late: Late) -> None:
        result = late.result
        if 0 < result.end_offset <= late.high_watermark:
            story = f"{view.broker.name} tells that what ends at {result.end_offset} is late"
            seen.broken(self, view.index, f"{story}, and has committed up to {late.high_watermark}")


def _due(core: Broker) -> list[int]:
    """When the requests that wait should be answered at the latest. Not asked of the core, which may have
    forgotten some."""
    produces, fetches = core.produce_path, core.fetch_path
    due: list[int] = []
    for purgatory in (produces._replicating, produces._flushing):
        due += [
            row.delayed.due_ms for rows in purgatory._queues.values() for row in rows if not row.is_decided
        ]
    for waiting in fetches._purgatory._by_key.values():
        due += [delayed.due_ms for delayed in waiting]
    due += [one.due_ms for one in fetches._sessions._sessions.values() if one.parked is not None]
    return due


def _waited_for(core: Broker) -> list[PartitionId]:
    """Partitions that writes and consumers wait for."""
    produces = core.produce_path
    return [
        key
        for purgatory in (produces._replicating, produces._flushing)
        for key, rows in purgatory._queues.items()
        if any(not row.is_decided for row in rows)
    ] + [key for key, waiting in core.fetch_path._purgatory._by_key.items() if waiting]


class DurableWritesAreAcknowledged(Property):
    """D6: who has sent with acks=1, where every write is flushed, hears of it once its batch is on the
    leader's disk, and waits for no flush of a former leadership."""

    name = "D6 DurableWritesAreAcknowledged"

    def __init__(self) -> None:
        #: {process: (when it was looked at last, rows that were still undecided then, and ought not to be)}
        self._late: dict[str, tuple[int, list[object]]] = {}

    def broker_called(self, seen: Observer, broker: SimBroker) -> None:
        assert broker.node is not None
        core = broker.node.core
        queues = core.produce_path._flushing._queues
        if not queues:
            return
        now_ms, name = broker.clock_ms, broker.process.name
        looked_ms, late = self._late.get(name, (now_ms - _LOOK_MS, []))
        if now_ms < looked_ms + _LOOK_MS:
            return
        found = [
            row
            for key, rows in queues.items()
            for row in rows
            if not row.is_decided and _is_due(core, key, row.leader_epoch, row.required_offset)
        ]
        self._late[name] = now_ms, list(found)
        # the word of the flush may be on its way to the core at one look, not at two
        again = [row for row in found if any(row is one for one in late)]
        if again and now_ms - looked_ms <= _LOOKED_AWAY_MS and broker.state is State.RUNNING:
            story = f"{broker.name} lets a write of epoch {again[0].leader_epoch} wait for"
            seen.broken(self, seen.place(*again[0].key), f"{story} {again[0].required_offset}, on its disk")


def _is_due(core: Broker, key: PartitionId, leader_epoch: int, required_offset: int) -> bool:
    """Nothing is waited for any more."""
    replica = core.partitions.get(key)
    leadership = None if replica is None else replica.leadership
    if replica is None or leadership is None or leadership.leader_epoch != leader_epoch:
        return True
    return required_offset <= replica.position
