"""The wheel in an environment of its own, beside an application that has a `client/` and a `protocol.py`.

Nothing is downloaded: what the wheel requires is lent by the environment of these tests, distribution by
distribution, so what it forgets to require is missing there.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from holdfast.testing import HoldfastCluster
from tests.e2e.pages import ROOT, blocks

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]


class Environment:
    """A virtual environment, empty at first."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.bin = folder / "bin"
        (self.site_packages,) = folder.glob("lib/python*/site-packages")

    def lend(self, *requirements: str) -> None:
        """Links to the distributions that these name, and to those that they require themselves."""
        for requirement in requirements:
            wanted = Requirement(requirement)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                continue
            distribution = metadata.distribution(wanted.name)
            origin = Path(str(distribution.locate_file("")))
            tops = {file.parts[0] for file in distribution.files or () if ".." not in file.parts}
            if all((self.site_packages / name).exists() for name in tops):
                continue
            for name in tops - {"__pycache__"}:
                if not (self.site_packages / name).exists():
                    (self.site_packages / name).symlink_to(origin / name)
            self.lend(*(distribution.requires or ()))

    def run(self, *words: str | Path, cwd: Path = ROOT, code: int = 0) -> str:
        """What a command of this environment prints. It must end with `code`."""
        command = [str(self.bin / words[0]), *map(str, words[1:])]
        # nothing of the environment and the checkout that these tests run in
        clean = {key: text for key, text in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}
        done = subprocess.run(
            command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel from the checkout, an sdist, and in `from-sdist` a wheel from that."""
    folder = tmp_path_factory.mktemp("built")

    def python(*words: str | Path, cwd: Path) -> None:
        subprocess.run([sys.executable, *map(str, words)], cwd=cwd, check=True, capture_output=True)

    python("-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(sdist, folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    python("-m", "hatchling", "build", "-t", "wheel", "-d", folder / "from-sdist", cwd=source)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an application whose own modules are called as some of our folders."""
    folder = tmp_path_factory.mktemp("application")
    for name in ("client", "broker", "tests"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"OWNER = 'the application: {name}'\n")
    (folder / "protocol.py").write_text("OWNER = 'the application: protocol'\n")
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """One that has the wheel, what it requires, pytest, and the Kafka client of the page about it."""
    made = Environment(tmp_path_factory.mktemp("environment"))
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        requirements = metadata.PathDistribution(zipfile.Path(archive, f"{Path(name).parent}/")).requires
    made.lend(*(requirements or ()), "pytest", "confluent-kafka")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(made.bin / "python")]
    subprocess.run([*pip, "install", "--no-index", str(wheel)], check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastCluster]:
    with HoldfastCluster.running(tmp_path_factory.mktemp("wheel") / "cluster") as cluster:
        yield cluster


def names(file: Path) -> set[str]:
    with zipfile.ZipFile(file) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_module_below_one_name(wheel: Path) -> None:
    packages = {name.split("/")[0] for name in names(wheel)}
    assert packages == {"holdfast", "holdfast-0.1.0.dist-info"}
    checkout = {
        str(file.relative_to(ROOT))
        for folder in sorted((ROOT / "holdfast").iterdir())
        for file in ([folder] if folder.is_file() else sorted(folder.rglob("*.py")))
        if file.suffix in (".py", ".typed")
    }
    assert {name for name in names(wheel) if name.endswith((".py", ".typed"))} == checkout
    assert "holdfast/py.typed" in checkout


def test_a_wheel_from_the_sdist_holds_the_same(built: Path, wheel: Path) -> None:
    (other,) = (built / "from-sdist").glob("*.whl")
    assert names(other) == names(wheel)


def test_an_installation_adds_one_name(environment: Environment) -> None:
    (record,) = environment.site_packages.glob("holdfast-*.dist-info/RECORD")
    with record.open(newline="") as file:
        installed = {row[0].split("/")[0] for row in csv.reader(file)}
    assert installed == {"holdfast", record.parent.name, ".."}  # "..": the command in bin


def test_the_first_program_of_the_page_produces_and_consumes(
    environment: Environment, application: Path, cluster: HoldfastCluster
) -> None:
    topic = cluster.create_topic("t", partitions=3)
    program = blocks("client.md")[0].replace("127.0.0.1:19006", cluster.bootstrap_servers)
    (application / "program.py").write_text(
        program + "\nimport client, protocol\n\nprint(client.OWNER, protocol.OWNER)\n"
    )
    printed = environment.run("python", "-W", "error", "program.py", cwd=application)
    assert re.fullmatch(
        rf"written: {topic}-\d, offset 0\nread: b'k' b'v'\n"
        "the application: client the application: protocol\n",
        printed,
    )


def test_the_tests_of_the_page_about_pytest_pass(environment: Environment, application: Path) -> None:
    pages = blocks("pytest.md")
    for number, block in enumerate(pages):
        (application / "tests" / f"test_page_{number}.py").write_text(block)
    printed = environment.run(
        "python", "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", "tests", cwd=application
    )
    assert f"{len(pages)} passed" in printed


def test_the_command_runs_a_cluster_and_names_the_extra_that_it_misses(
    environment: Environment, application: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "hold"
    made = environment.run(
        *("holdfast", "cluster", "up", "--brokers", "1", "--controllers", "1", "--dir", folder),
        cwd=application,
    )
    found = re.search(r"bootstrap servers: (\S+)", made)
    assert found is not None
    environment.run(
        *("holdfast", "topics", "--bootstrap-server", found[1], "--create", "--topic", "t"), cwd=application
    )
    environment.run("holdfast", "cluster", "down", "--dir", folder, "--delete", cwd=application)
    told = environment.run(*("holdfast", "demo", "--keep", tmp_path / "demo"), cwd=application, code=1)
    assert "is missing: install the extra `spark`" in told
    assert not (tmp_path / "demo").exists()


def test_a_type_checker_sees_the_names_of_the_wheel(
    environment: Environment, application: Path, tmp_path: Path
) -> None:
    (tmp_path / "typed.py").write_text(
        "from holdfast import Consumer, Producer\n\n"
        "async def main() -> None:\n"
        "    async with Producer('h:1', acks='all') as producer:\n"
        "        reveal_type(await producer.send('t', b'v'))\n"
        "    async for record in Consumer('h:1', 't'):\n"
        "        reveal_type(record)\n"
        "    Producer('h:1', acks=2)\n"
    )
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull]
    where = ["--cache-dir", str(tmp_path / "cache"), "--python-executable", str(environment.bin / "python")]
    done = subprocess.run(
        [*mypy, *where, "typed.py"],
        cwd=tmp_path,
        env={key: text for key, text in os.environ.items() if key not in ("PYTHONPATH", "MYPYPATH")},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert "holdfast.client.delivery.RecordMetadata" in lines[0]
    assert "holdfast.client.core.consumer_records.ConsumerRecord" in lines[1]
    assert 'has incompatible type "Literal[2]"' in lines[2]
    assert len(lines) == 4, done.stdout + done.stderr
