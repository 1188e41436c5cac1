"""Properties of producers between two steps: a state that breaks each, the one beside it that does not."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.sim.checks.properties import producers
from tests.sim.checks.histories import Scene
from tests.unit.client.test_sender import Bench


def producer_of(bench: Bench) -> Any:
    return SimpleNamespace(_sender=bench.sender, identity=bench.sender.identity)


@pytest.mark.parametrize(
    ("state", "expected"),
    [("in flight", False), ("held", False), ("forgotten", True), ("nothing", False)],
)
def test_what_a_producer_has_to_send_is_looked_at_again_l5(state: str, expected: bool) -> None:
    bench = Bench().ready()
    if state != "nothing":
        queue = bench.put(0)
        (sent,) = bench.sends()
        if state != "in flight":
            bench.sender.request_failed(sent.request_id, bench.now_ms, "silence", was_sent=True)
        if state == "forgotten":
            for waits in (
                bench.sender._accumulator.held,
                bench.sender._accumulator.waiting_for_leader,
                bench.sender._accumulator.ready,
            ):
                waits.pop(queue, None)
    scene = Scene(producers.QueuesAreLookedAtAgain())
    said = scene.violation(lambda: scene.property.producer_stepped(scene.seen, producer_of(bench)))
    assert (said is not None) is expected, said


@pytest.mark.parametrize("kept_bytes", [0, 1])
def test_what_has_ended_is_not_buffered_l5(kept_bytes: int) -> None:
    bench = Bench().ready()
    bench.put(0)
    bench.put(1)
    bench.sender.give_up_all("over")
    bench.put(2)
    bench.sender._accumulator.buffered_bytes += kept_bytes
    scene = Scene(producers.BufferedIsIncomplete())
    said = scene.violation(lambda: scene.property.producer_stepped(scene.seen, producer_of(bench)))
    assert (said is not None) is bool(kept_bytes), said
