"""The active controller is killed before each event of a recovery: it ends, with the same winner (R60).

The core and its log are real; brokers are played by the test, which goes on as they would: they register,
heartbeat and answer until one leads. A killed controller takes the event with it that it was about to
handle; of records that were appended and not committed the next one has all, or none.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.events import AskBroker, EntriesCommitted, Event, LogInfoAnswered
from holdfast.controller.core.operators.operations import AlterConfig, ElectionType, ElectLeader
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.image import CLUSTER_RESOURCE
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.replica_log_info import (
    GetReplicaLogInfoResponse,
    LogInfoTopicResult,
    ReplicaLogInfo,
)
from tests.unit.controller.harness import Quorum, make_config
from tests.unit.controller.test_topics import create

TICK_MS = 500
#: 3 was fenced last and has lost its tail, 2 has everything, 1 left before them (B1)
LOGS = {1: (0, 40), 2: (1, 90), 3: (1, 50)}
STRATEGY = "unclean.recovery.strategy"


class Dead(Exception):
    """The request was lost with the controller."""


class Mortal(Quorum):
    """A quorum whose active controller is killed once, before event number `dies_at`."""

    def __init__(self, config: ControllerConfig, dies_at: int | None, loses_appends: bool) -> None:
        self.seen = 0
        self.dies_at = dies_at
        self.loses_appends = loses_appends
        super().__init__(config)

    def handle(self, event: Event, at_ms: int | None = None) -> None:
        self.seen += 1
        if self.seen != self.dies_at:
            super().handle(event, at_ms)
            return
        if isinstance(event, EntriesCommitted) and self.loses_appends:
            self.committed_offset = self.end_offset = event.entries[0].offset
            self.entries = [entry for entry in self.entries if entry.offset < self.end_offset]
        self.core = QuorumController(self.config, self.random)
        self.asked.clear()
        self.probes.clear()
        self.handle(EntriesCommitted(tuple(self.entries), self.committed_offset))
        self.elect()
        raise Dead


@dataclass
class Player:
    """A broker process, as far as the controller sees it."""

    is_up: bool = True
    is_registered: bool = True
    is_silent: bool = False


class Play:
    """A power cut, and brokers that come back until both partitions have a leader."""

    def __init__(self, strategy: str, dies_at: int | None = None, loses_appends: bool = False) -> None:
        properties = {
            "min_insync_replicas": "2",
            "broker_session_timeout_ms": "3000",
            "unclean_recovery_timeout_ms": "6000",
        }
        self.quorum = Mortal(make_config(**properties), None, loses_appends)
        self.quorum.start_brokers(*LOGS)
        self.players = {broker_id: Player() for broker_id in LOGS}
        self.configure(strategy)
        create(self.quorum, "t", -1, -1, (1, 2, 3), (3, 1, 2))
        for broker_id, player in self.players.items():
            player.is_up = False
            while broker_id in self.quorum.unfenced():
                self.tick()
        for player in self.players.values():
            player.is_up, player.is_registered = True, False
        self.quorum.seen, self.quorum.dies_at = 0, dies_at

    def configure(self, strategy: str) -> None:
        self.attempt(partial(self.quorum.request, AlterConfig(CLUSTER_RESOURCE, STRATEGY, strategy)))

    def run(self, each_tick: Callable[[], None] | None = None) -> list[int]:
        """Go on until there are leaders; who they are."""
        for _ in range(200):
            leaders = [partition.leader for partition in self.quorum.topic("t").partitions.values()]
            found = [leader for leader in leaders if leader is not None]
            if len(found) == len(leaders) and self.is_up_to_date():
                return found
            if each_tick is not None:
                each_tick()
            self.tick()
        raise AssertionError("it never ended")

    def is_up_to_date(self) -> bool:
        """All brokers are back, so no other one would have been elected a moment later."""
        return all(player.is_registered for player in self.players.values())

    def tick(self) -> None:
        """Each broker that is up says what it has to say, then the clock."""
        quorum = self.quorum
        quorum.now_ms += TICK_MS
        for broker_id, player in self.players.items():
            if player.is_up:
                say = quorum.heartbeat if player.is_registered else self._register
                self.attempt(partial(say, broker_id))
        questions = quorum.asked[:]
        quorum.asked.clear()
        for question in questions:
            if question.question_id and not self.players[question.broker_id].is_silent:
                self.attempt(partial(quorum.handle, self._reply(question)))
        self.attempt(partial(quorum.fire_timer, quorum.now_ms))

    def attempt(self, act: Callable[[], object]) -> None:
        """What dies with the controller is tried again in a later tick."""
        with contextlib.suppress(Dead):
            act()

    def _register(self, broker_id: int) -> None:
        # the answer may be lost, or come after the next controller has taken the registration in
        answer = self.quorum.register(broker_id, incarnation=100 + broker_id)
        self.players[broker_id].is_registered = answer.error_code == ErrorCode.NONE

    def _reply(self, question: AskBroker) -> LogInfoAnswered:
        image, (last_epoch, end_offset) = self.quorum.image, LOGS[question.broker_id]
        topics = tuple(
            LogInfoTopicResult(
                asked.topic_id,
                tuple(
                    ReplicaLogInfo(
                        index,
                        last_epoch,
                        image.topics[asked.topic_id].partitions[index].leader_epoch,
                        end_offset,
                        end_offset,
                        end_offset,
                        ErrorCode.NONE,
                        None,
                    )
                    for index in asked.partitions
                ),
            )
            for asked in question.request.topic_partitions
        )
        epoch = image.brokers[question.broker_id].broker_epoch
        response = GetReplicaLogInfoResponse(ErrorCode.NONE, None, epoch, False, topics)
        return LogInfoAnswered(question.broker_id, question.question_id, response)


def balanced(play: Play) -> list[int]:
    """All come back and tell."""
    return play.run()


def silent(play: Play) -> list[int]:
    """1 says nothing of its log; the last known ELR is enough at the timeout."""
    play.players[1].is_silent = True
    return play.run()


def aggressive(play: Play) -> list[int]:
    """Allowed once all brokers are back: all are asked at the same time."""
    while len(play.quorum.unfenced()) < len(LOGS):
        play.tick()
    play.configure("Aggressive")
    return play.run(lambda: play.configure("Aggressive"))


def by_hand(play: Play) -> list[int]:
    """An operator asks for the longest log, again and again until there are leaders."""

    def ask() -> None:
        for index in (0, 1):
            kind = ElectionType.LONGEST_LOG_BALANCED
            play.attempt(partial(play.quorum.request, ElectLeader(kind, "t", index)))

    return play.run(ask)


STORIES = {"Balanced": (balanced, silent), "None": (aggressive, by_hand)}
CASES = [(strategy, story) for strategy, stories in STORIES.items() for story in stories]


@pytest.mark.parametrize("loses_appends", [False, True], ids=["appends survive", "appends are lost"])
@pytest.mark.parametrize(("strategy", "story"), CASES, ids=lambda case: getattr(case, "__name__", case))
def test_a_recovery_ends_with_the_same_winner_whenever_the_controller_dies(
    strategy: str, story: Callable[[Play], list[int]], loses_appends: bool
) -> None:
    """R60, A-14: 2 has the log that ends last, of all that may be complete."""
    whole = Play(strategy)
    assert story(whole) == [2, 2]
    events = whole.quorum.seen
    assert events > 15
    for dies_at in range(1, events + 1):
        play = Play(strategy, dies_at, loses_appends)
        assert story(play) == [2, 2], f"killed before event {dies_at} of {events}"
        assert play.quorum.resignations == []
        assert play.quorum.replayed() == play.quorum.image
        assert play.quorum.core.recovery.count == 0
