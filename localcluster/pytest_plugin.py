"""pytest fixtures that give a test a real Holdfast cluster (docs/pytest.md); entry point of `pytest11`.

Every pytest run in an environment that has Holdfast imports this module, so it loads nothing else of Holdfast
until a test asks for a cluster.
"""

import shutil
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.localcluster.pytest_cluster import HoldfastCluster

_OWN, _SHARED = "holdfast_cluster", "holdfast_session_cluster"
#: Lines of each node's log that the report of a failed test shows.
_LOG_LINES = 20
_shared_key = pytest.StashKey["HoldfastCluster"]()
#: folders of clusters with which a test failed: their files are kept
_failed_key = pytest.StashKey[set[Path]]()
_removals_key = pytest.StashKey[list[threading.Thread]]()


# --- fixtures ------------------------------------------------------------------------------------------


@pytest.fixture
def holdfast_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["HoldfastCluster"]:
    """A cluster for this test alone. `@pytest.mark.holdfast(brokers=1)` and the ini file say how large."""
    shape = _shape_of_ini(request.config)
    for mark in reversed(list(request.node.iter_markers("holdfast"))):  # the closest to the test comes last
        shape.update(mark.kwargs, properties={**shape["properties"], **mark.kwargs.get("properties", {})})
    with _running(request.config, tmp_path_factory, shape) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def holdfast_session_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["HoldfastCluster"]:
    """One cluster for all tests that name it, as large as the ini file says; each test finds all nodes up."""
    with _running(request.config, tmp_path_factory, _shape_of_ini(request.config)) as cluster:
        request.session.stash[_shared_key] = cluster
        yield cluster
        del request.session.stash[_shared_key]


# --- hooks ---------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("holdfast_brokers", "brokers of a Holdfast cluster", default="3")
    parser.addini("holdfast_controllers", "controllers of a Holdfast cluster", default="1")
    parser.addini("holdfast_properties", "KEY=VALUE lines for every server.properties", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    text = "holdfast(brokers=3, controllers=1, properties={}): the cluster that holdfast_cluster gives"
    config.addinivalue_line("markers", text)
    config.stash[_failed_key] = set()
    config.stash[_removals_key] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the nodes be loaded while other tests run."""
    wanted = any({_OWN, _SHARED} & set(getattr(item, "fixturenames", ())) for item in session.items)
    if wanted and not session.config.option.collectonly:
        from holdfast.localcluster.launch import shared_launcher

        shared_launcher()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Bring up what an earlier test left down in the session's cluster."""
    cluster = item.session.stash.get(_shared_key, None)
    if cluster is not None and _SHARED in getattr(item, "fixturenames", ()):
        cluster.restart()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Show the end of each node's log with a test that failed."""
    report: pytest.TestReport = (yield).get_result()
    if not report.failed:
        return
    for name in (_OWN, _SHARED):
        cluster: HoldfastCluster | None = getattr(item, "funcargs", {}).get(name)
        if cluster is not None:
            item.config.stash[_failed_key].add(cluster.folder)
            for node in cluster.nodes:
                report.sections.append((f"{node.name} of {name}", cluster.log(node, _LOG_LINES)))


def pytest_unconfigure(config: pytest.Config) -> None:
    for removal in config.stash.get(_removals_key, []):
        removal.join()


# --- inside --------------------------------------------------------------------------------------------


def _shape_of_ini(config: pytest.Config) -> dict[str, Any]:
    numbers = {}
    for what in ("brokers", "controllers"):
        text = config.getini(f"holdfast_{what}")
        if not text.isdecimal() or int(text) < 1:
            raise pytest.UsageError(f"holdfast_{what} = {text}: give a number from 1 on")
        numbers[what] = int(text)
    properties = {}
    for line in config.getini("holdfast_properties"):
        key, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"holdfast_properties has {line!r}: give KEY=VALUE")
        properties[key.strip()] = value.strip()
    return {**numbers, "properties": properties}


@contextmanager
def _running(
    config: pytest.Config, folders: pytest.TempPathFactory, shape: dict[str, Any]
) -> Iterator["HoldfastCluster"]:
    from holdfast.localcluster.pytest_cluster import HoldfastCluster

    folder = folders.mktemp("holdfast") / "cluster"
    with HoldfastCluster.running(folder, **shape) as cluster:
        yield cluster
        folder = cluster.folder
    if folder not in config.stash[_failed_key]:
        # Beside the next test: it takes as long as to start a cluster.
        removal = threading.Thread(target=shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True})
        removal.start()
        config.stash[_removals_key].append(removal)
