"""The tools that measure: what they refuse, and their sums. tests/e2e/test_tools.py lets them measure."""

import random

import pytest
from click import UsageError
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.cli.perf.latencies import SAMPLES_MAX, Latencies
from holdfast.cli.perf.properties import PRODUCER, settings

GIVEN = {"command_config": None, "command_property": ()}


def test_percentiles_are_the_smallest_sample_that_so_many_do_not_exceed() -> None:
    seen = Latencies()
    seen.add([float(number) for number in range(1, 101)])
    assert seen.percentiles(0.5, 0.95, 0.99, 0.999) == [50, 95, 99, 100]
    assert (seen.count, seen.average_ms, seen.max_ms) == (100, 50.5, 100)


def test_a_long_run_keeps_samples_at_even_distances_and_exact_sums() -> None:
    seen = Latencies(expected=4 * SAMPLES_MAX)
    chance, number = random.Random(7), 0
    while number < 4 * SAMPLES_MAX:
        size = min(chance.randrange(1, 50_000), 4 * SAMPLES_MAX - number)
        seen.add(range(number, number + size))
        number += size
    assert (seen.count, seen.max_ms) == (number, number - 1)
    (median,) = seen.percentiles(0.5)
    assert median == pytest.approx(number / 2, rel=0.001)


def test_kafkas_names_of_settings_become_the_producers() -> None:
    words = ("acks=-1", "linger.ms=0", "compression.type=lz4", "enable.idempotence=false")
    assert settings({**GIVEN, "command_property": words}, PRODUCER) == {
        "acks": "all",
        "linger_ms": 0,
        "compression": "lz4",
        "idempotent": False,
    }


def test_a_later_spelling_counts_more_than_the_older_one() -> None:
    given = {**GIVEN, "command_property": ("linger.ms=1",)}
    assert settings(given, PRODUCER, ("linger.ms=9",)) == {"linger_ms": 1}


def test_a_setting_that_is_no_number_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="linger.ms=soon"):
        settings({**GIVEN, "command_property": ("linger.ms=soon",)}, PRODUCER)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "exactly one of --record-size and --payload-file"),
        (["--record-size", "9", "--payload-file", "FILE"], "exactly one of --record-size and --payload-file"),
        (["--payload-file", "FILE"], "has no lines"),
        (["--record-size", "9", "--producer-props", "linger.ms=0", "acks=7"], "acks=7"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_any_broker_is_asked(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], reason: str
) -> None:
    file = tmp_path_factory.mktemp("payload") / "empty"
    file.write_text("\n\n")
    words = [str(file) if word == "FILE" else word for word in words]
    common = ["--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--num-records", "5"]
    done = CliRunner().invoke(main, ["producer-perf-test", *common, *words])
    assert done.exit_code == 2
    assert reason in done.output
