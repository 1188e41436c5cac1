"""What docs/client.md and examples/ show runs as it stands there, against a real cluster."""

import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker.core.groups.config import partition_of
from holdfast.localcluster.pytest_cluster import QUICK_PROPERTIES
from holdfast.testing import HoldfastCluster
from tests.e2e.pages import ROOT, blocks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

PREAMBLE = """\
import asyncio
import threading

from holdfast import *

servers = "127.0.0.1:19006"


async def main():
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastCluster]:
    with HoldfastCluster.running(tmp_path_factory.mktemp("library") / "cluster") as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: HoldfastCluster) -> str:
    """A fresh topic of three partitions."""
    return cluster.create_topic(partitions=3)


def run(*command: str, timeout_s: float = 60) -> str:
    """What a program prints. It must end with 0."""
    done = subprocess.run(
        [sys.executable, "-W", "default", *command],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert done.stderr == ""
    return done.stdout


def program(block: str, servers: str, topic: str) -> str:
    """A block as a whole program: some are one, the others stand inside a coroutine."""
    if "asyncio.run(main())" not in block:
        block = PREAMBLE + textwrap.indent(block, "    ") + "\n\nasyncio.run(main())\n"
    return block.replace("127.0.0.1:19006", servers).replace('"t"', f'"{topic}"')


@pytest.mark.parametrize("number", range(len(blocks("client.md"))))
def test_a_block_of_the_page_runs(cluster: HoldfastCluster, topic: str, tmp_path: Path, number: int) -> None:
    file = tmp_path / "program.py"
    file.write_text(program(blocks("client.md")[number], cluster.bootstrap_servers, topic))
    printed = run(str(file))
    if number == 0:
        assert re.fullmatch(rf"written: {topic}-\d, offset 0\nread: b'k' b'v'\n", printed)


def test_the_lines_in_the_readme_run(cluster: HoldfastCluster, topic: str, tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## From a program")[1].split("`pip")[0]
    lines = textwrap.dedent(section).strip()
    assert len([line for line in lines.splitlines() if line]) <= 6
    file = tmp_path / "program.py"
    once = lines.replace("record.value)", "record.value); break").removeprefix(
        "from holdfast import Consumer, Producer"
    )
    file.write_text(program(once.strip() + "\n", cluster.bootstrap_servers, topic))
    assert run(str(file)) == "0 b'v'\n"


def test_the_page_begins_with_a_program_of_fifteen_lines() -> None:
    lines = [line for line in blocks("client.md")[0].splitlines() if line.strip()]
    assert len(lines) <= 15


def test_records_are_produced_one_by_one_and_consumed(cluster: HoldfastCluster, topic: str) -> None:
    printed = run("examples/produce.py", cluster.bootstrap_servers, topic, "one", "two", "three")
    sent = re.findall(r"(\w+): partition \d, offset \d", printed)
    assert sent == ["one", "two", "three"]
    read = run("examples/consume.py", cluster.bootstrap_servers, topic, "--count", "3")
    assert sorted(line.rpartition(" ")[2] for line in read.splitlines()) == ["one", "three", "two"]


def test_many_records_are_produced_and_reading_resumes_where_it_ended(
    cluster: HoldfastCluster, topic: str, tmp_path: Path
) -> None:
    printed = run("examples/produce_many.py", cluster.bootstrap_servers, topic, "5000")
    assert printed.startswith("5000 records acknowledged")
    resume = ("examples/resume.py", cluster.bootstrap_servers, topic, str(tmp_path / "offsets.json"))
    assert len(run(*resume).splitlines()) == 5_000
    assert run(*resume) == ""
    run("examples/produce_many.py", cluster.bootstrap_servers, topic, "7")
    assert len(run(*resume).splitlines()) == 7


def test_a_topic_is_created_changed_and_deleted(cluster: HoldfastCluster) -> None:
    printed = run("examples/admin.py", cluster.bootstrap_servers, "example").splitlines()
    assert printed[0] == "example: 3 replicas, min ISR 2"
    assert len([line for line in printed if line.startswith("partition ")]) == 3
    assert "retention.ms changed: True" in printed
    assert "example" not in printed[-1]


def test_a_program_without_asyncio_sends_and_reads(cluster: HoldfastCluster, topic: str) -> None:
    printed = run("examples/synchronous.py", cluster.bootstrap_servers, topic).splitlines()
    assert printed[1] == "read: from a synchronous program"


def test_a_ledger_has_two_rows_for_each_record(cluster: HoldfastCluster, topic: str, tmp_path: Path) -> None:
    printed = run("examples/ledger.py", cluster.bootstrap_servers, topic, str(tmp_path))
    assert printed.startswith("1000 acknowledged")
    (file,) = tmp_path.glob("example.p0.*.jsonl")
    rows = file.read_text().splitlines()
    assert len([row for row in rows if '"outcome":"ok"' in row]) == 1_000
    assert len(rows) == 2_000


class Member:
    """A run of the program of a member; what it has printed."""

    def __init__(self, servers: str, topic: str) -> None:
        words = ["examples/group.py", servers, topic, topic, "--idle-seconds", "20"]
        self.process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.lines: list[str] = []
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            self.lines += iter(self.process.stdout.readline, "")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.thread.join()

    @property
    def reads(self) -> bool:
        """It has partitions."""
        return bool(re.search(r"now reading \[\d", "".join(self.lines)))

    @property
    def records(self) -> list[str]:
        """`partition/offset` of what it has read; the last line may be half a one."""
        return re.findall(r"^(\d/\d+): .*\n", "".join(self.lines), re.MULTILINE)


def test_a_group_survives_the_death_of_a_member_and_of_its_coordinator(
    cluster: HoldfastCluster, topic: str
) -> None:
    first, second = members = [Member(cluster.bootstrap_servers, topic) for _ in range(2)]
    try:
        cluster.wait_until(lambda: all(member.reads for member in members), 60)
        run("examples/produce_many.py", cluster.bootstrap_servers, topic, "3000")
        first.end()
        partition = partition_of(topic, int(QUICK_PROPERTIES["offsets.topic.num.partitions"]))
        coordinator = cluster.wait_until(lambda: cluster.leader("__consumer_offsets", partition), 30)
        assert coordinator is not None
        cluster.kill(coordinator)
        run("examples/produce_many.py", cluster.bootstrap_servers, topic, "2000")
        cluster.wait_until(lambda: len({*first.records, *second.records}) == 5_000, 60)
        cluster.restart(coordinator)
    finally:
        for member in members:
            member.end()


def test_examples_have_no_other_programs() -> None:
    """Each of them is run above."""
    text = Path(__file__).read_text(encoding="utf-8")
    assert [file.name for file in sorted((ROOT / "examples").glob("*.py")) if file.name not in text] == []
