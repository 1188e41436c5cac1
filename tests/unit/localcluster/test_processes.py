"""A folder is a cluster: its state is found again, and a pid that is used again is not taken for a node."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.cli.options import read_properties
from holdfast.localcluster import processes
from holdfast.localcluster.launch import Child, CommandChild, Fork, Limits
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.processes import LocalCluster


def test_a_cluster_is_found_again_in_its_folder(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path, 3, 3)
    found = LocalCluster.load(tmp_path)
    assert found.nodes == made.nodes
    assert found.cluster_id == made.cluster_id
    assert [node.name for node in found.brokers] == ["broker-1", "broker-2", "broker-3"]
    assert [node.node_id for node in found.controllers] == [101, 102, 103]


def test_two_clusters_in_one_folder_are_refused(tmp_path: Path) -> None:
    LocalCluster.create(tmp_path, 1, 1)
    with pytest.raises(ClusterError, match="holds a cluster already"):
        LocalCluster.create(tmp_path, 1, 1)


def test_a_value_in_a_properties_file_is_that_value_and_no_second_key(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path / "a b=c#", 1, 1, properties={"broker.rack": "a\nnode.id=7 \u00e9\\"})
    read = read_properties(str(made.properties_file(made.brokers[0])))
    assert (read["node.id"], read["broker.rack"]) == ("1", "a\nnode.id=7 \u00e9\\")
    assert read["log.dirs"].startswith(str(tmp_path / "a b=c#"))


def test_a_folder_that_cannot_be_in_a_list_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["cluster", "up", "--dir", str(tmp_path / "a,b" / "c")])
    assert result.exit_code == 1
    assert "list with commas" in result.output
    assert list(tmp_path.iterdir()) == []


def test_who_looks_for_a_cluster_waits_for_the_one_that_is_being_made(tmp_path: Path) -> None:
    found: list[LocalCluster] = []

    def look() -> None:
        with LocalCluster.making(tmp_path):
            found.append(LocalCluster.load(tmp_path))

    with LocalCluster.making(tmp_path):
        other = threading.Thread(target=look)
        other.start()
        made = LocalCluster.create(tmp_path, 1, 1)
    other.join()
    assert found[0].cluster_id == made.cluster_id


def test_what_is_in_the_way_of_a_node_is_neither_used_nor_deleted_with_it(tmp_path: Path) -> None:
    (tmp_path / "broker-1").mkdir()
    with pytest.raises(ClusterError, match="broker-1 exists already"):
        LocalCluster.create(tmp_path, 1, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["broker-1"]


def test_what_else_is_in_the_folder_outlives_the_cluster(tmp_path: Path) -> None:
    notes = tmp_path / "c" / "notes"
    for others in ([], [notes]):
        LocalCluster.create(tmp_path / "c", 1, 1)
        for file in others:
            file.write_text("mine")
        result = CliRunner().invoke(main, ["cluster", "down", "--delete", "--dir", str(tmp_path / "c")])
        assert result.exit_code == 0
        assert sorted(tmp_path.rglob("*")) == ([tmp_path / "c", notes] if others else [])


def test_an_empty_folder_says_how_to_make_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="holdfast cluster up"):
        LocalCluster.load(tmp_path)


def test_min_isr_of_a_small_cluster_can_be_met(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path, 1, 1)
    text = made.properties_file(made.brokers[0]).read_text()
    assert "min.insync.replicas=1\n" in text
    assert "default.replication.factor=1\n" in text


def test_a_pid_of_another_process_is_not_a_node(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path, 1, 1)
    node = made.brokers[0]
    (made.home(node) / "node.pid").write_text("1\n")
    assert made.pid(node) is None


@pytest.mark.parametrize("started", ["x/../hold", "link", "hold"])
@pytest.mark.parametrize("named", ["x/../hold", "link", "hold"])
def test_a_node_is_found_however_its_folder_is_spelled(tmp_path: Path, started: str, named: str) -> None:
    """Otherwise `kill` kills no process, and a second `start` overwrites the pid of the first."""
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to("hold")
    (node,) = LocalCluster.create(tmp_path / "hold", 1, 1).brokers
    properties = str(tmp_path / started / node.name / "server.properties")
    with subprocess.Popen(["tail", "-f", properties], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # only now its command line is that of tail
        pid_file = tmp_path / "hold" / node.name / "node.pid"
        pid_file.write_text(f"{process.pid}\n")
        try:
            found = LocalCluster.load(tmp_path / named)
            assert found.pid(node) == process.pid
            found.start(node)
            assert pid_file.read_text() == f"{process.pid}\n"
            found.signal(node, signal.SIGTERM)
            assert process.wait(10) == -signal.SIGTERM
        finally:
            process.kill()


def test_nodes_are_started_by_a_name_that_no_link_takes_away(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("hold")
    made = LocalCluster.create(tmp_path / "link", 1, 1)
    assert made.folder == (tmp_path / "hold").resolve()
    assert LocalCluster.load(tmp_path / "link").folder == made.folder


def test_ports_are_distinct_and_outside_the_range_of_outgoing_connections(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path, 3, 3)
    ports = [port for node in made.nodes for port in (node.port, node.http_port)]
    assert len(set(ports)) == 12
    assert all(port < 32_768 for port in ports)


def test_a_property_with_a_bad_value_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Else the next `up` would resume a cluster whose nodes cannot start."""
    folder = tmp_path / "new"
    with pytest.raises(ClusterError, match=r"log.segment.bytes=foo: expected an integer in \[1024"):
        LocalCluster.create(folder, 1, 1, properties={"log.segment.bytes": "foo"})
    assert not folder.exists()


def test_a_property_that_is_not_known_is_told_with_a_hint(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path, 1, 1, properties={"log.segmnt.bytes": "4096"})
    for role in ("broker", "controller"):
        (warning,) = made.warnings[role]
        assert "did you mean log.segment.bytes?" in warning


def test_a_paused_node_is_told_from_one_that_is_down(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path, 1, 1)
    node = made.brokers[0]
    assert not made.is_paused(node)
    with subprocess.Popen(["sleep", "60"]) as process:
        made._children[node.name] = CommandChild(process)
        made.pause(node)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert made.is_paused(node)
        process.kill()


def test_a_node_whose_process_ends_while_it_is_looked_at_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened in /proc before it was reaped says afterwards that there is no such process."""
    made = LocalCluster.create(tmp_path, 1, 1)
    node = made.brokers[0]

    def end_and_read(file: Path) -> bytes:
        with file.open("rb") as opened:
            process.kill()
            process.wait()
            return opened.read()

    with subprocess.Popen(["sleep", "60"]) as process:
        (made.home(node) / "node.pid").write_text(f"{process.pid}\n")
        monkeypatch.setattr(Path, "read_bytes", end_and_read)
        assert made.pid(node) is None
    with subprocess.Popen(["sleep", "60"]) as process:
        made._children[node.name] = CommandChild(process)
        monkeypatch.setattr(Path, "read_text", lambda file: end_and_read(file).decode())
        assert not made.is_paused(node)


#: Its first thread ends; the other says so, and goes on until its input ends.
OUTLIVED_BY_A_THREAD = """
import ctypes, platform, sys, threading

def outlive():
    while ") Z " not in open("/proc/self/stat").read():
        pass
    print("outlived", flush=True)
    sys.stdin.read()

threading.Thread(target=outlive).start()
ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)  # exit
"""


@contextlib.contextmanager
def outlived(made: LocalCluster, node: Node) -> Iterator[tuple[int, Callable[[], None]]]:
    """A node of which one thread is left: its pid, and what lets that one end and waits for it."""
    words = [sys.executable, "-c", OUTLIVED_BY_A_THREAD]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        (made.home(node) / "node.pid").write_text(f"{process.pid}\n")
        assert process.stdout.readline() == b"outlived\n"

        def end() -> None:
            assert process.stdin is not None
            process.stdin.close()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        yield process.pid, end


def test_a_node_runs_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    """A thread that waits for a disk outlives the others of a killed node, and has the log dir's lock."""
    made = LocalCluster.create(tmp_path, 1, 1)
    node = made.brokers[0]
    with outlived(made, node) as (pid, end):
        fork = Fork(pid)
        assert fork.is_running()
        assert made.pid(node) == pid
        end()
        assert not fork.is_running()
        assert made.pid(node) is None


class Ended:
    """A process that has ended at once."""

    pid = 1

    def is_running(self) -> bool:
        return False


class Launches:
    """A launcher of such processes."""

    def __init__(self) -> None:
        self.words: list[Sequence[str]] = []

    def launch(self, words: Sequence[str], log_file: Path, limits: Limits | None = None) -> Child:
        self.words.append(words)
        return Ended()


def test_a_node_that_is_ending_is_started_once_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = Launches()
    made = LocalCluster.create(tmp_path, 1, 1, launcher=launches)
    node = made.brokers[0]
    with outlived(made, node) as (_, end):
        monkeypatch.setattr(time, "sleep", lambda seconds: end())
        made.start(node)
    assert [words[0] for words in launches.words] == ["broker"]


def test_a_node_that_does_not_end_is_not_taken_for_a_started_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "ENDING_S", -1.0)
    made = LocalCluster.create(tmp_path, 1, 1, launcher=Launches())
    node = made.brokers[0]
    with outlived(made, node), pytest.raises(ClusterError, match="broker-1 was killed and has not ended"):
        made.start(node)


def test_a_killed_node_may_take_a_disks_time_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = LocalCluster.create(tmp_path, 1, 1)
    node = made.brokers[0]
    monkeypatch.setattr(made, "signal", lambda node, number: None)
    now_s = 0.0

    with outlived(made, node) as (_, end):

        def pass_time(seconds: float) -> None:
            nonlocal now_s
            now_s += 25.0
            if now_s == 50.0:
                end()

        monkeypatch.setattr(time, "monotonic", lambda: now_s)
        monkeypatch.setattr(time, "sleep", pass_time)
        made.kill([node])
    assert now_s == 50.0


def test_a_node_that_is_ending_needs_no_pause(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path, 1, 1)
    node = made.brokers[0]
    with outlived(made, node):
        made._wait_paused([node], timeout_s=-1.0)


def test_a_cluster_keeps_its_way_of_losing_power(tmp_path: Path) -> None:
    LocalCluster.create(tmp_path, 1, 1, power_loss="tracked")
    found = LocalCluster.load(tmp_path)
    assert found.power_loss_driver == "tracked"
    (loss,) = found.power_loss([found.brokers[0]], seed=3)
    assert (loss.node, loss.seed, loss.files) == ("broker-1", 3, ())
    state = (tmp_path / "cluster.json").read_text()
    (tmp_path / "cluster.json").write_text(state.replace('"tracked"', '"quantum"'))
    with pytest.raises(ClusterError, match="no driver quantum: this cluster was made by another version"):
        LocalCluster.load(tmp_path)


def test_a_cluster_made_without_a_way_of_losing_power_says_how_to_make_one(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path, 1, 1)
    with pytest.raises(ClusterError, match="cluster up --power-loss auto"):
        made.power_loss(made.brokers)
    assert not (made.home(made.brokers[0]) / "power-loss.json").exists()


@pytest.mark.parametrize("key", ["log.dirs", "log.dir", "metadata.log.dir"])
def test_data_outside_the_disk_whose_power_is_cut_is_refused(key: str, tmp_path: Path) -> None:
    elsewhere = {key: str(tmp_path / "elsewhere")}
    with pytest.raises(ClusterError, match=f"{key} cannot be chosen here"):
        LocalCluster.create(tmp_path / "c", 1, 1, properties=elsewhere, power_loss="tracked")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("note", ['{"seed": 3}', "", '{"se'])
def test_a_power_loss_that_was_interrupted_is_ended_before_the_node_goes_on(
    note: str, tmp_path: Path
) -> None:
    made = LocalCluster.create(tmp_path, 1, 1, power_loss="tracked")
    node = made.brokers[0]
    (made.home(node) / "power-loss.json").write_text(note)
    with subprocess.Popen(["sleep", "60"]) as process:
        made._children[node.name] = CommandChild(process)
        made.pause(node)
        made.resume(node)
        assert process.wait(10) == -signal.SIGKILL
    assert not (made.home(node) / "power-loss.json").exists()


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_a_folder_that_cannot_be_is_one_line(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(main, ["cluster", command, "--dir", str(tmp_path / "file" / "below")])
    assert result.exit_code == 1
    assert result.output.startswith("error: CLUSTER_ERROR: ")
    assert len(result.output.splitlines()) == 1
