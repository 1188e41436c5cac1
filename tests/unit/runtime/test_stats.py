"""Plain values of metrics."""

import math

import pytest

from holdfast.runtime.stats import (
    Histogram,
    HistogramValue,
    LazySamples,
    MetricFamily,
    MetricKind,
    Sample,
    counter,
    gauge,
    merged,
)


def test_histogram_counts_a_value_in_the_first_bucket_whose_bound_is_not_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.5):
        histogram.observe(value)
    assert histogram.value() == HistogramValue(((1.0, 2), (2.0, 1), (math.inf, 1)), 5.5)


def test_value_of_a_histogram_is_a_copy() -> None:
    histogram = Histogram((1.0,))
    before = histogram.value()
    histogram.observe(0.5)
    assert before == HistogramValue(((1.0, 0), (math.inf, 0)), 0.0)


def test_bounds_of_a_histogram_ascend() -> None:
    with pytest.raises(AssertionError):
        Histogram((2.0, 1.0))


def test_counters_and_only_counters_end_in_total() -> None:
    assert counter("kafka_x_total", "help", 3).samples[0].value == 3
    assert gauge("kafka_x", "help", 4).samples[0].value == 4
    with pytest.raises(AssertionError):
        MetricFamily("kafka_x", MetricKind.COUNTER, "help")
    with pytest.raises(AssertionError):
        gauge("kafka_x_total", "help", 4)


def test_a_value_that_came_many_times_is_counted_as_often() -> None:
    histogram = Histogram((1.0,))
    histogram.observe(0.5, 3)
    assert histogram.value() == HistogramValue(((1.0, 3), (math.inf, 0)), 1.5)


def test_lazy_samples_are_made_anew_each_time_they_are_read() -> None:
    numbers = [1, 2]
    lazy = LazySamples(lambda: (Sample(number) for number in numbers))
    assert list(lazy) == [Sample(1), Sample(2)]
    numbers.append(3)
    assert (len(lazy), lazy[-1]) == (3, Sample(3))


def test_families_of_one_name_become_one() -> None:
    """A broker with two listeners counts requests twice; a scrape with a name twice is refused."""

    def requests(listener: str) -> MetricFamily:
        samples = [Sample(1, (("listener", listener),))]
        return MetricFamily("kafka_requests_total", MetricKind.COUNTER, "Requests.", samples)

    one, other = requests("A"), requests("B")
    families = merged([one, gauge("kafka_x", "help", 4), other])
    assert [family.name for family in families] == ["kafka_requests_total", "kafka_x"]
    assert families[0].samples == (*one.samples, *other.samples)
