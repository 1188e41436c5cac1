"""What every driver of power losses promises: what was synced survives, and what was not can go (D10).

One process goes through all situations of `power_loss_writer`; then the power of its disk is cut. The drivers
are those that this machine can run; the end of the report names the others, and why.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.power import drivers
from holdfast.localcluster.power.disks import Disks, PowerLoss
from holdfast.localcluster.power.loop_disk import FILE_SYSTEMS, LoopDisk
from tests.contract.power_loss_writer import NEW, OLD, SITUATIONS, TAIL

ROOT = Path(__file__).parents[2]
DRIVERS = drivers.available()
SEEDS = range(6)

Found = dict[str, bytes]


class Machine:
    """A disk and a process on it."""

    def __init__(self, driver: str, home: Path) -> None:
        self.disks: Disks = drivers.disks(driver)
        self.home = home
        home.mkdir()
        self.disks.make(home)
        self._process: subprocess.Popen[str] | None = None

    @property
    def data(self) -> Path:
        return self.disks.data_home(self.home) / "data"

    def start(self) -> None:
        self.disks.attach(self.home)
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.contract.power_loss_writer",
                str(self.data),
                *self.disks.options(self.home),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def lose_power(self, seed: int) -> PowerLoss:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)
        self.disks.look(self.home)
        self.disks.cut(self.home)
        self.kill()
        return self.disks.restore(self.home, seed)

    def found(self, situation: str) -> Found:
        folder = self.data / situation
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@contextmanager
def machine(driver: str, home: Path) -> Iterator[Machine]:
    made = Machine(driver, home)
    try:
        yield made
    finally:
        made.kill()
        made.disks.detach(home)


def starts(content: bytes, *pieces: bytes) -> bool:
    """The pieces are there, and what follows them is no more than the tail."""
    promised = b"".join(pieces)
    return content[: len(promised)] == promised and len(content) <= len(promised) + 2 * len(TAIL)


def check(situation: str, found: Found) -> None:
    """Only what a power loss may leave of a situation was left. Without it, everything is there."""
    log = found.get("0.log", b"")
    lawful = {
        "appended": starts(log, OLD),
        "appended_in_a_second_flush": starts(log, OLD, NEW),
        "truncated": log == OLD or starts(log, OLD[:1_000]),
        "truncated_and_flushed": starts(log, OLD[:1_000], NEW[:1_000]),
        "made": log in (b"", NEW),
        "replaced": found in ({"file": OLD, "file.tmp": NEW}, {"file": NEW}),
        "replaced_and_synced": found == {"file": NEW},
        "unlinked": found in ({}, {"file": OLD}),
        "unlinked_and_synced": found == {},
        "removed": found in ({}, {"log/file": OLD}),
        "moved_and_synced": found == {"moved/file": OLD + NEW},
    }
    assert lawful[situation], f"{situation}: {[(name, len(data), data[:20]) for name, data in found.items()]}"


def is_whole(situation: str, found: Found) -> bool:
    """Nothing of the situation was lost."""
    log = found.get("0.log", b"")
    return {
        "appended": log == OLD + TAIL,
        "appended_in_a_second_flush": log == OLD + NEW + TAIL,
        "truncated": log == OLD[:1_000] + TAIL,
        "truncated_and_flushed": log == OLD[:1_000] + NEW[:1_000] + TAIL,
    }.get(situation, True)


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_was_synced_survives_and_unsynced_bytes_are_lost(driver: str, tmp_path: Path) -> None:
    for seed in SEEDS if driver == "tracked" else range(2):
        with machine(driver, tmp_path / f"node-{seed}") as node:
            node.start()
            loss = node.lose_power(seed)
            for situation in SITUATIONS:
                found = node.found(situation.__name__)
                check(situation.__name__, found)
                if "appended" in situation.__name__ or "truncated" in situation.__name__:
                    assert not is_whole(situation.__name__, found), f"{situation.__name__} lost nothing"
            told = {file.path: file for file in loss.files}
            appended = told[str((node.data / "appended" / "0.log").relative_to(node.home))]
            assert appended.size_before == len(OLD) + len(TAIL)
            assert appended.good_until >= len(OLD) - 4096
            assert loss.log_bytes_lost > 0


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_kill_loses_nothing_and_a_later_power_loss_what_the_killed_process_had_not_synced(
    driver: str, tmp_path: Path
) -> None:
    with machine(driver, tmp_path / "node") as node:
        node.start()
        node.kill()
        for situation in SITUATIONS:
            assert is_whole(situation.__name__, node.found(situation.__name__))
        node.start()
        assert node.found("appended")["0.log"] == OLD + TAIL + TAIL
        node.lose_power(1)
        for situation in SITUATIONS:
            check(situation.__name__, node.found(situation.__name__))
        assert not node.found("appended")["0.log"].startswith(OLD + TAIL)


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_a_power_loss_has_left_is_durable(driver: str, tmp_path: Path) -> None:
    """Also a loss that comes at once, while no process runs, or that is repeated after an interruption."""
    with machine(driver, tmp_path / "node") as node:
        node.start()
        node.lose_power(1)
        left = {situation.__name__: node.found(situation.__name__) for situation in SITUATIONS}
        assert node.lose_power(2).files == ()
        node.disks.detach(node.home)
        node.disks.attach(node.home)
        for _ in range(2):
            node.disks.look(node.home)
            node.disks.cut(node.home)
        node.disks.restore(node.home, 3)
        assert left == {situation.__name__: node.found(situation.__name__) for situation in SITUATIONS}


def test_tracked_disks_work_everywhere_and_the_others_say_why_not() -> None:
    assert "tracked" in DRIVERS
    assert drivers.choose("auto") == DRIVERS[0]
    for name in drivers.NAMES:
        reason = drivers.why_not(name)
        assert (reason == "") == (name in DRIVERS)
        if reason:
            with pytest.raises(ClusterError, match="tracked works everywhere"):
                drivers.choose(name)


@pytest.mark.parametrize("driver", [name for name in DRIVERS if name in FILE_SYSTEMS])
def test_a_loop_device_of_another_program_is_not_touched(driver: str, tmp_path: Path) -> None:
    with machine(driver, tmp_path / "node") as node:
        node.start()
        (tmp_path / "other.img").touch()
        other = LoopDisk(tmp_path / "other.img", node.disks.data_home(node.home), FILE_SYSTEMS[driver])
        for step in (other.cut_power, other.unmount, other.mount):
            with pytest.raises(ClusterError, match=r"disk.img, not .*other.img: not touched"):
                step()
        (node.data / "still-writable").touch()
