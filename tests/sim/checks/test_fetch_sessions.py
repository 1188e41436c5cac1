"""Properties of fetch sessions: a history that breaks each, and the one beside it that does not."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.core.byte_rate import RateWindows
from holdfast.broker.core.replicas.fetcher import RowState
from holdfast.broker.core.replicas.replication_quota import ReplicationQuota
from holdfast.broker.core.requests.fetch_path import FetchPath
from holdfast.broker.core.requests.fetch_session import FollowerSession
from holdfast.metadata.ids import PartitionId
from holdfast.sim.checks.properties import fetch_sessions
from holdfast.sim.cluster.nodes import State
from tests.sim.checks.histories import Scene, follows, leads, mark, view_of

BATCHES = [mark(0), mark(1), mark(2)]


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [((7, 3), (7, 2), True), ((7, 3), (6, 9), True), ((7, 3), (7, 4), False), ((7, 3), (8, 1), False)],
)
def test_an_overtaken_session_is_not_opened_a15(
    first: tuple[int, int], then: tuple[int, int], expected: bool
) -> None:
    """A later incarnation counts its sessions from the beginning."""
    scene = Scene(fetch_sessions.SessionsRise())
    view = leads(view_of(scene, 1))
    path = _path_of(view)
    said = None
    for broker_epoch, session_id in (first, then):
        path._sessions.open(2, broker_epoch, session_id, 0)
        said = scene.violation(lambda: scene.property.broker_called(scene.seen, view.broker))
    assert (said is not None) is expected


def _path_of(view: Any) -> FetchPath:
    path = FetchPath({view.replica.key: view.replica}, 10, 1000, ReplicationQuota(1, RateWindows(11, 1000)))
    view.broker.node = SimpleNamespace(core=SimpleNamespace(fetch_path=path))
    view.broker.state = State.RUNNING
    return path


@dataclass
class Pair:
    """A leader and a follower that wait for each other; both have what they need to be compared."""

    scene: Scene
    leader: Any
    session: FollowerSession[PartitionId]
    key: PartitionId
    path: FetchPath
    source: Any
    partition: Any

    @classmethod
    def at_rest(cls) -> "Pair":
        """2 waits for what comes behind 3 records in epoch 5, and both know that 2 of them are committed."""
        scene = Scene(fetch_sessions.SessionsAgree())
        leader, follower = leads(view_of(scene, 1, BATCHES)), follows(view_of(scene, 2, BATCHES))
        path, key = _path_of(leader), leader.replica.key
        session = path._sessions.open(2, 7, 3, 0)
        session.parked, session.next_epoch = object(), 5
        path._sessions.list_row(session, key, 3, 5, 100).sent_high_watermark = 2
        partition = follower.replica
        partition._told_high_watermark = 2
        row = SimpleNamespace(state=RowState.OPEN, partition=partition, leader_epoch=5)
        source = SimpleNamespace(session_id=3, in_flight=[4], rows={key: row})
        fetchers = SimpleNamespace(broker_epoch=7, _sources={1: source})
        follower.broker.node = SimpleNamespace(core=SimpleNamespace(fetchers=fetchers))  # type: ignore[assignment]
        follower.broker.state = State.RUNNING
        return cls(scene, leader.broker, session, key, path, source, partition)

    @property
    def row(self) -> Any:
        """What the leader remembers."""
        return self.session.rows[self.key]

    def is_broken(self) -> bool:
        """Whether the property speaks up, under its own name."""
        said = self.scene.violation(lambda: self.scene.property.broker_called(self.scene.seen, self.leader))
        assert said is None or said.startswith(fetch_sessions.SessionsAgree.name), said
        return said is not None


def _is_closed(pair: Pair) -> None:
    pair.path._sessions.close_row(pair.row)


def _is_forgotten(pair: Pair) -> None:
    pair.path._sessions.forget(pair.session, pair.key)


def _stands_elsewhere(pair: Pair) -> None:
    pair.row.fetch_offset = 2


def _has_another_epoch(pair: Pair) -> None:
    pair.row.leader_epoch = 4


def _was_told_more(pair: Pair) -> None:
    pair.row.sent_high_watermark = 3


def _left_its_rows(pair: Pair) -> None:
    pair.session.rows.clear()
    pair.path._sessions.open(2, 7, 4, 0)


@pytest.mark.parametrize(
    "differ",
    [_is_closed, _is_forgotten, _stands_elsewhere, _has_another_epoch, _was_told_more, _left_its_rows],
)
def test_what_a_leader_remembers_is_what_its_follower_has_asked_for_d4(differ: Any) -> None:
    pair = Pair.at_rest()
    assert not pair.is_broken()
    differ(pair)
    assert pair.is_broken()


def _an_answer_is_under_way(pair: Pair) -> None:
    pair.source.in_flight = [3, 4]


def _the_request_is_answered(pair: Pair) -> None:
    pair.session.parked = None


def _has_begun_another(pair: Pair) -> None:
    pair.source.session_id = 4


def _has_something_else_to_do(pair: Pair) -> None:
    pair.source.rows[pair.key].state = RowState.BUSY


def _does_not_run(pair: Pair) -> None:
    pair.scene.world.brokers[1].state = State.DOWN


@pytest.mark.parametrize(
    "excuse",
    [
        _an_answer_is_under_way,
        _the_request_is_answered,
        _has_begun_another,
        _has_something_else_to_do,
        _does_not_run,
    ],
)
def test_they_may_differ_while_something_is_on_its_way_d4(excuse: Any) -> None:
    pair = Pair.at_rest()
    _stands_elsewhere(pair)
    excuse(pair)
    assert not pair.is_broken()


def test_a_leader_need_not_have_told_of_its_high_watermark_d4() -> None:
    pair = Pair.at_rest()
    pair.row.sent_high_watermark = -1
    assert not pair.is_broken()


@pytest.mark.parametrize("forgets", [True, False])
def test_a_row_stays_behind_though_another_one_takes_its_place_in_one_step_d4(forgets: bool) -> None:
    pair = Pair.at_rest()
    assert not pair.is_broken()
    all_sessions, other = pair.path._sessions, PartitionId(pair.key.topic_id, 7)
    if forgets:
        all_sessions.forget(pair.session, pair.key)
    else:
        del pair.session.rows[pair.key]
    pair.source.rows.clear()
    all_sessions.list_row(pair.session, other, 3, 5, 100)
    assert pair.is_broken() is not forgets
