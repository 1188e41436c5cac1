"""A ledger's rows as an Arrow IPC stream: a tenth of the bytes of JSON lines (docs/validate.md).

One record batch for each write, so that a killed process leaves whole batches and at most the beginning of
one. A batch takes 1.2 kB beside its rows: less than about seven records a write are smaller as JSON lines.
`run` and `producer` are the same in a whole file: the metadata of its schema has them. `kind` and `outcome`
are codes; the other columns are the fields of `client.core.history`. Needs pyarrow.
"""

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from holdfast.client.core.history import SentFields, check_names
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.protocol.id_text import encode_id

#: Words of the codes from 1 on.
KINDS = ("invoke", "complete")
OUTCOME_WORDS = ("ok", "ok1", "info", "fail")
RUN_KEY, PRODUCER_KEY = b"run", b"producer"

_OF_A_SEND = (
    *("pseq", "topic", "partition", "value_crc32c", "acks", "t0"),
    *("timestamp_ms", "key_crc32c", "headers_crc32c"),
)
_OF_AN_ANSWER = (
    *("pseq", "topic", "partition", "outcome", "offset", "leader_epoch", "error", "t1", "topic_id"),
)
SCHEMA = pa.schema(
    [
        ("kind", pa.int8()),
        ("pseq", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("value_crc32c", pa.int64()),
        ("acks", pa.int8()),
        ("outcome", pa.int8()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("error", pa.string()),
        ("t0", pa.int64()),
        ("t1", pa.int64()),
        ("topic_id", pa.string()),
        ("timestamp_ms", pa.int64()),
        ("key_crc32c", pa.int64()),
        ("headers_crc32c", pa.int64()),
    ]
)
_NO_FIELDS = (None, None, None)
_OUTCOME_CODES = {word: code for code, word in enumerate(OUTCOME_WORDS, 1)}
#: About what a row takes while it waits.
_ROW_BYTES = 200
#: Batches of fewer rows are not compressed: that takes longer than it saves.
_COMPRESSED_ROWS_MIN = 64


class ArrowRows:
    """Gathers the rows of one producer in one run; `joined` makes a batch of them. As `ledger.JsonRows`."""

    suffix = ".arrows"

    def __init__(self, run: str, producer: str) -> None:
        """Raises: ValueError for a name that cannot be."""
        check_names(run, producer)
        schema = SCHEMA.with_metadata({RUN_KEY: run.encode(), PRODUCER_KEY: producer.encode()})
        self._schema = schema
        self._sink = io.BytesIO()
        self._small, self._large = (
            pa.ipc.new_stream(
                self._sink, schema, options=pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
            )
            for codec in (None, "lz4")
        )
        #: what either writes first, and a file has once
        self._head = schema.serialize().to_pybytes()
        self._is_begun = False

    def invoke(
        self,
        pseq: int,
        topic: str,
        partition: int,
        value_crc32c: int,
        acks: int,
        t0: int,
        fields: SentFields | None = None,
    ) -> tuple[Any, ...]:
        """The row to write before the send."""
        return (pseq, topic, partition, value_crc32c, acks, t0, *(fields or _NO_FIELDS))

    def complete(
        self,
        pseqs: list[int],
        topic: str,
        partition: int,
        outcome: DeliveryOutcome,
        base_offset: int,
        leader_epoch: int,
        error: str | None,
        t1: int,
        topic_id: bytes = b"",
    ) -> list[tuple[Any, ...]]:
        """The rows of a batch whose first record has `base_offset`, -1 for none."""
        code = _OUTCOME_CODES[outcome.value]
        has_offsets = base_offset >= 0
        rows: list[tuple[Any, ...]] = [
            (
                pseq,
                topic,
                partition,
                code,
                base_offset + n if has_offsets else -1,
                leader_epoch,
                error,
                t1,
                None,
            )
            for n, pseq in enumerate(pseqs)
        ]
        if topic_id and rows and has_offsets:
            rows[0] = (*rows[0][:-1], encode_id(topic_id))
        return rows

    @staticmethod
    def size(rows: Sequence[Any]) -> int:
        """About how many bytes the rows of `complete` take."""
        return _ROW_BYTES * len(rows)

    def joined(self, pending: Sequence[Any]) -> bytes:
        """What to append to the file for these results of `invoke` and `complete`."""
        sends = [item for item in pending if isinstance(item, tuple)]
        answers = [row for item in pending if isinstance(item, list) for row in item]
        sent = dict(zip(_OF_A_SEND, zip(*sends, strict=True), strict=True)) if sends else {}
        answered = dict(zip(_OF_AN_ANSWER, zip(*answers, strict=True), strict=True)) if answers else {}
        no_sends, no_answers = (None,) * len(sends), (None,) * len(answers)
        sent["kind"], answered["kind"] = (1,) * len(sends), (2,) * len(answers)
        columns = [
            pa.array(sent.get(field.name, no_sends) + answered.get(field.name, no_answers), field.type)
            for field in SCHEMA
        ]
        is_large = len(sends) + len(answers) >= _COMPRESSED_ROWS_MIN
        stream = self._large if is_large else self._small
        stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        made = self._sink.getvalue().removeprefix(self._head)
        self._sink.seek(0)
        self._sink.truncate()
        head, self._is_begun = b"" if self._is_begun else self._head, True
        return head + made
