"""The demo's containers are its own; a `docker` that only takes notes stands in for the real one."""

import os
import re
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.__main__ import main
from holdfast.localcluster import ports
from holdfast.localcluster.compose import SERVICES
from holdfast.localcluster.nodes import ClusterError

#: What a broker and a controller publish.
PORTS = [port for _, _, _, *published in SERVICES for port in published if port]

DOCKER = """#!/bin/sh
echo "$COMPOSE_PROJECT_NAME: $*" >>"$DOCKER_NOTES"
echo "$PUBLISH_ADDRESS" >"$DOCKER_NOTES.address"
case "$*" in
    "$DOCKER_FINDS "*) echo 3f2a9c ;;
    compose\\ up*) echo "port is already allocated" >&2; exit 1 ;;
    compose\\ logs*) echo "broker-1 | starting" ;;
esac
"""


@pytest.fixture(autouse=True)
def no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of these demos comes as far as Spark."""
    monkeypatch.setattr("holdfast.drills.demo.command.require", lambda extra: None)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What docker was asked; starting a container fails."""
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", "holdfast")
    return tmp_path / "notes"


def run_demo(folder: Path) -> Result:
    return CliRunner().invoke(main, ["demo", "--driver", "compose", "--keep", str(folder / "kept")])


@pytest.mark.parametrize("there_are", ["ps -a", "volume ls"])
def test_what_an_operator_has_in_the_project_of_the_demo_is_left_alone(
    notes: Path, there_are: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo ends with `down -v`."""
    monkeypatch.setenv("DOCKER_FINDS", there_are)
    done = run_demo(tmp_path)
    assert done.exit_code == 1
    assert "docker compose -p holdfast-demo down -v" in done.output
    asked = notes.read_text()
    assert there_are in asked
    assert "compose" not in asked.replace("com.docker.compose", "")


def test_a_demo_that_cannot_start_takes_only_its_own_containers_away(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_FINDS", "nothing")
    done = run_demo(tmp_path)
    assert done.exit_code == 1
    assert "port is already allocated" in done.output
    assert notes.read_text().splitlines()[2:] == [
        "holdfast-demo: compose up -d --build",
        "holdfast-demo: compose logs --no-color --timestamps",
        "holdfast-demo: compose down -v",
    ]
    assert (tmp_path / "kept" / "compose.log").read_text() == "broker-1 | starting\n"


def test_the_ports_of_the_driver_are_those_of_the_compose_file() -> None:
    text = (Path(__file__).parents[3] / "docker-compose.yml").read_text()
    for name, _, _, *published in SERVICES:
        service = text.split(f"  {name}:\n")[1]
        line = next(line for line in service.splitlines() if line.startswith("    ports:"))
        assert re.findall(r"127\.0\.0\.1\}:(\d+):", line) == [str(port) for port in published if port]


def test_no_port_that_is_published_is_one_of_outgoing_connections() -> None:
    """Linux gives them 32768 to 60999, and containers would find a port taken by chance."""
    text = (Path(__file__).parents[3] / "docker-compose.yml").read_text()
    published = [int(port) for port in re.findall(r"127\.0\.0\.1\}:(\d+):", text)]
    assert len(set(published)) == len(published) == 17
    assert max(published) < 32_768


def test_a_cluster_of_its_own_starts_beside_one_that_has_the_ports_already(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = {("127.0.0.1", PORTS[-1])}
    monkeypatch.setattr(ports, "_is_free", lambda port, address: (address, port) not in taken)
    monkeypatch.setenv("DOCKER_FINDS", "nothing")
    run_demo(tmp_path)
    assert notes.with_name("notes.address").read_text() == "127.0.0.2\n"


def test_ports_that_are_taken_everywhere_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LOOPBACK", ("127.0.0.1",))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ClusterError, match=f"ports {port} of 127.0.0.1 are taken"):
            ports.loopback_with_free([port])


def test_a_machine_without_docker_is_told_of_the_demo_that_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run_demo(tmp_path)
    assert done.exit_code == 1
    assert "`make demo` needs no containers" in done.output
