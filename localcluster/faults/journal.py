"""What faults have done to a cluster and how each step is undone: JSON lines in the cluster's folder.

A line is written before its step, so a process that dies between any two instructions leaves a cluster that
another one can heal. Undoing is idempotent: a step may not have happened, or be undone already. Owns the
file; how a kind of step is undone is registered by the module whose step it is.
"""

import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.localcluster.processes import FAULTS_FILE, LocalCluster

Undo = Callable[[LocalCluster, Mapping[str, Any]], None]

_UNDO: dict[str, Undo] = {}


def undoes(kind: str) -> Callable[[Undo], Undo]:
    """Register how steps of a kind are undone."""

    def register(undo: Undo) -> Undo:
        assert kind not in _UNDO, kind
        _UNDO[kind] = undo
        return undo

    return register


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a fault, done or about to be done."""

    id: str
    #: the fault's name and target, for people
    fault: str
    target: str
    #: which undo, and what it needs to know (JSON)
    kind: str
    details: Mapping[str, Any]


class FaultJournal:
    """The journal of one cluster. Several processes may append to it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._path = cluster.folder / FAULTS_FILE

    def begin(self, fault: str, target: str, kind: str, details: Mapping[str, Any]) -> Step:
        """Note a step before it is done."""
        assert kind in _UNDO, f"a step of kind {kind} could not be undone"
        step = Step(secrets.token_hex(8), fault, target, kind, details)
        self._append(
            {
                "id": step.id,
                "at_ms": time.time_ns() // 1_000_000,
                "fault": fault,
                "target": target,
                "undo": kind,
                "details": details,
            }
        )
        return step

    def open_steps(self) -> list[Step]:
        """Steps that are not healed, in the order in which they began."""
        steps: dict[str, Step] = {}
        for row in _rows(self._path):
            if "healed" in row:
                steps.pop(row["healed"], None)
            else:
                steps[row["id"]] = Step(row["id"], row["fault"], row["target"], row["undo"], row["details"])
        return list(steps.values())

    def undo(self, steps: Iterable[Step]) -> None:
        """Undo steps, the last one first, as many as can be. Raises: ClusterError or OSError of the first
        that could not be undone; it stays open, so that it can be tried again."""
        failure: Exception | None = None
        for step in reversed(list(steps)):
            try:
                _UNDO[step.kind](self._cluster, step.details)
            except Exception as error:  # noqa: BLE001 - the other faults are healed first
                failure = failure or error
            else:
                self._append({"healed": step.id, "at_ms": time.time_ns() // 1_000_000})
        if failure is not None:
            raise failure

    def _append(self, row: Mapping[str, Any]) -> None:
        line = json.dumps(row).encode() + b"\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # One write: the lines of two processes do not mix.
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return
    for line in lines:
        if line.endswith(b"\n"):  # else its writer died in it, before the step
            yield json.loads(line)
