"""When logs are flushed (D6): histories that break the property, and those beside them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from immutables import Map

from holdfast.metadata.image import RESOURCE_TOPIC
from holdfast.sim.checks.observe.views import ReplicaView
from holdfast.sim.checks.properties.flushing import FlushesComeInTime, SegmentsRoll, TopicsAreHeeded
from holdfast.sim.cluster.nodes import State
from holdfast.storage.core.config import LogConfig
from tests.sim.checks.histories import Scene, before, grow, image, mark, view_of

MS = 1_000_000


def one_that_runs(
    scene: Scene, configs: dict[str, str], *, active_base: int = 0, **given: int
) -> ReplicaView:
    """A replica with four records, of a topic that is configured like that."""
    view = view_of(scene, 1, map(mark, range(4)), **given)
    log: Any = view.log
    log._flusher, log.guard = SimpleNamespace(is_running=False), SimpleNamespace(changing=None)
    log.segments = SimpleNamespace(active=SimpleNamespace(base_offset=active_base))
    overrides: Map[str, str] = Map(configs)
    core = SimpleNamespace(image=replace(image(), configs=Map({(RESOURCE_TOPIC, "t"): overrides})))
    view.broker.node = SimpleNamespace(core=core)  # type: ignore[assignment]
    view.broker.state = State.RUNNING
    return view


@pytest.mark.parametrize(
    ("configs", "step_ms", "steps", "flushed", "is_flushing", "grows", "expected"),
    [
        pytest.param({"flush.ms": "50"}, 100, 60, 0, False, True, True, id="too late"),
        pytest.param({"flush.ms": "50"}, 100, 40, 0, False, True, False, id="a disk may hang"),
        pytest.param({"flush.ms": "50"}, 100, 60, 4, False, True, False, id="all is flushed"),
        pytest.param({"flush.ms": "50"}, 100, 60, 0, True, True, False, id="a flush is under way"),
        pytest.param({"flush.ms": "50"}, 3_000, 4, 0, False, True, False, id="it may have been paused"),
        pytest.param({"flush.ms": "5000"}, 100, 60, 0, False, True, False, id="that is soon enough"),
        pytest.param({"flush.messages": "4"}, 100, 60, 0, False, True, True, id="too many"),
        pytest.param({"flush.messages": "6"}, 100, 60, 0, False, True, False, id="not too many"),
        pytest.param({"flush.messages": "4"}, 100, 60, 0, False, False, False, id="nothing was appended"),
        pytest.param({}, 100, 60, 0, False, True, False, id="the page cache may keep it"),
    ],
)
def test_a_log_is_flushed_as_often_as_its_topic_asks_for_d6(
    configs: dict[str, str],
    step_ms: int,
    steps: int,
    flushed: int,
    is_flushing: bool,
    grows: bool,
    expected: bool,
) -> None:
    scene = Scene(FlushesComeInTime())
    view = one_that_runs(scene, configs, flushed_offset=flushed)
    log: Any = view.log
    log._flusher.is_running = is_flushing

    def pass_time() -> None:
        for step in range(steps):
            if step == 1 and grows:
                grow(view, [mark(4)])
                view.flushed_offset += bool(flushed)
            scene.property.replica_changed(scene.seen, view, before(view), [])
            scene.world.loop.now_ns += step_ms * MS

    said = scene.violation(pass_time)
    assert (said is not None) is expected, said


@pytest.mark.parametrize(
    ("active_base", "flushed", "steps", "expected"),
    [(4, 0, 60, True), (4, 3, 60, True), (4, 4, 60, False), (0, 0, 60, False), (4, 0, 40, False)],
    ids=["it waits", "its end waits", "it is flushed", "it is not full", "a disk may hang"],
)
def test_a_segment_that_is_full_is_flushed_under_every_topic_setting_d6(
    active_base: int, flushed: int, steps: int, expected: bool
) -> None:
    scene = Scene(FlushesComeInTime())
    view = one_that_runs(scene, {}, active_base=active_base, flushed_offset=flushed)
    grow(view, [mark(4)])

    def pass_time() -> None:
        for _ in range(steps):
            scene.property.replica_changed(scene.seen, view, before(view), [])
            scene.world.loop.now_ns += 100 * MS

    assert (scene.violation(pass_time) is not None) is expected


def test_what_is_flushed_meanwhile_begins_the_wait_anew_d6() -> None:
    scene = Scene(FlushesComeInTime())
    view = one_that_runs(scene, {"flush.ms": "50"})
    for offset in range(4, 200):
        grow(view, [mark(offset)])
        view.flushed_offset = offset - offset % 20
        assert (
            scene.violation(lambda: scene.property.replica_changed(scene.seen, view, before(view), []))
            is None
        )
        scene.world.loop.now_ns += 100 * MS


#: as a broker's log is when nothing is configured
USUAL = LogConfig(segment_bytes=20_000)


@pytest.mark.parametrize(
    ("configs", "counts_flushed", "goes_by", "expected"),
    [
        pytest.param({}, False, USUAL, False, id="nothing is configured"),
        pytest.param({}, False, LogConfig(), True, id="nor does it heed the broker's file"),
        pytest.param(
            {"flush.messages": "1"}, True, replace(USUAL, flush_messages=1), False, id="every write"
        ),
        pytest.param(
            {"flush.messages": "1"}, False, replace(USUAL, flush_messages=1), True, id="not counted"
        ),
        pytest.param({"flush.messages": "1"}, True, USUAL, True, id="counted, not flushed"),
        pytest.param(
            {"flush.messages": "2"}, False, replace(USUAL, flush_messages=2), False, id="every other"
        ),
        pytest.param(
            {"flush.messages": "2"}, True, replace(USUAL, flush_messages=2), True, id="too few count"
        ),
        pytest.param({"flush.ms": str((1 << 63) - 1)}, False, USUAL, False, id="never by time"),
        pytest.param(
            {"retention.ms": "-1"}, False, replace(USUAL, retention_ms=None), False, id="kept for ever"
        ),
        pytest.param({"retention.bytes": "0"}, False, USUAL, True, id="nothing is to be kept"),
    ],
)
def test_a_replica_goes_by_what_is_configured_d5_d6(
    configs: dict[str, str], counts_flushed: bool, goes_by: LogConfig, expected: bool
) -> None:
    scene = Scene(TopicsAreHeeded())
    view = one_that_runs(scene, configs)
    view.replica.counts_flushed = counts_flushed
    log, node = cast(Any, view.log), cast(Any, view.broker.node)
    log.config, log.failure = goes_by, None
    node.core.partitions = {view.replica.key: view.replica}
    said = scene.violation(lambda: scene.property.broker_called(scene.seen, view.broker))
    assert (said is not None) is expected


@pytest.mark.parametrize(
    ("sizes", "bases", "expected"),
    [
        ((0, 90), (0, 0), False),
        ((90, 110), (0, 0), True),
        ((0, 110), (0, 0), False),
        ((90, 110), (0, 4), False),
        ((110, 110), (0, 0), False),
    ],
    ids=["it fits", "it does not", "there is nothing else in it", "in the next one", "nothing is appended"],
)
def test_a_segment_takes_what_fits_d5(sizes: tuple[int, int], bases: tuple[int, int], expected: bool) -> None:
    """100 bytes."""
    scene = Scene(SegmentsRoll())
    view = one_that_runs(scene, {})
    log: Any = view.log
    log.config = SimpleNamespace(segment_bytes=100)

    def grow_by() -> None:
        for size, base_offset in zip(sizes, bases, strict=True):
            log.segments.active = SimpleNamespace(size=size, base_offset=base_offset)
            scene.property.replica_changed(scene.seen, view, before(view), ())

    assert (scene.violation(grow_by) is not None) is expected
