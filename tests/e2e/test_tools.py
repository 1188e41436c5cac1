"""The tools of operators against one real cluster of four brokers: nothing but the command line.

One cluster serves all tests; each leaves every broker running, and no topics.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.localcluster.processes import LocalCluster
from tests.e2e.conftest import QUICK

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("tools"), pytest.mark.timeout(180)]

WAIT_S = 60.0


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The envelope of `--output json`."""
        return json.loads(self.out)


class Tools:
    """A cluster, and commands that ask it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def run(self, *words: str, code: int = 0, text: str = "", servers: str = "") -> Done:
        """Run one command as a user would; it must end with `code`. `servers`: not all of them."""
        done = subprocess.run(
            self.line(*words, servers=servers),
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return Done(done.returncode, done.stdout, done.stderr)

    def line(self, *words: str, servers: str = "") -> list[str]:
        """The words of a command, the servers included."""
        return [
            sys.executable,
            "-m",
            "holdfast.cli",
            *words,
            "--bootstrap-server",
            servers or self.cluster.bootstrap_servers,
        ]

    def create(self, topic: str, assignment: str, min_isr: int = 2) -> None:
        """Create a topic on these brokers."""
        config = f"min.insync.replicas={min_isr}"
        words = ("--topic", topic, "--replica-assignment", assignment, "--config", config)
        self.run("topics", "--create", *words)

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        """What the durability view says of each partition."""
        words = ("--describe", "--durability", "--topic", topic, "--output", "json")
        rows: list[dict[str, Any]] = self.run("topics", *words).json["data"][0]["partitions"]
        return rows

    def wait(self, topic: str, is_so: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """The partitions, once they are so."""
        deadline = time.monotonic() + WAIT_S
        while not is_so(rows := self.partitions(topic)):
            assert time.monotonic() < deadline, rows
            time.sleep(0.1)
        return rows

    def broker(self, verb: str, broker_id: int) -> None:
        """`kill`, `stop`, `start`, `pause` or `resume` a broker."""
        folder = str(self.cluster.folder)
        words = ["cluster", verb, "--dir", folder, "--broker", str(broker_id)]
        subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *words], check=True, capture_output=True, timeout=120
        )


@pytest.fixture(scope="module")
def shared_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """Four brokers, one controller."""
    cluster = LocalCluster.create(tmp_path_factory.mktemp("tools") / "cluster", 4, 1, properties=QUICK)
    try:
        cluster.up()
        yield Tools(cluster)
    finally:
        for node in cluster.nodes:
            cluster.resume(node)
        cluster.kill(cluster.nodes)


@pytest.fixture
def tools(shared_tools: Tools) -> Iterator[Tools]:
    """The cluster, without topics afterwards."""
    yield shared_tools
    shared_tools.run("topics", "--delete", "--topic", ".*", "--if-exists")


def write(folder: Path, content: object) -> str:
    path = folder / "input.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def all_in_sync(rows: list[dict[str, Any]]) -> bool:
    return all(sorted(row["replicas"]) == row["isr"] and row["leader"] is not None for row in rows)


def test_topics_are_made_extended_found_and_deleted(tools: Tools) -> None:
    tools.create("made-a", "1:2,2:3")
    tools.create("made-b", "1:2")
    tools.run("topics", "--alter", "--topic", "made-a", "--partitions", "4")
    refused = tools.run("topics", "--alter", "--topic", "made-a", "--partitions", "2", code=1)
    assert "made-a: INVALID_PARTITIONS" in refused.err
    # pages of one partition hold the same as one page of all
    words = ("topics", "--describe", "--topic", "made-.*")
    lines = tools.run(*words, "--partition-size-limit-per-response", "1").out
    assert lines == tools.run(*words).out
    assert lines.count("\tPartition: ") == 5
    topic_id = tools.run("topics", "--describe", "--topic", "made-b", "--output", "json").json["data"][0][
        "topic_id"
    ]
    assert tools.run("topics", "--describe", "--topic-id", topic_id).out.startswith("Topic: made-b\t")
    tools.run("topics", "--delete", "--topic", "made-[ab]")
    assert tools.run("topics", "--list", "--topic", "made.*", "--exclude-internal").out == ""
    tools.run("topics", "--delete", "--topic", "made-a", code=1)
    tools.run("topics", "--delete", "--topic", "made-a", "--if-exists")


def test_configuration_is_set_shown_and_taken_away(tools: Tools) -> None:
    tools.create("configured", "1:2:3")
    alter = ("configs", "--alter", "--entity-type", "topics", "--entity-name", "configured")
    describe = ("configs", "--describe", "--entity-type", "topics", "--entity-name", "configured")
    tools.run(*alter, "--add-config", "segment.bytes=1048576,min.insync.replicas=3")
    assert (
        "  segment.bytes=1048576 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:" in tools.run(*describe).out
    )
    tools.wait("configured", lambda rows: rows[0]["min_isr"] == 3)
    tools.run(*alter, "--delete-config", "segment.bytes", "--add-config", "min.insync.replicas=1")
    assert "segment.bytes" not in tools.run(*describe).out
    assert "segment.bytes" in tools.run(*describe, "--all").out
    tools.wait("configured", lambda rows: rows[0]["min_isr"] == 1)
    refused = tools.run(*alter, "--add-config", "min.insync.replicas=0,segment.bytes=2097152", code=1)
    assert "configured: INVALID_CONFIG: min.insync.replicas=0: expected an integer" in refused.err
    assert "segment.bytes" not in tools.run(*describe).out
    # what a new cluster has, the manager on included (D8), is switched at run time and back
    switch = ("configs", "--alter", "--entity-type", "cluster", "--add-config")
    tools.run(*switch, "unclean.recovery.manager.enabled=true,unclean.recovery.strategy=Aggressive")
    shown = tools.run("configs", "--describe", "--entity-type", "brokers", "--entity-default").out
    assert "  unclean.recovery.manager.enabled=true " in shown
    back = "unclean.recovery.manager.enabled,unclean.recovery.strategy"
    tools.run("configs", "--alter", "--entity-type", "cluster", "--delete-config", back)
    words = ("--entity-type", "brokers", "--entity-name", "2", "--add-config", "min.insync.replicas=2")
    assert "while ELR is enabled" in tools.run("configs", "--alter", *words, code=1).err


def test_elr_is_switched_off_and_on_while_the_cluster_runs(tools: Tools) -> None:
    tools.create("featured", "1:2:3")
    feature = ("--feature", "eligible.leader.replicas.version=0")
    assert tools.run("features", "downgrade", *feature, "--dry-run").out.endswith("can be downgraded to 0.\n")
    tools.run("features", "upgrade", *feature, code=1)
    tools.run("features", "downgrade", *feature)
    tools.wait("featured", lambda rows: rows[0]["elr"] is None)
    assert "\tElr: N/A\tLastKnownElr: N/A\n" in tools.run("topics", "--describe", "--topic", "featured").out
    tools.run("features", "upgrade", "--feature", "eligible.leader.replicas.version=1")
    tools.wait("featured", lambda rows: rows[0]["elr"] == [])
    refused = tools.run("features", "upgrade", "--feature", "eligible.leader.replicas.version=9", code=1)
    assert refused.out.startswith("Could not upgrade eligible.leader.replicas.version to 9. ")
    assert "FinalizedVersionLevel: 1\t" in tools.run("features", "describe").out


def test_partitions_move_there_and_back_and_a_move_can_be_cancelled(tools: Tools, tmp_path: Path) -> None:
    tools.create("moved", "1:2,2:3")
    tools.wait("moved", all_in_sync)
    lines = "".join(f"{number}\n" for number in range(500))
    tools.run("console-producer", "--topic", "moved", text=lines)
    topics = write(tmp_path, {"version": 1, "topics": [{"topic": "moved"}]})
    generate = ("reassign-partitions", "--generate", "--topics-to-move-json-file", topics)
    proposed = tools.run(*generate, "--broker-list", "3,4").out.splitlines()[-1]
    execute = ("reassign-partitions", "--execute", "--wait", "--reassignment-json-file")
    moved = tools.run(*execute, write(tmp_path, proposed)).out.splitlines()
    assert moved[5] == "Successfully started partition reassignments for moved-0,moved-1"
    assert moved[-2:] == [f"Reassignment of partition moved-{i} is completed." for i in (0, 1)]
    assert all(sorted(row["replicas"]) == [3, 4] for row in tools.partitions("moved"))
    consume = ("console-consumer", "--topic", "moved", "--from-beginning", "--max-messages", "500")
    assert len(tools.run(*consume).out.splitlines()) == 500
    # who names an offset that is not there is not given others
    beyond = tools.run("console-consumer", "--topic", "moved", "--partition", "0", "--offset", "999", code=1)
    assert beyond.out == ""
    assert "moved-0 has no offset 999: seek" in beyond.err
    tools.run("topics", "--create", "--topic", "a\udcff", code=2)
    # what was printed before the move leads back
    tools.run(*execute, write(tmp_path, moved[2]))
    assert [row["replicas"] for row in tools.partitions("moved")] == [[1, 2], [2, 3]]
    # a broker that is silent cannot take part: the move stays under way until it is ended
    tools.broker("pause", 4)
    try:
        rows = [{"topic": "moved", "partition": 0, "replicas": [2, 4]}]
        path = write(tmp_path, {"version": 1, "partitions": rows})
        tools.run("reassign-partitions", "--execute", "--reassignment-json-file", path)
        tools.wait("moved", lambda found: 4 in found[0]["replicas"])
        listed = tools.run("reassign-partitions", "--list").out.splitlines()
        assert listed[1] == "moved-0: replicas: 2,4,1. adding: 4. removing: 1."
        lines = tools.run("topics", "--describe", "--topic", "moved").out
        assert "\tIsr: 1,2\tAdding Replicas: 4\tRemoving Replicas: 1\tElr: \t" in lines
        verify = ("reassign-partitions", "--verify", "--reassignment-json-file", path)
        assert "Reassignment of partition moved-0 is still in progress.\n" in tools.run(*verify).out
        late = tools.run(*verify, "--wait", "--timeout-ms", "5000", code=1)
        assert "moved-0: REQUEST_TIMED_OUT" in late.err
        again = tools.run("reassign-partitions", "--execute", "--reassignment-json-file", path, code=1)
        assert "Use --additional" in again.err
        cancelled = tools.run("reassign-partitions", "--cancel", "--reassignment-json-file", path).out
        assert cancelled == "Successfully cancelled partition reassignment for: moved-0\n"
    finally:
        tools.broker("resume", 4)
    assert tools.wait("moved", all_in_sync)[0]["replicas"] == [1, 2]


def test_a_throttled_move_ends_when_it_may_and_holds_back_nothing_else(tools: Tools, tmp_path: Path) -> None:
    """At a byte a second the first batch is followed by none for the length of this test."""
    tools.create("slow", "1:2")
    tools.create("free", "1:2")
    tools.wait("slow", all_in_sync)
    lines = "".join(f"{number}\n" for number in range(500))
    produce = ("console-producer", "--topic", "slow")
    for _ in range(3):  # a batch or more each
        tools.run(*produce, text=lines)
    slow, free = (["--reassignment-json-file", str(tmp_path / name)] for name in ("slow", "free"))
    for name in ("slow", "free"):
        rows = [{"topic": name, "partition": 0, "replicas": [1, 3]}]
        (tmp_path / name).write_text(json.dumps({"partitions": rows}))
    execute, verify = ("reassign-partitions", "--execute"), ("reassign-partitions", "--verify")
    begun = tools.run(*execute, *slow, "--throttle", "1").out.splitlines()
    assert begun[-2:] == [
        "The inter-broker throttle limit was set to 1 B/s",
        "Successfully started partition reassignment for slow-0",
    ]
    # the same leader, the same follower: neither replicas in sync nor other moves wait
    tools.run(*produce, text=lines)
    tools.run(*execute, *free, "--additional", "--wait")
    progress = tools.run(*verify, *slow).out.splitlines()[1:]
    assert progress == ["Reassignment of partition slow-0 is still in progress."]
    rates = ("configs", "--describe", "--entity-type", "brokers", "--entity-name", "3")
    assert "follower.replication.throttled.rate=1 " in tools.run(*rates).out
    ended = tools.run(*execute, *slow, "--additional", "--wait", "--throttle", "100000000").out.splitlines()
    assert ended[-3:] == [
        "Reassignment of partition slow-0 is completed.",
        "Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topic slow",
    ]
    assert "throttled" not in tools.run(*rates).out
    assert tools.partitions("slow")[0]["replicas"] == [1, 3]


def test_leadership_goes_to_the_preferred_and_to_the_designated_replica(tools: Tools, tmp_path: Path) -> None:
    """R17, R18: min ISR 1, so that the last member of the ISR is the only one that is complete."""
    tools.create("elected", "1:2", min_isr=1)
    one = ("--topic", "elected", "--partition", "0")
    tools.wait("elected", all_in_sync)
    tools.broker("stop", 2)
    tools.wait("elected", lambda rows: rows[0]["isr"] == [1])
    tools.broker("kill", 1)
    (row,) = tools.wait("elected", lambda rows: rows[0]["leader"] is None)
    assert row["state"] == "WAITING_ELR(1: fenced) LastKnownLeader: 1"
    tools.broker("start", 2)
    elect = ("leader-election", "--election-type")
    refused = tools.run(*elect, "preferred", *one, code=1)
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in refused.out
    assert refused.err == "1 replica(s) could not be elected\n"
    designate = (*elect, "DESIGNATED", *one, "--designated-leader")
    tools.run(*designate, "1", code=1)
    tools.run(*designate, "4", code=1)
    dry = tools.run(*designate, "2", "--dry-run").out
    assert dry == "elected-0: would elect 2 (designated); records may be lost\n"
    assert tools.partitions("elected")[0]["leader"] is None
    done = tools.run(*designate, "2").out
    assert done == "Successfully completed leader election (DESIGNATION) for partitions elected-0\n"
    assert tools.run(*designate, "2").out == "Valid replica already elected for partitions elected-0\n"
    tools.broker("start", 1)
    tools.wait("elected", lambda rows: rows[0]["isr"] == [1, 2])
    path = write(tmp_path, {"partitions": [{"topic": "elected", "partition": 0}]})
    tools.run(*elect, "Preferred", "--path-to-json-file", path)
    assert tools.wait("elected", lambda rows: rows[0]["leader"] == 1)


def test_records_are_deleted_below_an_offset(tools: Tools, tmp_path: Path) -> None:
    tools.create("shortened", "1:2:3,2:3:1")
    tools.wait("shortened", all_in_sync)
    lines = "".join(f"key{number}\tvalue{number}\n" for number in range(20))
    key = ("--property", "parse.key=true")
    tools.run("console-producer", "--topic", "shortened", *key, text=lines)

    def offsets(time: str) -> dict[int, int]:
        words = ("get-offsets", "--topic", "shortened", "--time", time, "--output", "json")
        return {row["partition"]: row["offset"] for row in tools.run(*words).json["data"]}

    ends = offsets("latest")
    assert sum(ends.values()) == 20
    one = ("delete-records", "--topic", "shortened", "--partition", "0", "--offset")
    assert "partition: shortened-0\tlow_watermark: 1" in tools.run(*one, "1").out
    refused = tools.run(*one, str(ends[0] + 1), code=1)
    assert "partition: shortened-0\terror: OFFSET_OUT_OF_RANGE" in refused.out + refused.err
    rows = [{"topic": "shortened", "partition": number, "offset": -1} for number in (0, 1)]
    path = write(tmp_path, {"version": 1, "partitions": rows})
    tools.run("delete-records", "--offset-json-file", path)
    assert offsets("earliest") == ends
    assert "--topic, --partition and --offset go together" in tools.run(*one[:3], code=2).err


def test_a_broker_may_stop_or_not_and_the_view_says_what_is_survived(tools: Tools) -> None:
    tools.create("counted", "1:2:3")
    tools.wait("counted", all_in_sync)
    (row,) = tools.partitions("counted")
    assert (row["next_leader"], row["failures_survived"]) == (2, {"writes": 1, "online": 2, "lossy": 1})
    # nothing is flushed yet, so all that was acknowledged would be gone with the power
    tools.run("console-producer", "--topic", "counted", text="x\n" * 20)
    (row,) = tools.partitions("counted")
    assert (row["log_end_offset"], row["high_watermark"], row["at_risk"]) == (20, 20, 20)
    can_stop = ("check", "can-stop", "--broker")
    assert tools.run(*can_stop, "1").out.startswith("CAN-STOP OK: ")
    tools.broker("kill", 3)
    tools.wait("counted", lambda rows: rows[0]["isr"] == [1, 2])
    assert "counted-0" in tools.run(*can_stop, "1", code=1).out
    assert tools.run("topics", "--describe", "--under-replicated-partitions").out != ""
    tools.broker("stop", 2)
    tools.wait("counted", lambda rows: rows[0]["isr"] == [1])
    lines = tools.run("topics", "--describe", "--durability", "--topic", "counted").out.splitlines()
    assert lines[1].split()[7:11] == ["1", "2", "-", "2*"]
    assert "counted-0" in tools.run(*can_stop, "1", code=2).out
    assert "Elr: 2\t" in tools.run("topics", "--describe", "--elr-partitions").out
    tools.broker("start", 2)
    tools.broker("start", 3)
    tools.wait("counted", all_in_sync)
    tools.run(*can_stop, "9", code=3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_watch_goes_on_until_a_signal(tools: Tools, number: signal.Signals) -> None:
    line = tools.line("topics", "--list", "--watch", "0.1", "--output", "json")
    with subprocess.Popen(line, stdout=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdout is not None
        shown = [json.loads(process.stdout.readline()) for _ in range(3)]
        assert all(found["ok"] for found in shown)
        process.send_signal(number)
        assert process.wait(20) == 128 + number


def test_what_is_sent_and_read_is_measured(tools: Tools) -> None:
    tools.create("measured", "1:2:3,2:3:1")
    words = ("--topic", "measured", "--num-records", "2000")
    text = tools.run("producer-perf-test", *words, "--record-size", "50", "--warmup-records", "10").out
    assert re.search(r"^2000 records sent, .* ms avg latency, .* ms 50th, .* ms 95th, ", text, re.MULTILINE)
    words = ("--topic", "measured", "--output", "json")
    patience = ("--timeout", "60000")
    read = tools.run("consumer-perf-test", *words, "--num-records", "2010", *patience).json["data"]
    assert (read["records"], round(read["mb"] * (1 << 20))) == (2010, 2010 * 50)
    short = tools.run("consumer-perf-test", *words, "--num-records", "2011", "--timeout", "1000", code=1).json
    assert (short["data"]["records"] <= 2010, short["errors"][0]["code"]) == (True, "TIMED_OUT")
    there_and_back = tools.run("e2e-latency", *words, "--num-records", "20").json["data"]
    assert there_and_back["records"] == 20
    assert 0 < there_and_back["p50_ms"] <= there_and_back["p99_ms"] <= there_and_back["max_ms"]
    tools.run("topics", "--delete", "--topic", "measured")


def test_a_broker_that_is_gone_for_good_is_forgotten(tools: Tools) -> None:
    tools.broker("stop", 4)
    words = ("cluster", "unregister", "--id", "4")
    assert tools.run(*words).out == "Broker 4 is no longer registered.\n"
    assert "BROKER_ID_NOT_REGISTERED" in tools.run(*words, code=1).err
    tools.run("check", "can-stop", "--broker", "4", code=3)
    tools.broker("start", 4)
    deadline = time.monotonic() + WAIT_S
    # a start without previous registration is a new broker; it serves like any other
    while subprocess.run(tools.line("check", "can-stop", "--broker", "4"), capture_output=True).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("standard_input", ["</dev/null", "<pyproject.toml", "<&-"])
def test_an_input_that_cannot_be_waited_for_has_ended(tools: Tools, standard_input: str) -> None:
    """A producer goes on until its input ends; that of a pipe is what the demo waits for."""
    tools.create("t", "1:2:3")
    words = tools.line("verifiable-producer", "--topic", "t", "--max-messages", "5", "--until-eof", "--quiet")
    command = ["sh", "-c", f'"$0" "$@" {standard_input}', *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["acked"] for row in told if row["name"] == "tool_data"] == [5]
