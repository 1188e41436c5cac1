"""The second opinion on sessions: what a controller does with brokers, and what it should do."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from holdfast.controller.core.brokers import cluster_control
from holdfast.controller.core.events import ConnectionClosed, Probe, Probed, RequestReceived, Respond, Tick
from holdfast.metadata.image import MetadataImage, TopicImage
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    ListenerEndpoint,
    OfflineTopic,
)
from holdfast.sim.checks.opinions.broker_sessions import BrokerSessions
from tests.sim.checks.histories import TOPIC_ID, image, row

SESSION_MS = 1_000
#: broker 1 leads t-0, of brokers 1 to 3
CALM = image(row=row())


class Controller:
    """One that does as it is told: it has another image, or says something."""

    def __init__(self, begins_with: MetadataImage) -> None:
        self.config = SimpleNamespace(session_timeout_ms=SESSION_MS, cluster_id="c", voters={101: None})
        self.is_active = True
        self.latest = self.committed = begins_with
        self._sessions = BrokerSessions(self)  # type: ignore[arg-type]
        #: what is wrong with what it has done
        self.wrong: list[str] = []
        self.does(0, Tick())

    def does(
        self, now_ms: int, event: Any, after: MetadataImage | None = None, effects: Sequence[Any] = ()
    ) -> None:
        before, self.latest = self.latest, self.latest if after is None else after
        self.wrong += self._sessions.differs(event, before, effects, now_ms)


def beat(broker_id: int = 1, connection_id: int = 7, offset: int = 99, **given: Any) -> RequestReceived:
    """A heartbeat of epoch = id."""
    usual: dict[str, Any] = {"want_fence": False, "want_shutdown": False, "offline": ()}
    request = BrokerHeartbeatRequest(broker_id, given.pop("epoch", broker_id), offset, **{**usual, **given})
    return RequestReceived(5, connection_id, "CONTROLLER", request)


def leaving(*broker_ids: int) -> Any:
    """They shut down, and no broker leads t-0."""
    brokers = CALM.brokers
    for one in broker_ids:
        brokers = brokers.set(one, replace(brokers[one], in_controlled_shutdown=True))
    partitions = image(row=row(leader=None, isr=(), last_known_leader=1))
    return replace(partitions, brokers=brokers)


def gone(broker_id: int) -> Any:
    """It was let go."""
    found = leaving(broker_id)
    row = replace(found.brokers[broker_id], is_fenced=True)
    return replace(found, brokers=found.brokers.set(broker_id, row))


def fenced(*broker_ids: int) -> Any:
    """Of a calm cluster."""
    return image(broker_ids, row=row())


@pytest.mark.parametrize(
    ("before", "event", "after", "wrong"),
    [
        pytest.param(fenced(1), beat(), CALM, "", id="it is unfenced"),
        pytest.param(fenced(1), beat(), fenced(1), "is fenced and should be unfenced", id="it is not"),
        pytest.param(fenced(1), beat(want_fence=True), fenced(1), "", id="it wants to stay fenced"),
        pytest.param(
            fenced(1), beat(want_fence=True), CALM, "should be fenced", id="it is unfenced too early"
        ),
        pytest.param(fenced(1), beat(offset=1), CALM, "should be fenced", id="it has not read its record"),
        pytest.param(fenced(1), beat(want_shutdown=True), CALM, "should be fenced", id="it stops"),
        pytest.param(fenced(1), beat(epoch=9), fenced(1), "", id="another incarnation"),
        pytest.param(gone(1), beat(), leaving(1), "", id="it has left, and this is of before"),
        pytest.param(gone(1), beat(), CALM, "should be leaving", id="who leaves does not come back"),
        pytest.param(gone(1), beat(want_fence=True), gone(1), "", id="it has left"),
        pytest.param(CALM, beat(), CALM, "", id="nothing changes"),
        pytest.param(CALM, beat(), fenced(1), "should be unfenced", id="it is fenced for its heartbeat"),
        pytest.param(CALM, beat(want_fence=True), fenced(1), "", id="it wants to be fenced"),
        pytest.param(CALM, beat(want_shutdown=True), leaving(1), "", id="it leads, and begins to leave"),
        pytest.param(CALM, beat(want_shutdown=True), fenced(1), "should be leaving", id="it leads, and goes"),
        pytest.param(CALM, beat(2, want_shutdown=True), fenced(2), "", id="it leads nothing, and goes"),
        pytest.param(
            CALM,
            beat(2, want_shutdown=True),
            leaving(2),
            "should be fenced",
            id="it leads nothing, and waits",
        ),
    ],
)
def test_a_heartbeat_leads_where_it_should_r23(
    before: MetadataImage, event: RequestReceived, after: MetadataImage, wrong: str
) -> None:
    controller = Controller(before)
    controller.does(5, event, after)
    assert bool(controller.wrong) == bool(wrong)
    assert wrong in "".join(controller.wrong)


@pytest.mark.parametrize(
    ("told", "is_let_go", "wrong"),
    [
        ((100, 100), True, False),
        ((100, 99), True, True),
        ((100, 99), False, False),
        ((100, 100), False, True),
    ],
)
@pytest.mark.parametrize("is_new", [False, True])
def test_who_leaves_goes_when_all_others_have_heard_of_it_r22(
    told: tuple[int, int], is_let_go: bool, wrong: bool, is_new: bool
) -> None:
    """The log ends at 100 when it begins to leave, or when a new controller finds it leaving."""
    controller = Controller(leaving(1) if is_new else CALM)
    if not is_new:
        controller.does(1, beat(1, want_shutdown=True), leaving(1))
    controller.does(2, beat(2, offset=told[0]))
    controller.does(3, beat(3, offset=told[1]))
    gone = image((1,), row=row(leader=None, isr=(), last_known_leader=1))
    controller.does(4, beat(1, want_shutdown=True), gone if is_let_go else None)
    assert bool(controller.wrong) is wrong


def test_when_a_new_controller_has_more_to_write_it_is_not_known_who_may_go_k21() -> None:
    controller = Controller(leaving(1))
    controller.is_active = False
    controller.does(1, Tick())
    controller.is_active, controller.committed = True, CALM
    controller.does(2, Tick())
    controller.does(3, beat(1, want_shutdown=True))
    assert not controller.wrong


def test_what_is_told_of_failed_log_dirs_is_noted_r27() -> None:
    told = beat(1, offline=(OfflineTopic(TOPIC_ID, (0, 8)),))
    controller = Controller(CALM)
    controller.does(1, told)
    assert "has told of [0], in vain" in controller.wrong.pop()
    one = replace(CALM.brokers[1], offline_replicas=CALM.brokers[1].offline_replicas.set((TOPIC_ID, 0), None))
    controller.does(2, told, replace(CALM, brokers=CALM.brokers.set(1, one)))
    assert not controller.wrong


def all_but(silent: int, controller: Controller, *times_ms: int) -> None:
    """The others are heard of, and the timer fires, at each of these times."""
    for now_ms in times_ms:
        for one in {1, 2, 3} - {silent}:
            controller.does(now_ms, beat(one, connection_id=one))
        controller.does(now_ms, Tick())


@pytest.mark.parametrize(("silent_ms", "wrong"), [(999, "999 ms after its last heartbeat"), (1_000, "")])
def test_no_broker_is_fenced_before_the_session_ends_r25(silent_ms: int, wrong: str) -> None:
    controller = Controller(CALM)
    controller.does(100, beat(2))
    all_but(2, controller, *range(200, 1_000, 100), 1_050)
    controller.does(100 + silent_ms, Tick(), fenced(2))
    assert wrong in "".join(controller.wrong)
    assert bool(controller.wrong) == bool(wrong)


@pytest.mark.parametrize(("until_ms", "is_wrong"), [(1_600, False), (1_700, True)])
def test_a_broker_that_is_silent_for_long_is_fenced_r25(until_ms: int, is_wrong: bool) -> None:
    controller = Controller(CALM)
    controller.does(100, beat(2))
    all_but(2, controller, *range(200, until_ms + 1, 100))
    assert bool(controller.wrong) is is_wrong
    assert not is_wrong or "broker 2 was not heard of for 1600 ms" in controller.wrong[0]


def test_a_controller_that_stood_still_waits_for_the_heartbeats_in_its_sockets_d7() -> None:
    for is_early in (True, False):
        controller = Controller(CALM)
        controller.does(100, beat(2))
        all_but(2, controller, *range(200, 900, 100))
        if is_early:
            controller.does(1_300, Tick(), fenced(2))
        else:  # it extends the sessions first
            controller.does(1_300, Tick())
            controller.does(1_301, Tick(), fenced(2))
        assert bool(controller.wrong) is is_early
        assert not is_early or "stood still for 500 ms" in controller.wrong[0]


def test_sessions_that_were_extended_end_later_also_when_nothing_happens_until_then_d7() -> None:
    controller = Controller(CALM)
    controller.does(100, beat(2))
    all_but(2, controller, *range(200, 900, 100))
    controller.does(1_050, Tick())
    controller.does(1_300, Tick(), fenced(2))
    assert not controller.wrong


def test_who_stands_still_is_not_late_for_what_it_could_not_see_d7() -> None:
    controller = Controller(CALM)
    controller.does(100, beat(2))
    controller.does(4_000, beat(1))
    controller.does(4_000, Tick())
    assert not controller.wrong


PROBE = Probe(1, 1, 0, 0, "b1", 9092)


@pytest.mark.parametrize(
    ("connection_id", "before", "effects", "is_wrong"),
    [(7, CALM, [PROBE], False), (7, CALM, [], True), (8, CALM, [], False)],
    ids=["the controller looks", "it does not look", "another connection"],
)
def test_a_lost_connection_is_looked_after_d9(
    connection_id: int, before: MetadataImage, effects: list[Any], is_wrong: bool
) -> None:
    controller = Controller(before)
    controller.does(1, beat())
    controller.does(2, ConnectionClosed(connection_id), effects=effects)
    assert bool(controller.wrong) is is_wrong


@pytest.mark.parametrize(
    ("heard_since", "probed", "is_gone"),
    [
        (False, Probed(1, 1, 0, True), True),
        (False, Probed(1, 1, 0, False), False),
        (False, Probed(1, 4, 0, True), False),
        (True, Probed(1, 1, 0, True), False),
    ],
    ids=["refused", "not refused", "of another incarnation", "heard of since"],
)
@pytest.mark.parametrize("is_fenced", [False, True])
def test_only_a_refusal_is_evidence_d9(
    heard_since: bool, probed: Probed, is_gone: bool, is_fenced: bool
) -> None:
    controller = Controller(CALM)
    controller.does(1, beat())
    controller.does(2, ConnectionClosed(7), effects=[PROBE])
    if heard_since:
        controller.does(3, beat(connection_id=8))
    controller.does(4, probed, fenced(1) if is_fenced else None)
    assert bool(controller.wrong) is (is_gone != is_fenced)


REGISTRATION = BrokerRegistrationRequest(
    1, "c", bytes(15) + b"n", (ListenerEndpoint("CLIENT", "b1", 9092),), None, (), (b"dir of broker  1",), -1
)


@pytest.mark.parametrize(
    ("before", "previous_epoch", "is_wrong"),
    [(CALM, 1, True), (CALM, -1, False), (fenced(1), -1, True)],
    ids=["it proves a clean stop", "its session may live", "it is fenced"],
)
def test_only_a_session_that_may_live_stands_in_the_way_of_a_registration_r30(
    before: MetadataImage, previous_epoch: int, is_wrong: bool
) -> None:
    controller = Controller(before)
    incarnation_id = bytes(15) + b"n"
    asked = replace(REGISTRATION, incarnation_id=incarnation_id, previous_broker_epoch=previous_epoch)
    event = RequestReceived(5, 7, "CONTROLLER", asked)
    controller.does(1, event)
    assert bool(controller.wrong) is is_wrong
    controller.wrong.clear()
    new = replace(CALM.brokers[1], broker_epoch=100, incarnation_id=incarnation_id, is_fenced=True)
    controller.does(2, event, replace(before, brokers=before.brokers.set(1, new)))
    assert not controller.wrong


@pytest.mark.parametrize(
    "asked",
    [
        replace(REGISTRATION, broker_id=9, cluster_id="another"),
        replace(REGISTRATION, broker_id=101),
        replace(REGISTRATION, broker_id=-1),
        replace(REGISTRATION, broker_id=9, listeners=()),
        replace(REGISTRATION, broker_id=9, log_dirs=(b"dir of broker 01",)),
    ],
    ids=["of another cluster", "a controller", "no id", "without address", "with another's log dir"],
)
def test_what_is_no_broker_of_the_cluster_is_not_registered_r30(asked: BrokerRegistrationRequest) -> None:
    taken = replace(fenced(1).brokers[1], log_dirs=(b"dir of broker 01",))
    before = replace(CALM, brokers=CALM.brokers.set(1, taken))
    controller = Controller(before)
    event = RequestReceived(5, 7, "CONTROLLER", asked)
    controller.does(1, event)
    assert not controller.wrong
    new = replace(CALM.brokers[1], broker_id=asked.broker_id, incarnation_id=asked.incarnation_id)
    controller.does(2, event, replace(before, brokers=before.brokers.set(asked.broker_id, new)))
    assert "no broker of this cluster is registered (R30)" in controller.wrong[0]


def test_a_request_that_had_no_room_changes_nothing() -> None:
    controller = Controller(fenced(1))
    answer = BrokerHeartbeatResponse(ErrorCode.REQUEST_LIMIT_REACHED, "later", False, True, False)
    controller.does(1, beat(), effects=[Respond(5, answer)])
    assert not controller.wrong


@pytest.mark.parametrize(
    ("before", "event", "after", "told", "is_wrong"),
    [
        pytest.param(fenced(1), beat(), CALM, (False, False), False, id="it is told that it is unfenced"),
        pytest.param(fenced(1), beat(), CALM, (True, False), True, id="it is told that it is fenced"),
        pytest.param(CALM, beat(want_shutdown=True), leaving(1), (False, False), False, id="it must wait"),
        pytest.param(CALM, beat(want_shutdown=True), leaving(1), (False, True), True, id="it goes too early"),
        pytest.param(CALM, beat(2, want_shutdown=True), fenced(2), (True, True), False, id="it may go"),
        pytest.param(
            CALM, beat(2, want_shutdown=True), fenced(2), (True, False), True, id="it is not told so"
        ),
        pytest.param(fenced(1), beat(want_fence=True), fenced(1), (True, False), False, id="it starts"),
        pytest.param(fenced(1), beat(want_fence=True), fenced(1), (True, True), True, id="it does not stop"),
    ],
)
@pytest.mark.parametrize("waits", [False, True])
def test_a_heartbeat_is_answered_with_what_it_has_led_to_r23(
    before: MetadataImage,
    event: RequestReceived,
    after: MetadataImage,
    told: tuple[bool, bool],
    is_wrong: bool,
    waits: bool,
) -> None:
    """At once, or when it is committed."""
    answer = Respond(event.request_id, BrokerHeartbeatResponse(ErrorCode.NONE, None, True, *told))
    controller = Controller(before)
    controller.does(5, event, after, () if waits else (answer,))
    if waits:
        controller.does(6, Tick(), after, (answer,))
    assert ["is answered with" in one for one in controller.wrong] == [True] * is_wrong


def test_a_topic_that_is_deleted_is_no_seat_that_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """R22: the others have to know what made the last leader move, and nothing later."""
    monkeypatch.setattr(cluster_control, "SLICE_RECORDS_MAX", 1)
    other = TopicImage("u", b"u" * 16, Map({0: row(leader=2, isr=(1, 2))}))

    def with_other(image: MetadataImage, offset: int) -> MetadataImage:
        topics = image.topics.set(other.topic_id, other)
        return replace(
            image, topics=topics, topic_ids=image.topic_ids.set("u", other.topic_id), offset=offset
        )

    begun = leaving(1)
    controller = Controller(with_other(CALM, 40))
    for broker_id in (2, 3):
        controller.does(1, beat(broker_id, connection_id=broker_id, offset=99))
    controller.does(2, beat(1, want_shutdown=True), with_other(begun, 50))
    controller.does(3, Tick(), replace(begun, offset=200))
    fenced = begun.brokers.set(1, replace(begun.brokers[1], is_fenced=True))
    controller.does(4, beat(1, want_shutdown=True), replace(begun, brokers=fenced, offset=201))
    assert controller.wrong == []
