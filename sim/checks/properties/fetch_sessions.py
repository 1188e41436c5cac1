"""Properties of fetch sessions: what a leader remembers of its followers is what they have asked for.

Owns the moment at which both can be compared: when the leader holds the only request that the follower waits
for, no answer is under way. What is remembered wrongly is a follower that waits for nothing: it shows only as
time that is lost, or as a position that no replica has.
"""

from holdfast.broker.core.broker import Broker
from holdfast.broker.core.replicas.fetcher import RowState
from holdfast.broker.core.requests.fetch_session import FollowerSession, FollowerSessions
from holdfast.metadata.ids import PartitionId
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property
from holdfast.sim.cluster.nodes import SimBroker, State


class SessionsRise(Property):
    """A-15, R80: at a leader a follower's session is only replaced by a later one: the request that opened an
    earlier one was overtaken, and tells of a log that may have been cut since."""

    name = "A-15 SessionsRise"

    def __init__(self) -> None:
        #: {(leader's process, follower): (broker epoch, session id)}
        self._last: dict[tuple[str, int], tuple[int, int]] = {}

    def broker_called(self, seen: Observer, broker: SimBroker) -> None:
        assert broker.node is not None
        for replica_id, session in broker.node.core.fetch_path._sessions._sessions.items():
            key = broker.process.name, replica_id
            last = self._last.get(key)
            if last is not None and session.identity < last:
                seen.broken(
                    self, None, f"{broker.name} follows session {session.identity} of {key[1]}, after {last}"
                )
            self._last[key] = session.identity


class SessionsAgree(Property):
    """N-4, R80: each row for which a follower waits is open at the leader, from the offset and in the epoch
    that the follower has listed, and the high watermark that the leader has told is the one that the follower
    knows. No request is woken for rows of a former session."""

    name = "N-4 SessionsAgree"

    def __init__(self) -> None:
        #: {process: its sessions and how many rows they have, when all rows were looked at}
        self._looked: dict[str, list[tuple[tuple[int, int], int]]] = {}

    def broker_called(self, seen: Observer, broker: SimBroker) -> None:
        assert broker.node is not None
        sessions = broker.node.core.fetch_path._sessions
        held = [(session.identity, len(session.rows)) for session in sessions._sessions.values()]
        held.append(((-1, -1), sum(map(len, sessions._by_key.values()))))
        if held != self._looked.get(broker.process.name):
            self._looked[broker.process.name] = held
            self._look_for_former(seen, broker, sessions)
        for session in sessions._sessions.values():
            if session.parked is not None:
                follower = seen.world.broker(session.replica_id)
                if follower is not None and _runs(follower):
                    assert follower.node is not None
                    self._compare(seen, broker, session, follower.node.core)

    def _look_for_former(
        self, seen: Observer, broker: SimBroker, sessions: FollowerSessions[PartitionId]
    ) -> None:
        for key, rows in sessions._by_key.items():
            for replica_id, row in rows.items():
                present = sessions._sessions[replica_id]
                if present.rows.get(key) is not row:
                    story = f"{broker.name} keeps a row of a former session of {replica_id}"
                    seen.broken(self, seen.place(*key), story)

    def _compare(
        self, seen: Observer, leader: SimBroker, session: FollowerSession[PartitionId], follower: Broker
    ) -> None:
        fetchers = follower.fetchers
        source = fetchers._sources.get(leader.node_id)
        if (
            source is None
            or (fetchers.broker_epoch, source.session_id) != session.identity
            or source.in_flight != [session.next_epoch - 1]
        ):
            return  # an answer is under way, or a request, or the follower waits for this one no more
        for key, asked in source.rows.items():
            if asked.state is not RowState.OPEN:
                continue
            row, partition = session.rows.get(key), asked.partition
            end_offset = partition.log.log_end_offset
            problem = None
            if row is None or not row.is_open:
                problem = "is not waited for"
            elif (row.fetch_offset, row.leader_epoch) != (end_offset, asked.leader_epoch):
                problem = f"is known as {row.fetch_offset} in epoch {row.leader_epoch}"
            elif row.sent_high_watermark not in (-1, partition._told_high_watermark):
                problem = f"knows {partition._told_high_watermark}, was told {row.sent_high_watermark}"
            if problem is not None:
                story = f"{leader.name} and follower {session.replica_id} at {end_offset} in epoch"
                seen.broken(self, seen.place(*key), f"{story} {asked.leader_epoch}, which {problem}")


def _runs(broker: SimBroker) -> bool:
    node = broker.node
    return (
        broker.state in (State.RUNNING, State.PAUSED)
        and node is not None
        and hasattr(node, "core")
        and not broker.process.is_dead
    )
