"""The commands of the README do what it says, typed one after the other as a new user would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.processes import LocalCluster

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(660)]

README = Path(__file__).parents[2] / "README.md"


def commands() -> list[str]:
    """The indented lines of "Use it" up to the containers; the virtual environment is active already."""
    section = README.read_text(encoding="utf-8").split("## Use it")[1].split("With containers:")[0]
    found = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    assert found.pop(0) == ". .venv/bin/activate"
    return found


def free_base_port(tmp_path: Path) -> int:
    """The first of a run of ports that a cluster could take now."""
    for base in range(11_000, 19_000, 100):
        try:
            LocalCluster.create(tmp_path / f"ports-{base}", 3, 3, base_port=base)
        except ClusterError:
            continue
        return base
    raise AssertionError("no run of free ports found")


def until_all_have_an_elr(line: str) -> str:
    """The line typed again until the controllers have heard of what was killed: each partition has an ELR."""
    assert "--describe --topic t" in line
    shown = """[ "$(grep -c $'\\tElr: [0-9]' <<<"$out")" = 3 ]"""
    return f'until out=$({line}); {shown}; do :; done; echo "$out"'


def test_the_commands_of_the_readme_work_in_their_order(tmp_path: Path) -> None:
    # the README's own folder and ports may be in use on this machine
    base = free_base_port(tmp_path)
    lines = [
        re.sub(
            r"\b190(\d\d)\b", lambda found: str(base + int(found[1])), line.replace("/tmp/", f"{tmp_path}/")
        )
        for line in commands()
    ]
    bin_folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    (killed,) = (index for index, line in enumerate(lines) if line.startswith("kill "))
    typed = [*lines[: killed + 1], until_all_have_an_elr(lines[killed + 1]), *lines[killed + 2 :]]
    script = "set -eu\n" + "".join(f"echo '##' {index}\n{line}\n" for index, line in enumerate(typed))
    try:
        done = subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    finally:
        if (tmp_path / "hold" / "cluster.json").exists():
            cluster = LocalCluster.load(tmp_path / "hold")
            cluster.kill(cluster.nodes)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    outputs = dict(zip(lines, re.split(r"^## \d+\n", done.stdout, flags=re.MULTILINE)[1:], strict=True))

    def output(*words: str) -> str:
        (found,) = [text for line, text in outputs.items() if all(word in line for word in words)]
        return found

    assert sorted(output("console-consumer", "t --from-beginning").split(), key=int) == [
        str(number) for number in range(1, 1001)
    ]
    # a partition that got no record has a row when its beginning was looked up before the consumer ended
    rows = [line.split() for line in output("consumer-groups").splitlines()[2:]]
    assert {row[5] for row in rows} == {"0"}, "the lag"
    assert sum(int(row[3]) for row in rows) == 1000, "how far the group has come"
    assert [line.split()[-1] for line in output("--durability").splitlines()] == ["STATE", "OK", "OK", "OK"]
    assert output("can-stop").startswith("CAN-STOP OK: ")
    assert len(re.findall("Reassignment of partition t-[012] is completed", output("--execute"))) == 3
    assert len(re.findall(r"\tElr: \d", output("--describe --topic t"))) == 3
    assert "VERDICT: good" in output("validate")
    assert "isvalid: true" in output("broker-2/data")
    assert output("cluster down").strip() == "down"
