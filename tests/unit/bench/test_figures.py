"""The arithmetic of the benchmarks."""

from holdfast.bench.figures import corrected, latency, percentile, spread, table


def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed() -> None:
    ordered = [float(n) for n in range(1, 101)]
    assert [percentile(ordered, share) for share in (0.5, 0.9, 0.99, 0.999, 1.0)] == [50, 90, 99, 100, 100]
    assert percentile([7.0], 0.01) == 7.0


def test_latency_sorts_its_samples() -> None:
    found = latency([3.0, 1.0, 2.0])
    assert (found.count, found.p50_ms, found.max_ms) == (3, 2.0, 3.0)


def test_a_stall_stands_for_all_the_requests_that_it_held_back() -> None:
    assert sorted(corrected([1.0, 1.0, 4.5], 1.0)) == [1.0, 1.0, 1.5, 2.5, 3.5, 4.5]
    assert corrected([1.0, 1.5], 1.0) == [1.0, 1.5]


def test_spread_shows_median_and_extremes() -> None:
    assert str(spread([3.0, 1.0, 2.0])) == "2.00 (1.00 to 3.00)"
    assert str(spread([150.0, 99.0])) == "124 (99 to 150)"


def test_columns_line_up() -> None:
    assert table(("NAME", "N"), [("a", "10"), ("bcdef", "1")]) == "NAME    N\na      10\nbcdef   1"
