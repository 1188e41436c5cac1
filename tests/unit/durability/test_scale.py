"""What is little data: ledgers, topics and replicas, each of them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.durability.digest_jobs import SMALL_BYTES
from holdfast.durability.read_options import OffsetRange
from holdfast.durability.scale import LITTLE, MUCH, SMALL_RECORDS, Scale, scale_of


@pytest.mark.parametrize(
    ("ledgers", "records", "replicas", "scale"),
    [
        ([SMALL_BYTES - 1, 1], [SMALL_RECORDS - 1, 1], {"t-0": SMALL_BYTES, "other-0": 1}, LITTLE),
        ([SMALL_BYTES, 1], [0], {}, MUCH),
        ([0], [SMALL_RECORDS, 1], {}, MUCH),
        ([0], [0], {"t-0": SMALL_BYTES, "t-1": 1}, MUCH),
    ],
)
def test_data_is_little_where_all_of_it_is(
    tmp_path: Path, ledgers: list[int], records: list[int], replicas: dict[str, int], scale: Scale
) -> None:
    for name, size in replicas.items():
        (tmp_path / name).mkdir()
        with (tmp_path / name / "00000000000000000000.log").open("wb") as file:
            file.truncate(size)
    sizes = {str(number): size for number, size in enumerate(ledgers)}
    ranges = [OffsetRange("t", number, 7, 7 + count) for number, count in enumerate(records)]
    assert scale_of(sizes, ranges, {1: str(tmp_path)}, ["t"]) is scale


class Conf(dict[str, str]):
    """A session's settings, until its Java dies."""

    is_dead = False

    def set(self, name: str, value: str) -> None:
        if self.is_dead:
            raise ConnectionRefusedError(111, "Connection refused")
        self[name] = value

    def unset(self, name: str) -> None:
        self.set(name, "")
        del self[name]


def test_settings_of_little_data_are_those_of_the_session_again_afterwards() -> None:
    conf = Conf({"spark.sql.shuffle.partitions": "7"})
    with LITTLE.settings(SimpleNamespace(conf=conf)):
        assert conf["spark.sql.shuffle.partitions"] == "1"
    assert conf == {"spark.sql.shuffle.partitions": "7"}


def test_settings_of_a_session_whose_java_has_died_hide_no_verdict() -> None:
    conf = Conf()
    with LITTLE.settings(SimpleNamespace(conf=conf)):
        conf.is_dead = True
