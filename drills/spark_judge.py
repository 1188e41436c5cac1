"""Spark's verdict on runs: one session and one comparison for all of them, after the last run.

Owns the session and which lost records are named. `durability.rules` defines what an anomaly is.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.client.core.history import make_value
from holdfast.drills.load import VALUE_BYTES
from holdfast.drills.outcome import LostRecord
from holdfast.localcluster.nodes import ClusterError

#: A drill has some thousand records: compiling queries and spreading rows would cost more than the work.
_SMALL_DATA = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
#: Beyond that, some 50,000 records, compiled queries are worth their time.
_SMALL_LEDGER_BYTES = 16 << 20
#: checksum, producer and number of a value
_NAMING_FIELDS = 3


class SparkJudge:
    """One Spark session; `close` ends it."""

    def __init__(self, *, starts_now: bool) -> None:
        """`starts_now`: start in the background (stderr is lost meanwhile); else when needed."""
        self._spark: Any = None
        self._error: Exception | None = None
        self._is_small = True
        self._thread = threading.Thread(target=self._start, name="spark", daemon=True)
        if starts_now:
            self._thread.start()

    def _start(self) -> None:
        try:
            from holdfast.durability.session import start_session

            self._spark = start_session("local[*]", "holdfast drill", is_short=self._is_small)
            for key, value in _SMALL_DATA.items() if self._is_small else ():
                self._spark.conf.set(key, value)
        except Exception as error:  # noqa: BLE001 - raised again when the verdict is asked for
            self._error = error

    def verdicts(
        self, ledger: Path, snapshots: Sequence[Path]
    ) -> tuple[dict[str, Any], dict[str, list[LostRecord]]]:
        """({topic: durability.verdict.Verdict}, {topic: lost records by offset}). Raises: ClusterError."""
        if self._thread.ident is None:
            self._is_small = sum(file.stat().st_size for file in ledger.iterdir()) <= _SMALL_LEDGER_BYTES
            self._thread.start()
        self._thread.join()
        if self._error is not None:
            raise ClusterError(f"Spark does not start: {self._error}") from self._error
        from holdfast.durability.lost_records import all_lost
        from holdfast.durability.snapshots import judge_all
        from holdfast.durability.spark_errors import SPARK_ERRORS, reason_of

        lost: dict[str, list[LostRecord]] = {}
        try:
            verdicts = judge_all(self._spark, ledger, snapshots)
            if any(verdict.counts.get("lost", 0) for verdict in verdicts.values()):
                for one in all_lost(self._spark):
                    record = LostRecord(
                        *(one.topic, one.partition, one.offset, _name(one.producer, one.pseq)),
                        *(one.leader_epoch, one.acked_ns, one.given_in, one.outlived),
                    )
                    lost.setdefault(one.topic, []).append(record)
        except SPARK_ERRORS as error:
            raise ClusterError(f"Spark failed while it compared: {reason_of(error)}") from error
        return verdicts, lost

    def close(self) -> None:
        """End the session."""
        if self._thread.ident is not None:
            self._thread.join()
        if self._spark is not None:
            from holdfast.durability.session import stop_session

            stop_session(self._spark)


def _name(producer: str, pseq: int) -> str:
    value = make_value(producer, pseq, VALUE_BYTES).decode()
    return ":".join(value.split(":")[:_NAMING_FIELDS])
