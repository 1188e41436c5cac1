"""Asks a stream reader for micro-batches as Spark does, without Spark."""

import json
from typing import Any

from holdfast.durability.range_reader import columns_of
from holdfast.durability.read_options import Mode, parse_options
from holdfast.durability.stream_source import HoldfastStreamReader


class Stream:
    """Micro-batches as Spark asks for them; `restart` is a new process with the same checkpoint."""

    def __init__(self, bootstrap_servers: str, **options: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        topics = {} if {"subscribePattern", "assign"}.intersection(options) else {"subscribe": "t"}
        self._options = {**topics, "startingOffsets": "earliest", **options}
        self.offsets: dict[str, Any] | None = None
        self.rows: list[tuple[int, int, str]] = []
        self.restart()

    def restart(self, **options: str) -> None:
        self._options |= options
        chosen = {"kafka.bootstrap.servers": self._bootstrap_servers, **self._options}
        parsed = parse_options(chosen, Mode.STREAM)
        self.reader = HoldfastStreamReader(parsed, columns_of(parsed))

    def plan(self, limit: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin and end of the next micro-batch."""
        if self.offsets is None:
            self.offsets = json.loads(json.dumps(self.reader.initialOffset()))
        end = self.reader.latestOffset(self.offsets, limit or self.reader.getDefaultReadLimit())
        return self.offsets, json.loads(json.dumps(end))

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> int:
        """Read a micro-batch, which is done then; how many rows."""
        before = len(self.rows)
        for partition in self.reader.partitions(start, end):
            for batch in self.reader.read(partition):
                rows = batch.select(["partition", "offset", "value"]).to_pylist()
                self.rows += [(row["partition"], row["offset"], row["value"].decode()) for row in rows]
        self.offsets = end
        return len(self.rows) - before

    def next(self) -> int:
        return self.read(*self.plan())

    def end(self) -> None:
        self.reader.stop()
