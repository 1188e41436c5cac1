"""What the judges that are not Python need: Java's libraries, Go's modules, npm's packages, kcat.

Each is found or fetched by its own package manager into that one's cache; a test that cannot have it is
skipped and says how to get it.
"""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.durability.java import NoJava, find_java
from holdfast.localcluster.ports import ReservedPorts

#: A first fetch or compilation, on a busy machine.
FETCH_TIMEOUT_S = 600
#: A tool that talks to a cluster.
RUN_TIMEOUT_S = 120
PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
_CHATTER = re.compile("SLF4J|StatusLogger|^$")
#: A JVM that starts soon and works shortly.
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_HERE = Path(__file__).parent


def program(name: str, how: str) -> str:
    """The path of a program; the test is skipped when it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: {how}")
    return found


@cache
def java() -> str:
    """The path of a Java that is new enough."""
    try:
        return str(Path(find_java(os.environ).home) / "bin" / "java")
    except NoJava as error:
        pytest.skip(str(error))


@cache
def jars(folder: str) -> tuple[Path, ...]:
    """The libraries that the pom.xml in a folder beside this file names, with all that they need."""
    maven = program("mvn", "apt-get install maven")
    pom = _HERE / folder / "pom.xml"
    environment = {**os.environ, "JAVA_HOME": str(Path(java()).parent.parent)}
    with tempfile.TemporaryDirectory() as scratch:
        found = Path(scratch) / "classpath"
        words = [
            maven,
            "-q",
            "-B",
            "-f",
            str(pom),
            "dependency:build-classpath",
            f"-Dmdep.outputFile={found}",
        ]
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, env=environment, check=False
        )
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip().splitlines()
            pytest.skip(f"Maven cannot fetch what {folder}/pom.xml names: {said[-1] if said else ''}")
        return tuple(Path(path) for path in found.read_text().strip().split(os.pathsep))


class Done(NamedTuple):
    """How a program ended. `err` is without the chatter of logging libraries."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def start_java(main: str, *words: str, folder: str = "java", **options: Any) -> "subprocess.Popen[str]":
    """Start a class of these libraries; `options` are those of Popen."""
    classpath = os.pathsep.join(map(str, jars(folder)))
    return subprocess.Popen([java(), *_JVM, "-cp", classpath, main, *words], text=True, **options)


def java_source(folder: str, file: str, *words: str) -> "subprocess.Popen[str]":
    """Start a Java source file of a folder with the libraries of its pom.xml: a JDK compiles it then."""
    modules = run([java(), "--list-modules"]).out
    if "jdk.compiler" not in modules:
        pytest.skip(f"{java()} compiles nothing: install a JDK")
    return start_java(str(_HERE / folder / file), *words, folder=folder, **PIPES)


def run(words: Sequence[str], stdin: str = "", timeout_s: float = RUN_TIMEOUT_S, **options: Any) -> Done:
    """Run a program to its end."""
    process = subprocess.Popen(
        list(words),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )
    return ended(process, stdin, timeout_s)


def ended(process: "subprocess.Popen[str]", stdin: str = "", timeout_s: float = RUN_TIMEOUT_S) -> Done:
    """Wait for the end of a program; it is killed when it takes too long."""
    try:
        out, err = process.communicate(stdin, timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"not done after {timeout_s} s:\n{out[-2000:]}\n{err[-2000:]}") from None
    said = [line for line in err.splitlines() if not _CHATTER.search(line)]
    return Done(process.returncode, out, "\n".join(said))


class KafkaTools:
    """Kafka's own command line tools, as they are in the libraries."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def start(self, tool: str, *words: str) -> "subprocess.Popen[str]":
        """Start a tool of `org.apache.kafka.tools`."""
        main = f"org.apache.kafka.tools.{tool}"
        return start_java(main, "--bootstrap-server", self.bootstrap, *words, **PIPES)

    def run(self, tool: str, *words: str, stdin: str = "") -> Done:
        """Run it to its end, whether good or bad."""
        return ended(self.start(tool, *words), stdin)

    def succeeds(self, tool: str, *words: str, stdin: str = "") -> Done:
        """Run it; it must succeed."""
        done = self.run(tool, *words, stdin=stdin)
        assert done.code == 0, (tool, words, done)
        return done


def compiled(package: str, made: Path, *, module: str = "franz_go", is_test: bool = False) -> Path:
    """Compile a Go package that `<module>/go.mod` knows, or its own tests; where the program is."""
    go = program("go", f"see https://go.dev/doc/install ({module}/go.mod has the version)")
    folder = _HERE / module
    fetched = run([go, "mod", "download"], timeout_s=FETCH_TIMEOUT_S, cwd=folder)
    if fetched.code != 0:
        pytest.skip(f"Go cannot fetch the modules of {module}/go.mod: {fetched.err.strip()}")
    words = [go, "test", "-c"] if is_test else [go, "build"]
    built = run([*words, "-o", str(made), package], timeout_s=FETCH_TIMEOUT_S, cwd=folder)
    assert built.code == 0, built
    return made


def node_program(folder: str, made: Path) -> list[str]:
    """The words that run `<folder>/judge.js`, whose packages npm fetches into the folder `made`."""
    node, npm = (program(name, "apt-get install nodejs npm") for name in ("node", "npm"))
    if not made.exists():
        shutil.copytree(_HERE / folder, made)
        fetched = run([npm, "ci", "--silent"], timeout_s=FETCH_TIMEOUT_S, cwd=made)
        if fetched.code != 0:
            pytest.skip(f"npm cannot fetch what {folder}/package.json names: {fetched.err.strip()}")
    return [node, str(made / "judge.js")]


@contextmanager
def kafka_server(
    folder: Path, listeners: Mapping[str, str] | None = None, settings: str = ""
) -> Iterator[dict[str, str]]:
    """Kafka itself, broker and controller in one process; {listener: its address}. `listeners`: those beside
    PLAINTEXT, by their protocol."""
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **(listeners or {})}
    reserved = ReservedPorts(len(protocols))
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(protocols, reserved.numbers, strict=True)}
    properties = folder / "server.properties"
    properties.write_text(
        f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{addresses["CONTROLLER"]}
listeners={",".join(f"{name}://{address}" for name, address in addresses.items())}
listener.security.protocol.map={",".join(f"{name}:{protocol}" for name, protocol in protocols.items())}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={folder / "data"}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
{settings}"""
    )
    storage = start_java(
        "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(properties), **PIPES
    )
    done = ended(storage)
    assert done.code == 0, done
    log = folder / "server.log"
    with log.open("w") as out, start_java("kafka.Kafka", str(properties), stdout=out, stderr=out) as server:
        try:
            for address in addresses.values():
                _wait_for_port(int(address.rpartition(":")[2]), server, log)
            yield addresses
        finally:
            server.kill()


def _wait_for_port(port: int, server: "subprocess.Popen[str]", log: Path) -> None:
    deadline_s = time.monotonic() + RUN_TIMEOUT_S
    while True:
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < deadline_s, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
