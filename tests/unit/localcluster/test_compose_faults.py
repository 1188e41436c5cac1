"""Faults of containers: what Docker is asked, and that healing touches only what is not as it should be."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.localcluster import compose_disks, compose_faults
from holdfast.localcluster.compose import ComposeCluster
from holdfast.localcluster.compose_faults import CONTAINER_FAULTS, heal_containers
from holdfast.localcluster.faults import shapes
from holdfast.localcluster.faults.fault import FaultRefused
from holdfast.localcluster.nodes import Node, Nodes


class Docker(ComposeCluster):
    """Containers that only take notes; `off` are off their network, `now` are not running."""

    def __init__(self) -> None:
        super().__init__(Path(), None)
        self.asked: list[str] = []
        self.now: dict[str, str] = {}
        self.off: set[str] = set()
        self.is_away = False

    def _container(self, node: Node) -> str:
        return f"id-of-{node.name}"

    def _compose(self, *arguments: str, timeout_s: float = 60.0) -> str:
        if arguments[:1] == ("ps",) and self.is_away:
            return ""
        if arguments[:1] == ("ps",):
            return arguments[-1] if arguments[-1] != "-q" else " ".join(self._services.values())
        self.asked.append(" ".join(arguments))
        return ""

    def _docker(self, *arguments: str, timeout_s: float = 60.0) -> str:
        if arguments[0] != "inspect":
            self.asked.append(" ".join(arguments))
            return ""
        template, asked_for = arguments[2], arguments[3:]
        if "compose.project" in template:
            return "mine"
        if "State.Status" in template:
            return "".join(f"{name} {self.now.get(name, 'running')}\n" for name in asked_for)
        assert "Networks" in template
        return "".join(f"{name} {'' if f'id-of-{name}' in self.off else 'x'}\n" for name in asked_for)


@pytest.mark.parametrize(
    ("fault", "done", "healed"),
    [
        ("kill", ["kill -s KILL id-of-broker-2"], ["start broker-2"]),
        ("stop", ["stop broker-2"], ["start broker-2"]),
        ("pause", ["pause broker-2"], ["unpause broker-2"]),
        (
            "partition",
            ["network disconnect mine_default id-of-broker-2"],
            ["network connect --alias broker-2 mine_default id-of-broker-2"],
        ),
    ],
)
def test_a_fault_and_its_healing_are_these_orders(fault: str, done: list[str], healed: list[str]) -> None:
    docker = Docker()
    made = CONTAINER_FAULTS[fault](docker, [docker.broker(2)])
    assert "broker-2" in made.apply()
    assert docker.asked == done
    docker.now["broker-2"] = "paused" if fault == "pause" else "running"
    docker.off = {"id-of-broker-2"} if fault == "partition" else set()
    made.heal()
    assert docker.asked == done + healed


def test_what_was_left_behind_is_found_by_looking() -> None:
    docker = Docker()
    assert heal_containers(docker) == []
    assert docker.asked == []
    docker.now = {"broker-1": "paused", "controller-2": "exited"}
    docker.off = {"id-of-broker-3"}
    assert heal_containers(docker) == [
        "controller-102 did not run",
        "broker-1 was paused",
        "broker-3 was off the network",
    ]
    assert docker.asked == [
        "start controller-2",
        "unpause broker-1",
        "network connect --alias broker-3 mine_default id-of-broker-3",
    ]


LOSETUP = """#!/bin/sh
echo "$*" >>"$NOTES"
"""


def test_loop_devices_of_a_run_that_was_killed_are_detached_once_its_containers_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = {
        "loop0": "/tmp/a/mine-broker-1.img",
        "loop1": "/tmp/a/mine-controller-2.img (deleted)",
        "loop2": "/tmp/a/other-broker-1.img",
        "loop3": "/var/disk.img",
    }
    for device, image in images.items():
        (tmp_path / "sys" / device / "loop").mkdir(parents=True)
        (tmp_path / "sys" / device / "loop" / "backing_file").write_text(f"{image}\n")
    monkeypatch.setattr(compose_disks, "_SYS_BLOCK", tmp_path / "sys")
    (tmp_path / "losetup").write_text(LOSETUP)
    (tmp_path / "losetup").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", "mine")
    docker = Docker()
    assert heal_containers(docker) == []
    assert not (tmp_path / "notes").exists(), "its containers use them"
    docker.is_away = True
    assert heal_containers(docker) == [
        "/tmp/a/mine-broker-1.img was still a loop device",
        "/tmp/a/mine-controller-2.img was still a loop device",
    ]
    assert sorted((tmp_path / "notes").read_text().splitlines()) == [
        "--detach /dev/loop0",
        "--detach /dev/loop1",
    ]


# --- partitions ----------------------------------------------------------------------------------------


class Links:
    """Rules that only take notes."""

    cut_now: ClassVar[set[tuple[str, str]]] = set()

    def __init__(self, project: str) -> None:
        assert project == "mine"

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.cut_now.update(pairs)

    def mend(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.cut_now.difference_update(pairs)


@pytest.mark.parametrize(
    ("shape", "reached"),
    [
        (shapes.isolate, {(101, 102), (101, 1), (1, 3)}),
        (shapes.isolate_from_brokers, {(101, 2), (1, 102), (2, 101)}),
        (shapes.isolate_from_controllers, {(1, 2), (2, 1), (101, 3)}),
        (shapes.bridge, {(2, 101), (2, 102), (1, 2), (3, 2)}),
    ],
)
def test_containers_are_parted_as_the_shape_says_and_healed(
    monkeypatch: pytest.MonkeyPatch,
    shape: Callable[[Nodes, Node], shapes.Shape],
    reached: set[tuple[int, int]],
) -> None:
    monkeypatch.setattr(compose_faults, "ContainerLinks", Links)
    docker = Docker()
    monkeypatch.setattr(
        docker, "addresses", lambda: {node: f"10.0.0.{node.node_id}" for node in docker.nodes}
    )
    fault = compose_faults.CutContainers(docker, shape(docker, docker.broker(2)))
    assert "broker-2" in fault.apply()
    ids = {(int(one.rpartition(".")[2]), int(other.rpartition(".")[2])) for one, other in Links.cut_now}
    assert ids
    if shape is not shapes.bridge:
        assert all(2 in pair for pair in ids)
    assert not ids & reached
    fault.heal()
    assert not Links.cut_now


class Packets:
    """Processes that only take notes."""

    held: ClassVar[dict[int, Sequence[str]]] = {}

    def __init__(self, delay_ms: int) -> None:
        assert delay_ms == 50

    def start(self, senders: Mapping[int, Sequence[str]]) -> None:
        self.held.update(senders)

    def stop(self) -> None:
        self.held.clear()


def test_slow_links_hold_packets_at_each_receiver_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose_faults, "DelayedPackets", Packets)
    docker = Docker()
    down = docker.broker(3)
    monkeypatch.setattr(
        docker, "addresses", lambda: {n: f"10.0.0.{n.node_id}" for n in docker.nodes if n != down}
    )
    monkeypatch.setattr(docker, "pids", lambda: {n: n.node_id for n in docker.nodes if n != down})
    others = [node for node in docker.nodes if node != docker.broker(2)]
    fault = compose_faults.SlowLinksOfContainers(docker, [docker.broker(2)], others, 50)
    assert "everything takes 50 ms longer" in fault.apply()
    assert sorted(Packets.held.pop(2)) == ["10.0.0.1", "10.0.0.101", "10.0.0.102", "10.0.0.103"]
    assert Packets.held == {pid: ["10.0.0.2"] for pid in (1, 101, 102, 103)}
    fault.heal()
    assert Packets.held == {}


def test_a_disk_of_the_machine_is_never_cut_or_frozen() -> None:
    docker = Docker()
    for fault in ("power-loss", "frozen-disk", "slow-disk"):
        with pytest.raises(FaultRefused, match="a disk of this machine"):
            CONTAINER_FAULTS[fault](docker, [docker.broker(2)]).apply()
    assert docker.asked == []
