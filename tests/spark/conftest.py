"""One Spark session for all tests here: starting one takes longer than most of them."""

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

#: `make check` does without the extra `spark`; `make test` installs it.
collect_ignore_glob = [] if importlib.util.find_spec("pyspark") else ["test_*.py"]


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Any]:
    """Started when the first test wants it."""
    from holdfast.durability.session import start_session

    session = start_session("local[2]", "holdfast tests", is_short=True)
    session.conf.set("spark.sql.shuffle.partitions", 2)
    # some rows a test: compiling queries would cost more than the work; test_launch runs as users do
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield session
    session.stop()


@pytest.fixture(params=["little", "much"])
def little_and_much(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is judged counts as little data, and in a second test as much."""
    from holdfast.durability import scale

    if request.param == "much":
        monkeypatch.setattr(scale, "SMALL_RECORDS", -1)


@pytest.fixture
def spark(spark_session: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The session, with nothing cached by earlier tests. No broker runs whose session could still end."""
    from holdfast.durability import power_cuts

    monkeypatch.setattr(power_cuts, "SESSION_S", 0.0)
    yield spark_session
    spark_session.catalog.clearCache()
