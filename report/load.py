"""Rows `load` of a history out of the ledgers of its producers: rates and latencies by interval.

A ledger has two lines a record, and no more is kept of them than one number a record that is on its way.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast.report.history import Row

#: Intervals of a picture: short enough for a failover of 50 ms to show, few enough to draw.
INTERVALS_MAX = 400
INTERVAL_LEAST_MS = 100.0
_GOOD = ("ok", "ok1")


def load_rows(ledgers: Iterable[Path], topic: str | None, mono_ns: int) -> list[Row]:
    """Rows for all sends to a topic, None: to any; `mono_ns` is the monotonic clock when the run began."""

    def ends() -> Iterator[_End]:
        for ledger in ledgers:
            with ledger.open("rb") as lines:
                yield from _ends(lines, topic, mono_ns)

    return _rows(ends())


def load_rows_of(ledgers: Iterable[bytes], mono_ns: int) -> list[Row]:
    """The same of ledgers in memory, for all topics."""
    return _rows(end for ledger in ledgers for end in _ends(ledger.splitlines(), None, mono_ns))


def _rows(ends: Iterable["_End"]) -> list[Row]:
    ended = sorted(ends)
    if not ended:
        return []
    first, last = ended[0][0], ended[-1][0]
    width = max(INTERVAL_LEAST_MS, (last - first) / INTERVALS_MAX)
    found: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for end_ms, latency_ms, is_acked in ended:
        found[int((end_ms - first) // width)].append((latency_ms, is_acked))
    return [_row(first + n * width, width, found.get(n, [])) for n in range(int((last - first) // width) + 1)]


#: (when it ended, how long it took, whether it was acknowledged), times in ms
_End = tuple[float, float, bool]


def _ends(lines: Iterable[bytes], topic: str | None, mono_ns: int) -> Iterator[_End]:
    """The end of each send."""
    sent: dict[tuple[str, int], int] = {}
    for line in lines:
        try:
            row: dict[str, Any] = json.loads(line)
        except ValueError:
            continue  # the last line of a producer that was killed
        key = (row["producer"], row["pseq"])
        if topic is not None and row["topic"] != topic:
            continue
        if row["kind"] == "invoke":
            sent[key] = row["t0"]
        elif (t0 := sent.pop(key, None)) is not None:
            yield (row["t1"] - mono_ns) / 1e6, (row["t1"] - t0) / 1e6, row["outcome"] in _GOOD


def _row(t_ms: float, width: float, sends: list[tuple[float, bool]]) -> Row:
    latencies = sorted(latency for latency, is_acked in sends if is_acked)
    return {
        "kind": "load",
        "t_ms": round(t_ms, 1),
        "until_ms": round(t_ms + width, 1),
        "acked": len(latencies),
        "failed": len(sends) - len(latencies),
        "p50_ms": _share(latencies, 0.5),
        "p99_ms": _share(latencies, 0.99),
        "max_ms": _share(latencies, 1.0),
    }


def _share(sorted_values: list[float], share: float) -> float | None:
    if not sorted_values:
        return None
    return round(sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))], 2)
