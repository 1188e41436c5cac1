"""The history of a run: what was done to a cluster and what it did, as JSON lines.

Owns the file and its rows. Each row has `kind` and `t_ms`, milliseconds since the run began:

  run         what, seed, started (ISO), wall_ms, mono_ns, settings {}    the first row; both clocks at t_ms 0
  fault       fault, target, until_ms|null, text                            until_ms: when it was healed
  broker      broker, state registered|online|fenced|stopping|gone, text
  controller  controller                                                    the active one from here on
  partition   topic, partition, leader|null, leader_epoch, isr, elr, last_known_elr, min_isr, why [sentences],
              is_election, is_unclean
  load        until_ms, acked, failed, p50_ms|null, p99_ms|null, max_ms|null   of the sends that ended then
  note        text
  verdict     exit_code, counts {}, facts {}, samples {}, reasons [], notes []; not Spark's: also judge, says

A reader passes over kinds and fields that it does not know, and a last line that was cut.
"""

import json
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HISTORY_FILE = "history.jsonl"

Row = Mapping[str, Any]


class History:
    """Written while the run goes on: a row is in the file when the call returns."""

    def __init__(self, file: Path, what: str, seed: int, settings: Mapping[str, Any] | None = None) -> None:
        """Begin a new history; a file of that name is replaced."""
        self._file = file
        #: {target: [(since, fault, text)]}
        self._faults: dict[str, list[tuple[float, str, str]]] = {}
        self.mono_ns = time.monotonic_ns()
        self.wall_ms = time.time_ns() // 1_000_000
        started = datetime.fromtimestamp(self.wall_ms / 1000, UTC).isoformat(timespec="seconds")
        file.write_text("", encoding="utf-8")
        self.write(
            kind="run",
            t_ms=0,
            what=what,
            seed=seed,
            started=started,
            wall_ms=self.wall_ms,
            mono_ns=self.mono_ns,
            settings=dict(settings or {}),
        )

    def now_ms(self) -> float:
        """Milliseconds since the run began."""
        return (time.monotonic_ns() - self.mono_ns) / 1e6

    def write(self, **row: Any) -> None:
        """Append one row; `t_ms` is now unless it is given."""
        self.add([{"t_ms": round(self.now_ms(), 1), **row}])

    def fault_begins(self, fault: str, target: str, text: str) -> None:
        """Something was done to a node, by its name; its row is written when it is healed, or by `close`."""
        self._faults.setdefault(target, []).append((round(self.now_ms(), 1), fault, text))

    def fault_ends(self, target: str) -> None:
        """All that was done to the node is healed."""
        self._end(target, round(self.now_ms(), 1))

    def close(self) -> None:
        """Write the faults that were never healed."""
        for target in list(self._faults):
            self._end(target, None)

    def _end(self, target: str, until_ms: float | None) -> None:
        begun = self._faults.pop(target, [])
        common = {"kind": "fault", "until_ms": until_ms, "target": target}
        self.add({**common, "t_ms": t_ms, "fault": fault, "text": text} for t_ms, fault, text in begun)

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows that have their times."""
        append_rows(self._file, rows)


def append_rows(file: Path, rows: Iterable[Row]) -> None:
    """Append rows to a history that may have been begun by another process."""
    with file.open("a", encoding="utf-8") as opened:
        opened.writelines(json.dumps(dict(row)) + "\n" for row in rows)


def read_history(file: Path) -> list[Row]:
    """The rows of a file, by time, without a last line that was cut.

    Raises: OSError, ValueError for another file.
    """
    rows: list[Row] = []
    lines = file.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):
                break
            raise ValueError(f"{file}:{number} is no row of a history") from None
        if not isinstance(row, dict) or "kind" not in row or "t_ms" not in row:
            raise ValueError(f"{file}:{number} is no row of a history")
        rows.append(row)
    if not rows or rows[0]["kind"] != "run":
        raise ValueError(f"{file} is no history of a run")
    # a cluster has done things before the run began
    return [rows[0], *sorted(rows[1:], key=lambda row: row["t_ms"])]
