"""What only some stories have besides is really played: short logs, readers that seek, remade topics."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import parse_request
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import FrameDecoder, FrameError
from holdfast.protocol.messages import APIS
from holdfast.protocol.schema.fields import SchemaError, decode_message
from holdfast.sim.campaign.run import run
from holdfast.sim.campaign.run_spec import RunTemplate
from holdfast.sim.checks.all import all_properties
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property
from holdfast.sim.cluster.world import ClusterSpec, World, logs_of
from holdfast.sim.faults.table import Plan
from holdfast.sim.load.clients import _ECHO_ONE_IN, REMADE, Load, first_place_of, partition_at
from holdfast.sim.load.invalid_requests import InvalidRequest, InvalidRequestClient
from holdfast.sim.machine.choices import Choices
from holdfast.sim.machine.loop import make_loop
from holdfast.sim.machine.runtime import DelayedClock, HandlerDelay

SHAPE = replace(ClusterSpec(), voters=1, partitions=2, send_gap_ms=100)


@contextmanager
def played(
    seed: str, shape: ClusterSpec, seconds: float, *more: Property
) -> Iterator[tuple[World, Observer]]:
    """A world without faults, with every property looked at, after so many seconds of load."""
    world = World(shape, Choices(seed))
    observer = Observer(world, [*all_properties(), *more])
    with logs_of(world):
        world.boot()
        world.start_load()
        world.pass_time(seconds * 1000)
        yield world, observer
        world.close()


@pytest.mark.slow
def test_the_beginning_of_short_logs_is_deleted_on_every_broker() -> None:
    with played("1", replace(SHAPE, retention=True), 8) as (world, _):
        for broker in world.brokers:
            assert broker.node is not None
            logs = broker.node.log_manager.logs.values()
            assert max(log.log_start_offset for log in logs) > 0


@pytest.mark.slow
def test_a_reader_that_seeks_goes_to_both_ends_and_back() -> None:
    with played("2", replace(SHAPE, wanderers=2), 8) as (world, _):
        found = [span for span in world.read_spans if span.polled]
        assert {span.goes_to_end for span in found} == {False, True}
        assert any(span.sought is None for span in found)
        assert any(span.sought == 0 for span in found)
        assert any(span.sought for span in found)


@pytest.mark.slow
def test_each_remade_topic_is_one_of_its_own_and_forgotten_with_it() -> None:
    with played("3", replace(SHAPE, remakes=True), 20) as (world, observer):
        assert observer._remade_count > 3
        known = [place for place in observer.ghosts if partition_at(place).topic == REMADE]
        assert len({place // 1000 for place in known}) <= 1
        assert set(observer.replicas) == set(observer.ghosts)
        assert observer.topics.keys() <= set(observer.image.topics)
        assert world.load.acknowledged_batches > 0


def test_places_of_remade_topics_do_not_meet() -> None:
    assert first_place_of("t2", 5) == 2000
    assert first_place_of("x1", 5) is None
    places = [first_place_of(REMADE, count) for count in range(3)]
    assert len(set(places)) == 3
    assert {partition_at(place or 0).topic for place in places} == {REMADE}


@pytest.mark.slow
def test_an_intruder_is_refused_by_every_kind_of_node_and_disturbs_no_client() -> None:
    refused: list[InvalidRequest] = []

    class Listener(Property):
        name = "listener"

        def intruded(self, seen: Observer, intrusion: InvalidRequest) -> None:
            refused.append(intrusion)

    shape = replace(SHAPE, intrudes=True, voters=3)
    with played("1", shape, 20, Listener()) as (world, _):
        leaders = {row.leader_epoch for _, row in world.partitions()}
        assert leaders == {0}
        active = world.active_controller()
        assert active is not None
        assert active.server is not None
        assert active.server.driver.raft_epoch == 1
    whats = {intrusion.what for intrusion in refused}
    assert len(whats) > 15
    assert {intrusion.host[0] for intrusion in refused} == {"b", "c"}
    assert all(intrusion.answered - {ErrorCode.NONE} for intrusion in refused)


def test_noise_asks_for_nothing_that_changes_anything() -> None:
    one = InvalidRequestClient(Load("", [0]), Choices("noise").stream("intruder"), lambda: None)
    assert one.known() is None
    sent = {one.noise() for _ in range(300)}
    assert len(sent) > 150
    asked: set[ApiKey] = set()
    for data in sent:
        with suppress(FrameError, SchemaError):
            for frame in FrameDecoder().feed(data):
                parts = parse_request(frame.body)
                api = APIS.get(parts.api_key)  # type: ignore[call-overload]
                if api is not None:
                    decode_message(api.request, parts.message, parts.api_version, frame.attachment)
                    asked.add(api.key)
    assert asked <= {ApiKey.DESCRIBE_QUORUM, ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CLUSTER}


def test_some_stories_have_each_of_them_and_plain_ones_have_none() -> None:
    shapes = [RunTemplate().spec(str(seed)).shape for seed in range(60)]
    names = ("retention", "wanderers", "remakes", "strained", "asks_alone", "intrudes", "core_first")
    for name in names:
        assert 5 < sum(bool(getattr(shape, name)) for shape in shapes) < 30
    plain = [RunTemplate(is_plain=True).spec(str(seed)).shape for seed in range(60)]
    assert not any(getattr(shape, name) for shape in plain for name in names)


def test_time_passes_in_handles_of_a_strained_world_and_not_for_who_looks_from_outside() -> None:
    choices = Choices("strain")
    loop = make_loop(choices.stream("sched"))
    clock = DelayedClock(loop.process("p"), HandlerDelay(loop, choices.stream("strain")))
    began_ns = clock.shown_ns()
    steps = [-clock.now_ns() + clock.now_ns() for _ in range(10_000)]
    assert 0 < sum(step > 0 for step in steps) < 1_000
    assert min(steps) == 0
    assert max(steps) > 10_000_000
    passed_ns = clock.shown_ns() - began_ns
    assert [clock.shown_ns() - began_ns for _ in range(1_000)] == [passed_ns] * 1_000


def test_a_tape_that_ends_leaves_no_strain() -> None:
    choices = Choices("strain", tape={})
    loop = make_loop(choices.stream("sched"))
    clock = DelayedClock(loop.process("p"), HandlerDelay(loop, choices.stream("strain")))
    assert {clock.now_ns() for _ in range(1_000)} == {clock.shown_ns()}


@pytest.mark.slow
def test_equal_seeds_of_a_strained_world_are_equal_and_its_producers_send_from_their_callbacks() -> None:
    shape = replace(SHAPE, strained=True)
    choices = [Choices("4", record=True) for _ in range(2)]
    results = [run(one, shape, 3, plan=Plan(gap_ms=600)) for one in choices]
    assert results[0].violation is None, results[0].as_text()
    assert results[0].trace_hash == results[1].trace_hash
    echoes = choices[0].tape()["echo"]
    assert _ECHO_ONE_IN - 1 in echoes
    assert choices[0].tape() == choices[1].tape()
