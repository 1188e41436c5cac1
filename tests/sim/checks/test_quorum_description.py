"""What a leader of the quorum tells of the others: right and wrong answers after the same fetches."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import (
    METADATA_TOPIC_ID,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from holdfast.protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse, QuorumReplica
from holdfast.raft.core.effects import Reply, RequestReceived
from holdfast.raft.core.leadership import Leader
from holdfast.sim.checks.observe.views import About
from holdfast.sim.checks.opinions.quorum_description import QuorumTold
from holdfast.sim.checks.properties.quorum import QuorumIsTold
from tests.sim.checks.histories import Scene

WALL_MS = 1_000_000


class Voter:
    """101 leads epoch 5, its log ends at 10, up to 8 is committed."""

    def __init__(self) -> None:
        self.raft_epoch, self.log_end_offset, self.high_watermark = 5, 10, 8
        self._config = SimpleNamespace(node_id=101, voters={101: None, 102: None, 103: None})
        self._member = SimpleNamespace(role=Leader.__new__(Leader), now_ms=50)


def fetch(offset: int) -> RequestReceived:
    row = FetchPartition(METADATA_TOPIC_ID, 0, 5, offset, 4, -1, 100)
    return RequestReceived(1, FetchRequest("c", 102, -1, 500, 1, 100, (row,)))


def answer(error_code: int = 0, diverging: EpochEndOffset | None = None) -> Reply:
    row = FetchPartitionResponse(
        METADATA_TOPIC_ID, 0, error_code, 8, 0, 10, diverging, 101, 5, memoryview(b"")
    )
    return Reply(1, FetchResponse(0, None, (row,)))


def described(end: int, fetched_ms: int, caught_up_ms: int, **other: Any) -> list[Reply]:
    """At 50 ms of the voter; the times are of its clock, -1 for never."""
    times = [-1 if one < 0 else one + WALL_MS for one in (fetched_ms, caught_up_ms)]
    rows = (
        QuorumReplica(101, 10, WALL_MS + 50, WALL_MS + 50),
        QuorumReplica(102, end, *times),
        QuorumReplica(103, -1, -1, -1),
    )
    told = replace(DescribeQuorumResponse(ErrorCode.NONE, None, 101, 5, 8, rows, ()), **other)
    return [Reply(1, told)]


ASKED = RequestReceived(1, DescribeQuorumRequest(), WALL_MS + 50)


@pytest.mark.parametrize(
    ("before", "told", "is_wrong"),
    [
        pytest.param([], described(-1, -1, -1), False, id="it has not asked"),
        pytest.param([(10, 10, [])], described(10, 10, 10), False, id="it has all"),
        pytest.param(
            [(10, 10, [])], described(-1, -1, -1), True, id="it has all, and the leader does not say so"
        ),
        pytest.param([(10, 7, [])], described(7, 10, -1), False, id="it is behind"),
        pytest.param([(10, 7, [])], described(7, 10, 10), True, id="it is behind, and has caught up"),
        pytest.param([(10, 10, []), (20, 9, [])], described(9, 20, 10), False, id="less is told"),
        pytest.param([(10, 9, []), (20, 10, [])], described(10, 20, 20), False, id="it catches up"),
        pytest.param([(10, 9, []), (20, 10, [])], described(10, 20, 10), True, id="it catches up later"),
        pytest.param([(10, 10, [answer(75)])], described(-1, -1, -1), False, id="it was refused"),
        pytest.param(
            [(10, 10, [answer(0, EpochEndOffset(4, 7))])], described(-1, -1, -1), False, id="it must cut"
        ),
        pytest.param([], described(-1, -1, -1, raft_epoch=4), True, id="another epoch"),
        pytest.param([], described(-1, -1, -1, high_watermark=9), True, id="more is committed"),
        pytest.param([], described(-1, -1, -1, voters=()), True, id="there are no voters"),
    ],
)
def test_a_leader_tells_what_it_was_asked_in_its_epoch_k16(
    before: list[tuple[int, int, list[Reply]]], told: list[Reply], is_wrong: bool
) -> None:
    voter: Any = Voter()
    one = QuorumTold(voter)
    for now_ms, offset, answers in before:
        assert one.differs(fetch(offset), answers, now_ms) == []
    assert bool(one.differs(ASKED, told, 50)) is is_wrong


def test_who_had_what_the_leader_had_at_its_last_fetch_had_caught_up_then_k16() -> None:
    voter: Any = Voter()
    one = QuorumTold(voter)
    one.differs(fetch(9), [], 10)
    voter.log_end_offset = 12
    one.differs(fetch(10), [], 20)
    told = described(10, 20, 10)
    assert "QuorumReplica(replica_id=101, log_end_offset=12" in one.differs(ASKED, told, 50)[0]
    assert len(one.differs(ASKED, told, 50)) == 1


def test_a_new_term_knows_nothing_of_the_one_before_k16() -> None:
    voter: Any = Voter()
    one = QuorumTold(voter)
    one.differs(fetch(10), [], 10)
    voter._member.role = Leader.__new__(Leader)
    assert one.differs(ASKED, described(-1, -1, -1), 50) == []


def test_a_leader_that_answers_and_resigns_at_once_has_told_what_was_k16() -> None:
    voter: Any = Voter()
    one = QuorumTold(voter)
    one.differs(fetch(10), [], 10)
    voter._member.role = None
    assert one.differs(ASKED, described(10, 10, 10), 50) == []
    assert one.differs(ASKED, described(10, 10, 10), 50) != []


@pytest.mark.parametrize(
    ("code", "is_wrong"), [(ErrorCode.NOT_LEADER_OR_FOLLOWER, False), (ErrorCode.NONE, True)]
)
def test_who_does_not_lead_tells_nothing_of_the_quorum_k16(code: ErrorCode, is_wrong: bool) -> None:
    voter: Any = Voter()
    voter._member.role = None
    told = DescribeQuorumResponse(code, None, 102, 5, -1, (), ())
    assert bool(QuorumTold(voter).differs(ASKED, [Reply(1, told)], 50)) is is_wrong


@pytest.mark.parametrize(("about", "expected"), [(About.DESCRIBING, True), (About.LEADING, False)])
def test_what_is_told_wrongly_is_a_violation_k16(about: About, expected: bool) -> None:
    one = QuorumIsTold()
    scene = Scene(one)
    node = scene.world.controllers[0]
    said = scene.violation(lambda: one.controller_differs(scene.seen, node, about, "tells"))
    assert (said is not None) is expected
