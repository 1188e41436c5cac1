"""Properties of a broker's life: a history that breaks each, and the one beside it that does not."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from holdfast.broker.core.registration.lifecycle import BrokerState
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.records import UnfenceBrokerRecord
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatRequest, OfflineTopic
from holdfast.sim.checks.properties import lifecycles
from holdfast.sim.cluster.nodes import State
from tests.sim.checks.histories import TOPIC_ID, Scene, image, row

MS = 1_000_000


def broken(scene: Scene, tell: Any) -> bool:
    """Whether the property speaks up, under its own name."""
    said = scene.violation(tell)
    assert said is None or said.startswith(scene.property.name), said
    return said is not None


def lives(scene: Scene, **given: Any) -> Any:
    """Broker 1 with a life of epoch 1."""
    node = scene.world.brokers[0]
    usual = {"state": BrokerState.RUNNING, "broker_epoch": 1, "is_registered": True}
    core = SimpleNamespace(lifecycle=SimpleNamespace(**{**usual, **given}))
    node.node = SimpleNamespace(core=core)  # type: ignore[assignment]
    node.process = scene.world.loop.process("b1.1")
    return node


@pytest.mark.parametrize(
    ("epoch", "has_roles", "expected"), [(7, False, True), (7, True, False), (6, False, False)]
)
def test_a_broker_without_roles_is_not_unfenced_r23(epoch: int, has_roles: bool, expected: bool) -> None:
    """The record of another incarnation says nothing of this one."""
    scene = Scene(lifecycles.UnfencedIsReady())
    node = scene.world.brokers[0]
    node.state = State.RUNNING
    core = SimpleNamespace(lifecycle=SimpleNamespace(broker_epoch=7), has_roles=has_roles)
    node.node = SimpleNamespace(core=core)  # type: ignore[assignment]
    record = UnfenceBrokerRecord(1, epoch)
    assert broken(scene, lambda: scene.property.record_committed(scene.seen, 9, record, image())) is expected


@pytest.mark.parametrize(
    ("told", "known", "epoch", "is_whole", "is_damaged", "expected"),
    [
        ((), False, 1, False, False, True),
        ((OfflineTopic(TOPIC_ID, (0,)),), False, 1, False, False, False),
        ((OfflineTopic(TOPIC_ID, (1,)),), False, 1, False, False, True),
        ((), True, 1, False, False, False),
        # of a registration that metadata does not know yet nothing can be said
        ((), False, 2, False, False, False),
        # no dir has failed
        ((OfflineTopic(TOPIC_ID, (0,)),), False, 1, True, False, True),
        # but its log is damaged
        ((OfflineTopic(TOPIC_ID, (0,)),), False, 1, True, True, False),
    ],
)
def test_each_heartbeat_tells_of_failed_dirs_r27(
    told: tuple[OfflineTopic, ...], known: bool, epoch: int, is_whole: bool, is_damaged: bool, expected: bool
) -> None:
    scene = Scene(lifecycles.FailedDirsAreTold())
    node = scene.world.brokers[0]
    key = PartitionId(TOPIC_ID, 0)
    seen = image(row=row())
    own = seen.brokers[1]
    if known:
        own = replace(own, offline_replicas=Map({key: None}))
    image_seen = replace(seen, brokers=seen.brokers.set(1, own))
    core = SimpleNamespace(image=image_seen, damaged_replicas=dict.fromkeys([key] if is_damaged else []))
    log_manager = SimpleNamespace(is_whole=is_whole)
    node.node = SimpleNamespace(core=core, log_manager=log_manager)  # type: ignore[assignment]
    heartbeat = BrokerHeartbeatRequest(1, epoch, 100, False, False, told)
    tell = partial(scene.property.heartbeat_sent, scene.seen, node, heartbeat, [key])
    assert broken(scene, tell) is expected


@pytest.mark.parametrize(
    ("state", "unfenced", "expected"),
    [
        (BrokerState.RUNNING, 1, False),
        (BrokerState.RUNNING, 2, True),
        (BrokerState.RECOVERY, 2, False),
    ],
)
def test_a_broker_runs_once_it_was_unfenced_r29(state: BrokerState, unfenced: int, expected: bool) -> None:
    scene = Scene(lifecycles.RunningIsUnfenced())
    node = lives(scene, state=state)
    scene.property.record_committed(scene.seen, 9, UnfenceBrokerRecord(1, unfenced), image())
    assert broken(scene, partial(scene.property.broker_called, scene.seen, node)) is expected


@pytest.mark.parametrize(
    ("given", "fenced", "exit_code", "took_ms", "expected"),
    [
        pytest.param({}, (), 0, 100, True, id="the controller was not asked"),
        pytest.param({}, (1,), 0, 100, False, id="it was fenced"),
        pytest.param({}, (), 0, 6_000, False, id="the controller has not answered in time"),
        pytest.param({}, (), None, 100, False, id="it was killed"),
        pytest.param({"broker_epoch": -1, "is_registered": False}, (), 0, 100, False, id="not registered"),
        pytest.param({"broker_epoch": 7}, (), 0, 100, False, id="the row is of another incarnation"),
    ],
)
def test_a_broker_that_stops_in_time_was_fenced_before_r22(
    given: dict[str, Any], fenced: tuple[int, ...], exit_code: int | None, took_ms: int, expected: bool
) -> None:
    scene = Scene(lifecycles.StopsAreAskedFor())
    node = lives(scene, **given)
    scene.set_image(image(fenced))
    scene.property.broker_stepped(scene.seen, node)
    scene.world.loop.now_ns += took_ms * MS
    node.exit_code = exit_code
    assert broken(scene, partial(scene.property.broker_ends, scene.seen, node)) is expected


def test_a_stopping_broker_that_a_late_heartbeat_unfences_once_more_was_fenced_r22() -> None:
    """Seed 10560 of the simulator as it was before."""
    scene = Scene(lifecycles.StopsAreAskedFor())
    node = lives(scene)
    scene.set_image(image((1,)))
    scene.property.broker_stepped(scene.seen, node)
    scene.set_image(image(()))
    scene.property.broker_stepped(scene.seen, node)
    node.exit_code = 0
    assert not broken(scene, partial(scene.property.broker_ends, scene.seen, node))
