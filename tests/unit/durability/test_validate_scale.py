"""What a verdict takes for little data, while it finds out which topics there are."""

from collections.abc import Iterable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.durability import validate
from holdfast.durability.judged_cluster import JudgedCluster
from holdfast.durability.read_options import OffsetRange
from holdfast.durability.scale import LITTLE, MUCH, SMALL_RECORDS, Scale
from holdfast.durability.validate import ValidateOptions

ENDS = {"small": 20, "large": SMALL_RECORDS}


class Ledger:
    """Of two topics, of which its first lines name one; and the cluster that has them."""

    def __init__(self) -> None:
        #: that its sends were read in
        self.scales: list[Scale] = []

    def ranges(self, topics: Iterable[str]) -> list[OffsetRange]:
        return [OffsetRange(topic, 0, 0, ENDS[topic]) for topic in topics]

    def sends(self, *_: Any, scale: Scale, **__: Any) -> tuple[object, Any]:
        self.scales.append(scale)
        return object(), SimpleNamespace(topics=tuple(ENDS))


@pytest.mark.parametrize(
    ("is_foreign", "scales"), [(False, [LITTLE, MUCH]), (True, [MUCH, MUCH])], ids=["own", "foreign"]
)
def test_topics_that_later_lines_name_and_values_of_any_size_are_not_little(
    monkeypatch: pytest.MonkeyPatch, is_foreign: bool, scales: list[Scale]
) -> None:
    ledger = Ledger()
    for name, stand_in in {
        "ledger_files": lambda path: [],
        "topics_named": lambda files, is_foreign: {"small"},
        "settled_ledger": lambda spark, path: None,
        "forget_sends": lambda spark: None,
        "read_sends": ledger.sends,
    }.items():
        monkeypatch.setattr(validate, name, stand_in)
    conf: dict[str, str] = {}
    spark = SimpleNamespace(conf=SimpleNamespace(get=conf.get, set=conf.__setitem__, unset=conf.__delitem__))
    options = ValidateOptions("ledger", "127.0.0.1:1", is_foreign=is_foreign)
    with ExitStack() as settings:
        scale, *_ = validate._read_ledger(spark, options, cast(JudgedCluster, ledger), settings, {})
        assert (scale, ledger.scales) == (MUCH, scales)
        assert conf == {}
