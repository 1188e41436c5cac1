"""The end of librdkafka's producer in a drill."""

import sys
from types import SimpleNamespace

import pytest

from holdfast.drills.librdkafka_load import _Producer


class KafkaError(Exception):
    """As the library raises it."""


@pytest.mark.parametrize("told_at", [1, 2])
def test_that_it_has_given_up_may_be_told_as_late_as_its_end(
    told_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a drill only the verdict says whether records were lost."""
    flushes: list[float] = []

    def flush(timeout_s: float) -> None:
        flushes.append(timeout_s)
        if len(flushes) == told_at:
            raise KafkaError

    made = SimpleNamespace(purge=lambda: None, flush=flush)
    library = SimpleNamespace(Producer=lambda settings: made, KafkaException=KafkaError)
    monkeypatch.setitem(sys.modules, "confluent_kafka", library)
    _Producer("h:1", "drill").end()
    assert len(flushes) == 2
