"""Plain values of metrics."""

import math

import pytest

from runtime.stats import Histogram, HistogramValue, MetricFamily, MetricKind, counter, gauge


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
