"""Properties of answers and of requests that wait: a history that breaks each, and the one beside it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.core.byte_rate import RateWindows
from holdfast.broker.core.events import AnswerFetch, ReadRow
from holdfast.broker.core.replicas.replication_quota import ReplicationQuota
from holdfast.broker.core.requests.fetch_path import FetchPath
from holdfast.broker.core.requests.producer_ids import EPOCH_MAX
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import (
    CONSUMER_REPLICA_ID,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from holdfast.protocol.messages.producer_ids import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from holdfast.sim.checks.observe.facts import ConsumerAnswered, WriteRefused
from holdfast.sim.checks.observe.taps import BrokerTap, TapRecord
from holdfast.sim.checks.observe.views import Property, ReplicaView
from holdfast.sim.checks.properties import answers
from holdfast.sim.cluster.nodes import State
from tests.sim.checks.histories import TOPIC_ID, Scene, before, leads, mark, view_of
from tests.unit.broker.core_harness import KEY, CoreHarness, batch, partition

BATCHES = [mark(0, 4), mark(1, 4), mark(2, 5)]


def is_broken(one: Property, tell: Callable[[Scene], None]) -> bool:
    """Whether the property speaks up, under its own name."""
    scene = Scene(one)
    said = scene.violation(lambda: tell(scene))
    assert said is None or said.startswith(one.name), said
    return said is not None


@pytest.mark.parametrize(
    ("offset", "epoch", "counts_flushed", "flushed", "expected"),
    [
        (2, 5, False, 0, False),
        (3, 5, False, 0, True),
        (1, 5, False, 0, True),
        (2, 5, True, 2, True),
        (2, 5, True, 3, False),
        (3, 4, False, 0, False),
    ],
    ids=["there", "not there", "of another epoch", "not durable", "durable", "of a former leader"],
)
def test_what_acks_one_was_told_is_in_the_leaders_log_d6(
    offset: int, epoch: int, counts_flushed: bool, flushed: int, expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        view = leads(view_of(scene, 1, BATCHES))
        view.replica.counts_flushed = counts_flushed
        view.log.flushed_offset = flushed  # type: ignore[misc]
        scene.property.acknowledged_by_leader(scene.seen, view, offset, epoch)

    assert is_broken(answers.LeaderAckIsInLog(), tell) is expected


NEW = InitProducerIdRequest(-1, -1)


@pytest.mark.parametrize(
    ("asked", "given", "expected"),
    [
        (NEW, (8, 0), False),
        (NEW, (7, 0), True),
        (NEW, (8, 1), True),
        (InitProducerIdRequest(7, 3), (7, 4), False),
        (InitProducerIdRequest(7, 3), (7, 3), True),
        (InitProducerIdRequest(7, 3), (8, 0), True),
        (InitProducerIdRequest(7, EPOCH_MAX), (8, 0), False),
        # of one that was lost on the way, before
        (InitProducerIdRequest(9, 0), (9, 1), False),
    ],
)
def test_no_producer_is_given_what_another_has_d12(
    asked: InitProducerIdRequest, given: tuple[int, int], expected: bool
) -> None:
    """Whichever broker they ask; who asks for the next epoch twice is given the same twice."""

    def tell(scene: Scene) -> None:
        one, two = scene.world.brokers[:2]
        for broker in (one, two):
            broker.process = scene.world.loop.process(f"{broker.name}.1")
        scene.property.producer_id_given(scene.seen, one, NEW, granted(7, 0))
        for _ in range(2 if 0 <= asked.producer_epoch < EPOCH_MAX else 1):
            scene.property.producer_id_given(scene.seen, two, asked, granted(*given))

    assert is_broken(answers.ProducerIdsAreGivenOnce(), tell) is expected


@pytest.mark.parametrize(
    ("wanted", "room", "got", "code", "expected"),
    [
        (10, 100, b"", 0, True),
        (10, 100, b"all", 0, False),
        (0, 100, b"", 0, False),
        (10, 0, b"", 0, False),
        (10, 100, b"", ErrorCode.KAFKA_STORAGE_ERROR, False),
    ],
    ids=["nothing", "something", "there is nothing", "nothing is wanted", "it cannot be read"],
)
def test_a_consumer_gets_what_there_is_r55(
    wanted: int, room: int, got: bytes, code: int, expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        row = FetchPartitionResponse(TOPIC_ID, 0, code, 3, 0, -1, None, 1, 5, memoryview(got))
        response = FetchResponse(0, None, (row,))
        heard = TapRecord()
        decided = ReadRow(TOPIC_ID, 0, 0, 3, 0, -1, None, 1, 5, 2, 3, wanted)
        BrokerTap(CoreHarness().core, heard).sending(AnswerFetch(1, (decided,), room), response)
        ((_, fact, (_, asked, told)),) = heard.facts
        assert fact is ConsumerAnswered
        scene.property.consumer_answered(scene.seen, view_of(scene, 1).broker, asked, told)

    assert is_broken(answers.ReadersGetWhatThereIs(), tell) is expected


def granted(producer_id: int, producer_epoch: int) -> InitProducerIdResponse:
    """An answer without error."""
    return InitProducerIdResponse(ErrorCode.NONE, None, producer_id, producer_epoch)


def with_core(view: ReplicaView, *, is_settling_due: bool = False) -> FetchPath:
    """A broker that answers fetches and questions for this replica."""
    path = FetchPath({view.replica.key: view.replica}, 10, 1000, ReplicationQuota(1, RateWindows(11, 1000)))
    server = SimpleNamespace(pump=SimpleNamespace(is_settling_due=is_settling_due))
    node: Any = SimpleNamespace(core=SimpleNamespace(fetch_path=path), server=server)
    view.broker.node = node
    view.broker.state = State.RUNNING
    return path


@pytest.mark.parametrize("high_watermark", [1, 2, 3], ids=["below the epoch", "at its start", "above"])
def test_a_leader_tells_the_offsets_that_it_knows_a6(high_watermark: int) -> None:
    def tell(scene: Scene) -> None:
        view = leads(view_of(scene, 1, BATCHES, high_watermark=high_watermark), start_offset=2)
        with_core(view)
        scene.property.replica_changed(scene.seen, view, before(view, leadership=None), [])

    assert not is_broken(answers.OffsetsAreTold(), tell)


def test_a_leader_that_tells_a_lagging_high_watermark_breaks_a6() -> None:
    def tell(scene: Scene) -> None:
        view = leads(view_of(scene, 1, BATCHES, high_watermark=1), start_offset=2)
        path = with_core(view)
        assert view.leadership is not None
        view.leadership.start_offset = 1  # what it is asked for counts from here
        told = path.list_offsets
        view.leadership.start_offset = 2

        def too_early(reply_to: Any, request: Any) -> Any:
            assert view.leadership is not None
            view.leadership.start_offset = 1
            answer = told(reply_to, request)
            view.leadership.start_offset = 2
            return answer

        path.list_offsets = too_early  # type: ignore[method-assign]
        scene.property.replica_changed(scene.seen, view, before(view, leadership=None), [])

    assert is_broken(answers.OffsetsAreTold(), tell)


def test_the_end_of_an_epoch_is_where_the_next_one_begins_r80() -> None:
    def tell(scene: Scene) -> None:
        view = leads(view_of(scene, 1, BATCHES, high_watermark=3), start_offset=2)
        with_core(view)
        log: Any = view.log
        log.end_offset_for_epoch = lambda epoch: (epoch, 3)
        scene.property.replica_changed(scene.seen, view, before(view, leadership=None), [])

    assert is_broken(answers.OffsetsAreTold(), tell)


def fetch(offset: int) -> FetchRequest:
    row = FetchPartition(TOPIC_ID, 0, 5, offset, -1, -1, 100)
    return FetchRequest(None, CONSUMER_REPLICA_ID, -1, 500, 1, 1000, (row,), 0, -1, ())


@pytest.mark.parametrize("timeout_ms", [1_000, 5_000])
def test_writes_that_are_told_to_be_late_are_heard_of_a18(timeout_ms: int) -> None:
    harness = CoreHarness().join(partition(1))
    heard = TapRecord()
    harness.taps.append(BrokerTap(harness.core, heard))
    written = harness.produce(batch(), timeout_ms=timeout_ms)
    harness.tick(2_000)
    if timeout_ms > 2_000:
        assert not [one for one in heard.facts if one[1] is WriteRefused]
        return
    assert harness.row(written)[0] == "REQUEST_TIMED_OUT"
    (refused,) = (one for one in heard.facts if one[1] is WriteRefused)
    assert refused == (KEY, WriteRefused, (-1, ErrorCode.REQUEST_TIMED_OUT))
