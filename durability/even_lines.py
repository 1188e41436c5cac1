"""Lines of a ledger as `client.core.history` writes those of an undisturbed producer, read all at once.

Each line has its fields in the same order, and only numbers differ. So numbers are cut out by the places of
commas, and all between them is compared with what must stand there. Never says what is wrong: a block with
any other line is `durability.ledger_lines`' business.
"""

import re
from typing import Any, NamedTuple

import numpy as np

_HEAD = re.compile(
    rb'\{"kind":"(?:invoke|complete)","run":"([^"\\]+)","producer":"([^"\\]+)","pseq":\d+,'
    rb'(?:"outcome":"ok",)?"topic":"([^"\\]+)",'
)
_TOPIC_ID = re.compile(rb',"topic_id":"([A-Za-z0-9_-]{22})"\}')
#: That each 64 and each 32 bits can hold.
_DIGITS_MAX, _INT_DIGITS_MAX = 18, 9
_COMMA, _LINE_END, _ZERO, _BRACE = b",\n0}"
#: Commas before the number of the send.
_HEAD_COMMAS = 3
#: Where the kind begins in a line.
_KIND_AT = len('{"kind":"')
_INVOKE = ord("i")


class EvenLines(NamedTuple):
    """All lines of a block; columns of numbers by the names of `ledger_lines.ROWS`."""

    run: str
    producer: str
    topic: str
    #: of sends with acks=all: `pseq`, `partition`, `value_crc32c`, and where all tell them `timestamp_ms` and
    #: `key_crc32c`; empty without any
    sends: dict[str, Any]
    #: of acknowledgements: `pseq`, `partition`, `offset`; empty without any
    answers: dict[str, Any]
    topic_ids: set[str]


class _Uneven(Exception):
    """Another line than expected."""


def read_even_lines(data: bytes) -> EvenLines | None:
    """The lines of one producer's undisturbed sends to one topic; None when any is different."""
    head = _HEAD.match(data)
    if head is None or not data.endswith(b"\n"):
        return None
    try:
        run, producer, topic = (text.decode() for text in head.groups())
        return EvenLines(run, producer, topic, *_read(_Block(data), run, producer, topic))
    except (_Uneven, UnicodeDecodeError):
        return None


def _read(
    block: "_Block", run: str, producer: str, topic: str
) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
    kinds = block.bytes[np.minimum(block.starts + _KIND_AT, len(block.bytes) - 1)]
    is_send = kinds == _INVOKE
    named = f'","run":"{run}","producer":"{producer}","pseq":'
    sends, answers = _Lines(block, is_send), _Lines(block, ~is_send)
    place = f'"topic":"{topic}","partition":'
    found = _sends(sends, f'{{"kind":"invoke{named}', place) if len(sends) else {}
    if not len(answers):
        return found, {}, set()
    made = {
        "pseq": answers.number(f'{{"kind":"complete{named}', None, _HEAD_COMMAS),
        "partition": answers.number(f',"outcome":"ok",{place}', _HEAD_COMMAS, _HEAD_COMMAS + 3),
        "offset": answers.number(',"offset":', _HEAD_COMMAS + 3, _HEAD_COMMAS + 4),
    }
    answers.digits(',"leader_epoch":', _HEAD_COMMAS + 4, _HEAD_COMMAS + 5, _INT_DIGITS_MAX)
    answers.digits(',"error":null,"t1":', _HEAD_COMMAS + 5, _HEAD_COMMAS + 7)
    return found, made, answers.topic_ids(_HEAD_COMMAS + 7)


def _sends(lines: "_Lines", head: str, place: str) -> dict[str, Any]:
    made = {
        "pseq": lines.number(head, None, _HEAD_COMMAS),
        "partition": lines.number(f",{place}", _HEAD_COMMAS, _HEAD_COMMAS + 2),
        "value_crc32c": lines.number(',"value_crc32c":', _HEAD_COMMAS + 2, _HEAD_COMMAS + 3),
    }
    lines.digits(',"acks":-1,"t0":', _HEAD_COMMAS + 3, _HEAD_COMMAS + 5)
    more = lines.commas() - (_HEAD_COMMAS + 5)
    for at, name in enumerate(("timestamp_ms", "key_crc32c")[:more]):
        made[name] = lines.number(f',"{name}":', _HEAD_COMMAS + 5 + at, _HEAD_COMMAS + 6 + at)
    if more > len(made) - 3:
        raise _Uneven
    return made


class _Block:
    """The bytes, and the places of lines and commas."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bytes = np.frombuffer(data, dtype=np.uint8)
        self.ends: Any = np.flatnonzero(self.bytes == _LINE_END)
        self.starts: Any = np.concatenate(([0], self.ends[:-1] + 1))
        self.commas: Any = np.flatnonzero(self.bytes == _COMMA)
        self.first_commas: Any = np.searchsorted(self.commas, self.starts)
        self.comma_counts: Any = np.diff(np.concatenate((self.first_commas, [len(self.commas)])))


class _Lines:
    """Some lines of a block, all of one kind."""

    def __init__(self, block: _Block, mask: Any) -> None:
        self._block = block
        self._starts, self._ends = block.starts[mask], block.ends[mask]
        self._first, self._counts = block.first_commas[mask], block.comma_counts[mask]
        if (block.bytes[self._ends - 1] != _BRACE).any():
            raise _Uneven
        #: of commas, by their numbers
        self._places: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def commas(self) -> int:
        """How many each line has. Raises: _Uneven."""
        count = int(self._counts.max())
        if (self._counts != count).any():
            raise _Uneven
        return count

    def number(self, text: str, start: int | None, end: int) -> Any:
        """The numbers behind `text`, which begins at comma `start` or with the line; they end at comma `end`
        or with the line. Raises: _Uneven."""
        digits = self.digits(text, start, end)
        width = digits.shape[1]
        return digits.astype(np.int64) @ 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)

    def digits(self, text: str, start: int | None, end: int, digits_max: int = _DIGITS_MAX) -> Any:
        """The digits of such numbers, with zeros before those of shorter ones. Raises: _Uneven."""
        begins = self._starts if start is None else self._comma(start)
        ends = self._comma(end)
        self._expect(text.encode(), begins)
        begins = begins + len(text)
        lengths = ends - begins
        width, least = int(lengths.max()), int(lengths.min())
        if least < 1 or width > digits_max:
            raise _Uneven
        if ((self._block.bytes[begins] == _ZERO) & (lengths > 1)).any():
            raise _Uneven
        digits = self._windows(ends - width, width) - np.uint8(_ZERO)
        if least < width:
            digits[np.arange(width) < (width - lengths)[:, None]] = 0
        if digits.max() > 9:
            raise _Uneven
        return digits

    def topic_ids(self, comma: int) -> set[str]:
        """Those behind comma `comma` of the lines that have so many. Raises: _Uneven."""
        if ((self._counts != comma) & (self._counts != comma + 1)).any():
            raise _Uneven
        found = set()
        has_more = self._counts == comma + 1
        for at, end in zip(self._comma(comma)[has_more].tolist(), self._ends[has_more].tolist(), strict=True):
            match = _TOPIC_ID.fullmatch(self._block.data, at, end)
            if match is None:
                raise _Uneven
            found.add(match[1].decode())
        return found

    def _comma(self, number: int) -> Any:
        """The place of comma `number` in each line; without one that of the brace at its end.

        Raises: _Uneven."""
        if number not in self._places:
            self._places[number] = self._find_comma(number)
        return self._places[number]

    def _find_comma(self, number: int) -> Any:
        fewest, commas = self._counts.min(), self._block.commas
        if fewest < number:
            raise _Uneven
        if fewest > number:
            return commas[self._first + number]
        places = commas[np.minimum(self._first + number, len(commas) - 1)]
        return np.where(self._counts > number, places, self._ends - 1)

    def _expect(self, text: bytes, begins: Any) -> None:
        if begins.max() + len(text) > len(self._block.bytes):
            raise _Uneven
        if (self._windows(begins, len(text)) != np.frombuffer(text, dtype=np.uint8)).any():
            raise _Uneven

    def _windows(self, begins: Any, width: int) -> Any:
        if begins.min() < 0:
            raise _Uneven
        return np.lib.stride_tricks.sliding_window_view(self._block.bytes, width)[begins]
