"""Options of `holdfast sim` that say what a seed plays, the same for one seed and for many."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

#: as in sim.campaign.run_spec, which is not loaded for `--help`
BANDS = (
    "budget",
    "manager",
    "edge",
    "over-budget",
    "no-elr",
    "switched-elr",
    "unclean-no-elr",
    "unclean-switched-elr",
    "lying-disks",
    "lost-voter",
    "snapshots",
    "replaced-voters",
)

_OPTIONS = (
    click.option(
        "--seconds",
        type=click.FloatRange(0, min_open=True),
        default=30.0,
        show_default=True,
        help="Simulated seconds of load and faults, before everything is healed.",
    ),
    click.option(
        "--band",
        type=click.Choice(BANDS),
        default="budget",
        show_default=True,
        help="Which faults may add up to what.",
    ),
    click.option("--brokers", type=click.IntRange(1, 9), default=3, show_default=True, help="Machines."),
    click.option(
        "--voters", type=click.Choice(["1", "3", "5"]), default="3", show_default=True, help="Machines."
    ),
    click.option(
        "--partitions", type=click.IntRange(1, 50), default=4, show_default=True, help="Of the topic."
    ),
    click.option("--producers", type=click.IntRange(1, 20), default=4, show_default=True, help="Machines."),
    click.option(
        "--members",
        type=click.IntRange(0, 9),
        default=0,
        show_default=True,
        help="Of a consumer group, with rules of its own.",
    ),
    click.option(
        "--fault-gap-ms", type=click.IntRange(10), default=1000, show_default=True, help="Mean gap."
    ),
    click.option(
        "--reference",
        is_flag=True,
        help="The cluster as these options say, all faults, 20 acknowledged batches a simulated second: no "
        "seed adds brokers, topics or readers. Speed is measured with it.",
    ),
    click.option(
        "--tiny-limits",
        is_flag=True,
        help="Chunks, windows, rows of a request and steps of a turn are tiny: big clusters meet these.",
    ),
)


def run_options(function: F) -> F:
    """What a seed plays."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def template_of(given: dict[str, Any]) -> Any:
    """The `sim.campaign.run_spec.RunTemplate` of `run_options`, which are taken out of `given`."""
    from holdfast.sim.campaign.run_spec import run_template

    return run_template(
        brokers=given.pop("brokers"),
        voters=int(given.pop("voters")),
        partitions=given.pop("partitions"),
        producers=given.pop("producers"),
        seconds=given.pop("seconds"),
        gap_ms=given.pop("fault_gap_ms"),
        band=given.pop("band"),
        is_reference=given.pop("reference"),
        has_tiny_limits=given.pop("tiny_limits"),
        members=given.pop("members"),
    )
