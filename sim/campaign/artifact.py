"""A run that is kept: its story, every draw, and what came of it; enough to play it again and to edit it.

Owns the file format (JSON; draws packed) and what is known of the code that ran. Never runs anything itself.
"""

import base64
import json
import platform
import subprocess
import sys
import zlib
from array import array
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import holdfast
from holdfast.sim.campaign.run import RunResult
from holdfast.sim.campaign.run_spec import RunSpec
from holdfast.sim.cluster.world import ClusterSpec
from holdfast.sim.faults.table import Plan
from holdfast.sim.machine.choices import Choices, Tape

FORMAT = 1
#: the folder that holds the package `holdfast`
_ROOT = Path(holdfast.__file__).resolve().parent.parent


class BadArtifact(Exception):
    """The file holds no run that this version can play. The text says why."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A run with its tape."""

    spec: RunSpec
    tape: Tape
    violation: str | None
    trace_hash: str
    #: handles until the end, or until the violation
    steps: int
    commit: str
    python: str
    #: the name of the mutant that was in the code; empty: none
    mutant: str = ""

    @property
    def property_name(self) -> str | None:
        """The property that was violated."""
        return name_of(self.violation)

    def choices(self) -> Choices:
        """The draws of this run, once more."""
        return Choices(self.spec.seed, tape=self.tape)


def name_of(violation: str | None) -> str | None:
    """The name in front of a violation: I-8, L-4, lost, OwnBug."""
    return None if violation is None else violation.split(maxsplit=1)[0].rstrip(":") if violation else "bug"


def artifact_of(spec: RunSpec, tape: Tape, result: RunResult, mutant: str = "") -> Artifact:
    """The run that just ended."""
    return Artifact(
        spec=spec,
        tape=tape,
        violation=result.violation,
        trace_hash=result.trace_hash,
        steps=result.handles,
        commit=commit(),
        python=platform.python_version(),
        mutant=mutant,
    )


@cache
def commit() -> str:
    """The commit of this code, with `-dirty` when files differ from it; `unknown` outside of a repository."""
    try:
        asked = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return "unknown"
    return asked.stdout.strip() or "unknown"


def save(artifact: Artifact, path: Path) -> None:
    """Write it, whole or not at all."""
    spec = artifact.spec
    row = {
        "format": FORMAT,
        "seed": spec.seed,
        "band": spec.band,
        "mix": spec.mix,
        "seconds": spec.seconds,
        "shape": asdict(spec.shape),
        "plan": asdict(spec.plan),
        "violation": artifact.violation,
        "trace_hash": artifact.trace_hash,
        "steps": artifact.steps,
        "commit": artifact.commit,
        "python": artifact.python,
        "mutant": artifact.mutant,
        "tape": {label: _packed(values) for label, values in sorted(artifact.tape.items())},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(path.name + ".tmp")
    made.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    made.replace(path)


def load(path: Path) -> Artifact:
    """Raises: BadArtifact."""
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        if row["format"] != FORMAT:
            raise BadArtifact(f"{path} has format {row['format']}, expected {FORMAT}")
        spec = RunSpec(
            seed=str(row["seed"]),
            shape=_made(ClusterSpec, row["shape"]),
            seconds=float(row["seconds"]),
            plan=_made(Plan, row["plan"]),
            band=row["band"],
            mix=row["mix"],
        )
        return Artifact(
            spec=spec,
            tape={label: _unpacked(text) for label, text in row["tape"].items()},
            violation=row["violation"],
            trace_hash=row["trace_hash"],
            steps=row["steps"],
            commit=row["commit"],
            python=row["python"],
            mutant=row.get("mutant", ""),
        )
    except (OSError, ValueError, TypeError, KeyError, zlib.error) as error:
        raise BadArtifact(f"{path} is no run of the simulator: {error!r}") from error


def _made(kind: Any, row: dict[str, Any]) -> Any:
    """A dataclass from its fields; strangers are of another version. Raises: ValueError."""
    strangers = sorted(set(row) - {field.name for field in fields(kind)})
    if strangers:
        raise ValueError(f"{kind.__name__} has no {', '.join(strangers)}: another version wrote this")
    return kind(**{name: _as_tuples(value) for name, value in row.items()})


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _packed(values: "array[int]") -> str:
    data = array("Q", values)
    if sys.byteorder == "big":
        data.byteswap()
    return base64.b64encode(zlib.compress(data.tobytes(), 9)).decode()


def _unpacked(text: str) -> "array[int]":
    values = array("Q")
    values.frombytes(zlib.decompress(base64.b64decode(text, validate=True)))
    if sys.byteorder == "big":
        values.byteswap()
    return values
