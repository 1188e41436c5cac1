"""The second opinion on what controllers do by themselves: unclean elections, balance of leaders (R16)."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from holdfast.controller.core.decisions import Cause, CauseKind, Decision
from holdfast.controller.core.events import Tick
from holdfast.controller.core.partitions import leader_balance
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.controller.core.partitions.elr import SetsRule
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.checks.opinions.periodic_elections import Passes
from tests.sim.checks.histories import TOPIC_ID, image, row

KEY = (TOPIC_ID, 0)
UNCLEAN_MS, BALANCE_MS = 500, 1_000
LEADERLESS = {"leader": None, "isr": (), "last_known_leader": 1}


def cluster(
    *rows: PartitionRegistration, fenced: tuple[int, ...] = (), unclean: str | None = "true", elr: bool = True
) -> MetadataImage:
    """Partitions from t-0 on."""
    first: MetadataImage = image(fenced, elr=elr, row=rows[0])
    values: Map[str, str] = Map({} if unclean is None else {"unclean.leader.election.enable": unclean})
    topic = replace(first.topics[TOPIC_ID], partitions=Map(dict(enumerate(rows))))
    leaderless = {PartitionId(TOPIC_ID, index): None for index, one in enumerate(rows) if one.leader is None}
    return replace(
        first,
        topics=Map({TOPIC_ID: topic}),
        configs=Map({(RESOURCE_TOPIC, "t"): values}),
        leaderless=Map(leaderless),
    )


class Controller:
    """One that has what it is told to have."""

    def __init__(
        self, latest: MetadataImage, *, manager: bool = False, interval_ms: int = BALANCE_MS
    ) -> None:
        self.latest = latest
        self.is_active = True
        self.decisions: list[Any] = []
        self.config = SimpleNamespace(
            recovery_manager_enabled=manager,
            unclean_election_interval_ms=min(interval_ms, UNCLEAN_MS) if interval_ms < 2_000 else interval_ms,
            rebalance_interval_ms=interval_ms,
            imbalance_percentage=50,
        )
        self._passes = Passes(self)  # type: ignore[arg-type]

    def wrong(self, now_ms: int, event: Any = None) -> str:
        """What is said of it by then."""
        return "; ".join(self._passes.differs(event or Tick(), now_ms))

    def gives_back(self, offset: int, count: int) -> None:
        """So many leaderships of 1."""
        cause = Cause(CauseKind.LEADER_BALANCE)
        decision = Decision(cause, ElectionReason.PREFERRED, (), SetsRule.KEPT_BELOW_MIN_ISR)
        one = SimpleNamespace(offset=offset, decision=decision, after=row())
        self.decisions += [one] * count


def overdue(controller: Controller, interval_ms: int) -> bool:
    """Whether something is said once the interval is over, and nothing before."""
    assert not controller.wrong(100)
    assert not controller.wrong(100 + interval_ms)
    return bool(controller.wrong(101 + interval_ms))


@pytest.mark.parametrize(
    ("given", "manager", "expected"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"elr": False}, True, True),
        ({"unclean": "false"}, False, False),
        ({"unclean": None}, False, False),
        ({"fenced": (1, 2, 3)}, False, False),
        ({"fenced": (1, 2)}, False, True),
    ],
)
def test_partitions_that_may_have_any_leader_get_one_within_an_interval_r16(
    given: dict[str, Any], manager: bool, expected: bool
) -> None:
    controller = Controller(cluster(row(**LEADERLESS), **given), manager=manager)
    assert overdue(controller, UNCLEAN_MS) is expected


@pytest.mark.parametrize(
    ("lost", "fenced", "expected"),
    [
        ({"leader": 2}, (), True),
        ({"leader": 1}, (), False),
        ({"leader": 2, "isr": (2, 3)}, (), False),
        ({"leader": 2}, (1,), False),
        (
            {
                "leader": 2,
                "replicas": (1, 2, 3),
                "adding_replicas": (3,),
                "isr": (1, 2),
                "original_replicas": (1, 2),
            },
            (),
            False,
        ),
    ],
    ids=["others lead", "it leads", "it is not in sync", "it is away", "it is being moved"],
)
def test_preferred_replicas_lead_again_within_an_interval_r16(
    lost: dict[str, Any], fenced: tuple[int, ...], expected: bool
) -> None:
    assert overdue(Controller(cluster(row(**lost), fenced=fenced)), BALANCE_MS) is expected


@pytest.mark.parametrize(("missed", "expected"), [(1, False), (2, True)])
def test_leaderships_are_given_back_once_many_are_missed_r16(missed: int, expected: bool) -> None:
    """More than half of three, that is, with 50 percent."""
    rows = [row(leader=2 if index < missed else 1) for index in range(3)]
    assert overdue(Controller(cluster(*rows)), BALANCE_MS) is expected


def test_what_has_no_room_in_a_pass_has_it_in_one_of_the_next_r16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_balance, "PASS_MAX", 1)
    rows = [row(leader=2) for _ in range(3)]
    assert overdue(Controller(cluster(*rows)), 3 * BALANCE_MS)


def test_time_runs_from_when_it_became_possible() -> None:
    away, there = (cluster(row(leader=2), fenced=one) for one in ((1,), ()))
    controller = Controller(away)
    assert not controller.wrong(0)
    controller.latest = there
    assert not controller.wrong(5_000)
    assert not controller.wrong(6_000)
    assert controller.wrong(6_001)


def test_a_new_controller_has_an_interval_of_its_own() -> None:
    controller = Controller(cluster(row(leader=2)))
    assert not controller.wrong(0)
    controller.is_active = False
    assert not controller.wrong(5_000)
    controller.is_active = True
    assert not controller.wrong(5_500)
    assert controller.wrong(6_501)


def test_only_its_timer_shows_that_it_does_nothing() -> None:
    controller = Controller(cluster(row(leader=2)))
    assert not controller.wrong(0, "a request")
    assert not controller.wrong(9_000, "a request")


def test_intervals_that_no_story_lasts_are_not_looked_at() -> None:
    assert not overdue(Controller(cluster(row(leader=2)), interval_ms=300_000), 300_000)


@pytest.mark.parametrize(
    ("count", "again_ms", "said"),
    [
        (2, None, ""),
        (1, None, "missed 1 of 3"),
        (2, BALANCE_MS, ""),
        (2, BALANCE_MS - 1, "moved again after 999 ms"),
    ],
)
def test_leaderships_are_moved_only_with_need_and_once_an_interval_r16(
    count: int, again_ms: int | None, said: str
) -> None:
    controller = Controller(cluster(row(), row(), row()))
    assert not controller.wrong(0)
    controller.gives_back(7, count)
    controller.latest = cluster(row(), row(), row())
    wrong = controller.wrong(100)
    if again_ms is not None:
        controller.gives_back(8, count)
        controller.latest = cluster(row(), row(), row())
        wrong += controller.wrong(100 + again_ms)
    assert bool(wrong) is bool(said)
    assert said in wrong
