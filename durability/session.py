"""Starts Spark the way Holdfast wants it: a Java that works, few and small partitions, no web page.

Owns the session's configuration and the environment of driver and workers; knows nothing of verdicts.
"""

import logging
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import holdfast
from holdfast.durability.java import prepare_environment

#: Heap of the driver, which in local mode does all the work of Java.
DRIVER_MEMORY = "2g"
#: Starts faster than the default collector, and a verdict's data is soon garbage.
_JAVA_OPTIONS = "-XX:+UseSerialGC"
_LOG_OPTION = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
#: On two busy cores the thorough compiler takes more from a short job than it gives.
_QUICK_COMPILATION = "-XX:TieredStopAtLevel=1"
_ENDED_WITH = re.compile(r'^Exception in thread "main" [\w.$]+: (.+)$', re.MULTILINE)
#: the folder that holds the package `holdfast`
_ROOT = str(Path(holdfast.__file__).resolve().parent.parent)


def is_on_loopback(master: str) -> bool:
    """True when driver and workers of this master are surely on one machine."""
    return master.startswith("local") or re.match(r"spark://(127\.|localhost[:/])", master) is not None


def local_path(path: Path) -> str:
    """How Spark names a local file or folder: no URI, for its escapes would become part of the name."""
    return f"file:{path.resolve()}"


def local_source(path: Path) -> str:
    """As `local_path`, for readers: they take names for patterns."""
    return re.sub(r"([\\{}\[\]*?^,])", r"\\\1", local_path(path))


def start_session(
    master: str = "local[*]",
    app_name: str = "holdfast",
    *,
    is_short: bool = False,
    memory: str | None = None,
    more: Mapping[str, str] | None = None,
) -> Any:
    """A SparkSession on `master`, with Holdfast's data sources registered.

    `is_short`: the work is done before thorough compilation would pay. `memory`: heap of the driver and of
    each executor, as Spark writes it; None for DRIVER_MEMORY and what Spark gives executors. `more`: further
    settings of Spark. Raises: durability.java.NoJava.
    """
    os.environ.update(prepare_environment(os.environ, sys.executable, on_loopback=is_on_loopback(master)))
    # Python workers import this very code, whether or not it is installed
    paths = [_ROOT, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))

    from pyspark.sql import SparkSession

    from holdfast.durability.follow_source import FollowedSource
    from holdfast.durability.ledger_source import LedgerSource
    from holdfast.durability.poll_source import PollsSource
    from holdfast.durability.segment_source import SegmentsSource
    from holdfast.durability.source import FilteringSource

    # what failed is in the exception; its second copy, as JSON on stderr, does not help
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    builder = SparkSession.builder.master(master).appName(app_name)
    settings = settings_of(master, is_short=is_short, memory=memory)
    for key, value in (settings | dict(more or {})).items():
        builder = builder.config(key, value)
    with _chatter_of_a_start(), keep_interrupts():
        spark = builder.getOrCreate()
    # two tasks for each core are enough to even out; the default of 200 costs more than the work itself
    spark.conf.set("spark.sql.shuffle.partitions", 2 * spark.sparkContext.defaultParallelism)
    for source in (FilteringSource, SegmentsSource, LedgerSource, PollsSource, FollowedSource):
        spark.dataSource.register(source)
    return spark


def stop_session(spark: Any) -> None:
    """End a session; a Java that has died already needs no telling."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        spark.stop()


@contextmanager
def keep_interrupts() -> Iterator[None]:
    """SIGINT has the same handler afterwards: a Spark that starts takes it, and a Ctrl-C would end with a
    KeyboardInterrupt what is to end with a verdict."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _chatter_of_a_start() -> Iterator[None]:
    """Keep what the JVM says on stderr to ourselves, unless it does not start.

    It inherits our stderr for life and greets with lines about its logging; errors reach us as exceptions.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as chatter:
        os.dup2(chatter.fileno(), 2)
        try:
            yield
        except BaseException as error:
            chatter.seek(0)
            said = chatter.read()
            if (why := why_not_started(said.decode(errors="replace"))) is not None:
                from pyspark.errors import PySparkRuntimeError

                raise PySparkRuntimeError(message=why) from error
            os.write(kept, said)
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def why_not_started(chatter: str) -> str | None:
    """What the JVM ended with on stderr, in one line, such as packages that there are not; None when it does
    not say."""
    found = _ENDED_WITH.search(chatter)
    return found[1].strip("[]") if found else None


def settings_of(master: str, *, is_short: bool, memory: str | None) -> dict[str, str]:
    """What a session is started with."""
    java_options = f"{_JAVA_OPTIONS} {_QUICK_COMPILATION}" if is_short else _JAVA_OPTIONS
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": memory or DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": f"{java_options} {_LOG_OPTION}",
        "spark.executor.extraJavaOptions": java_options,
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    if memory is not None:
        settings["spark.executor.memory"] = memory
    if is_on_loopback(master):
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    return settings
