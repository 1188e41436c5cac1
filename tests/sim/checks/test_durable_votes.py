"""What a voter says to others: promises that are not on its disk, and those that are (Q-9)."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.protocol.messages.quorum import BeginQuorumEpochRequest, VoteRequest, VoteResponse
from holdfast.raft.core.effects import Reply, Send
from holdfast.raft.core.quorum import QuorumState
from holdfast.sim.checks.observe.taps import TapRecord
from holdfast.sim.checks.observe.views import About
from holdfast.sim.checks.opinions.durable_votes import SpeechTap
from holdfast.sim.checks.properties.quorum import PromisesAreDurable
from tests.sim.checks.histories import Scene
from tests.sim.checks.test_quorum import answer, fetch


class Driver:
    """That of a voter with this on its disk."""

    def __init__(self, durable: QuorumState, asked: object = None) -> None:
        self._state_file = SimpleNamespace(_durable=durable)
        self._exchanges = {1: SimpleNamespace(message=asked)}

    def is_wrong(self, effect: Send | Reply) -> bool:
        """Whether something is wrong with it, when it is said now."""
        heard = TapRecord()
        SpeechTap(self, heard).sending(effect, None)  # type: ignore[arg-type]
        assert all(about is About.SPEAKING for about, _ in heard.differs)
        return bool(heard.differs)


@pytest.mark.parametrize(
    "effect",
    [
        Send(1, 102, VoteRequest("c", 5, 101, 102, 4, 10, False), 500),
        Send(1, 102, BeginQuorumEpochRequest("c", 101, 5, 102), 500),
        Send(1, 102, fetch(101, epoch=5).request, 500),
        Reply(1, answer(epoch=5)),
        Reply(1, VoteResponse(0, None, 5, -1, False)),
    ],
    ids=lambda one: type(getattr(one, "request", None) or one.response).__name__,
)
@pytest.mark.parametrize(("durable", "is_wrong"), [(4, True), (5, False), (6, False)])
def test_no_voter_shows_an_epoch_before_it_is_on_its_disk_q9(
    effect: Send | Reply, durable: int, is_wrong: bool
) -> None:
    assert Driver(QuorumState(durable)).is_wrong(effect) is is_wrong


@pytest.mark.parametrize(
    ("durable", "is_pre_vote", "granted", "is_wrong"),
    [
        (QuorumState(5), False, True, True),
        (QuorumState(5, 103), False, True, True),
        (QuorumState(5, 102), False, True, False),
        (QuorumState(5, None, 103), False, True, False),
        (QuorumState(6), False, True, False),
        (QuorumState(5), True, True, False),
        (QuorumState(5), False, False, False),
    ],
    ids=[
        "no vote",
        "another one",
        "this one",
        "the epoch has its leader",
        "it is over",
        "a pre-vote",
        "a refusal",
    ],
)
def test_votes_are_told_when_they_are_on_disk_q9(
    durable: QuorumState, is_pre_vote: bool, granted: bool, is_wrong: bool
) -> None:
    driver = Driver(durable, VoteRequest("c", 5, 102, 101, 4, 10, is_pre_vote))
    assert driver.is_wrong(Reply(1, VoteResponse(0, None, 5, -1, granted))) is is_wrong


def test_the_property_tells_of_it() -> None:
    one = PromisesAreDurable()
    scene = Scene(one)
    node: Any = scene.world.controllers[0]
    said = scene.violation(lambda: one.controller_differs(scene.seen, node, About.SPEAKING, "it lies"))
    assert said == f"{one.name}: {node.name}: it lies"
    assert not scene.violation(lambda: one.controller_differs(scene.seen, node, About.LEADING, "it lies"))
