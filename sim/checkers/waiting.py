"""Properties of requests that wait in a broker: for news that are there, or for longer than they asked to.

Owns what no loss and no later moment shows: whoever is not answered asks again, and only time is lost.
"""

from collections.abc import Sequence

from broker.broker import Broker
from sim.checkers.batches import BatchMark
from sim.checkers.observer import Observer
from sim.checkers.views import Before, Property, ReplicaView
from sim.nodes import SimBroker, State

#: looks at a broker are so far apart at most, else it may have stood still between them; ms
_LOOKED_AWAY_MS = 1_200
#: looks, not closer than that, at which the same request was overdue
_LOOK_MS, _LOOKS = 150, 4


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
            has_some = listed.refusal is None and listed.fetch_offset < view.log.log_end_offset
            if has_some or listed.leader_epoch < leadership.leader_epoch:
                story = f"{view.broker.name} of epoch {leadership.leader_epoch}, ends at {view.end_offset}"
                follower = f"follower {listed.session.replica_id} of epoch {listed.leader_epoch}"
                seen.broken(self, view.index, f"{story}: lets {follower} wait for {listed.fetch_offset}")


class WaitsEnd(Property):
    """A-18: a write or a fetch is answered when the time is over that it asked to wait. A broker that stops
    ends its connections instead."""

    name = "A-18 WaitsEnd"

    def __init__(self) -> None:
        #: {process: (when it was looked at last, what was due then, looks at which that was overdue)}
        self._overdue: dict[str, tuple[int, int | None, int]] = {}

    def broker_called(self, seen: Observer, broker: SimBroker) -> None:
        assert broker.node is not None
        assert broker._clock is not None
        if broker.state is State.STOPPING:
            return
        now_ms, name = broker._clock.shown_ns() // 1_000_000, broker.process.name
        looked_ms, former_ms, looks = self._overdue.get(name, (now_ms - _LOOK_MS, None, 0))
        if now_ms < looked_ms + _LOOK_MS:
            return
        due_ms = _earliest(broker.node.core)
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


def _earliest(core: Broker) -> int | None:
    """When the first of all requests that wait should have been answered; None when none waits. Not asked of
    the core, which may have forgotten it."""
    produces, fetches = core.produce_path, core.fetch_path
    due: list[int] = []
    for purgatory in (produces._replicating, produces._flushing):
        due += [
            row.delayed.due_ms for rows in purgatory._queues.values() for row in rows if not row.is_decided
        ]
    for waiting in fetches._purgatory._by_key.values():
        due += [delayed.due_ms for delayed in waiting]
    due += [one.due_ms for one in fetches._sessions._sessions.values() if one.parked is not None]
    return min(due, default=None)
