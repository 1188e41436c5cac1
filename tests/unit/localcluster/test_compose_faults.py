"""Faults of containers: what Docker is asked, and that healing touches only what is not as it should be."""

from pathlib import Path

import pytest

from holdfast.localcluster.compose import ComposeCluster
from holdfast.localcluster.compose_faults import CONTAINER_FAULTS, heal_containers
from holdfast.localcluster.nodes import Node


class Docker(ComposeCluster):
    """Containers that only take notes; `off` are off their network, `now` are not running."""

    def __init__(self) -> None:
        super().__init__(Path(), None)
        self.asked: list[str] = []
        self.now: dict[str, str] = {}
        self.off: set[str] = set()

    def _container(self, node: Node) -> str:
        return f"id-of-{node.name}"

    def _compose(self, *arguments: str, timeout_s: float = 60.0) -> str:
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
