"""The pump: order of events and effects, its timer, its end, and who listens."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast.runtime.memory.machine import ManualClock
from holdfast.runtime.pump import Pump, Tap, TimedPump
from holdfast.runtime.stats import Histogram

TICK, EMPTY, BUG = "tick", "empty", "bug"


class Core:
    """Answers the event `a` with the effects `a1` and `a2`, and raises when it is given a bug."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int]] = []
        self.deadline_ms: int | None = None

    def handle(self, event: str, now_ms: int) -> list[str]:
        self.taken.append((event, now_ms))
        if event == BUG:
            raise AssertionError("a bug")
        return [] if event in (TICK, EMPTY) else [f"{event}1", f"{event}2"]

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms


class Shell:
    """Carries effects out by noting them; `on` says what else happens while one is carried out."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.core = Core()
        self.done: list[str] = []
        self.failures: list[Exception] = []
        self.on: dict[str, Callable[[], None]] = {}
        self.pump: Pump[str, str] = Pump(
            self.clock, self.core.handle, self.core.next_deadline_ms, self.failures.append, **options
        )
        self.pump.carry_out[str] = self._carry_out

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.core.taken]

    def _carry_out(self, effect: str) -> None:
        self.done.append(effect)
        if effect in self.on:
            self.on[effect]()


# --- order -------------------------------------------------------------------------------------------------


def test_an_event_is_handled_before_post_returns() -> None:
    shell = Shell()
    shell.pump.post("a")
    assert shell.core.taken == [("a", shell.clock.now_ms())]
    assert shell.done == ["a1", "a2"]


def test_an_event_that_comes_while_another_is_handled_waits_for_all_its_effects() -> None:
    shell = Shell()
    shell.on["a1"] = lambda: shell.pump.post("b")
    shell.pump.post("a")
    assert shell.done == ["a1", "a2", "b1", "b2"]


def test_an_event_posted_first_goes_before_those_that_wait() -> None:
    shell = Shell()
    shell.on["a1"] = lambda: shell.pump.post("b")
    shell.on["a2"] = lambda: shell.pump.post_first("c")
    shell.pump.post("a")
    assert shell.events == ["a", "c", "b"]


def test_an_event_posted_first_while_none_is_handled_is_handled_at_once() -> None:
    shell = Shell()
    shell.pump.post_first("a")
    assert shell.done == ["a1", "a2"]


def test_the_core_hears_when_the_queue_is_empty_and_not_before() -> None:
    shell = Shell(queue_empty=EMPTY)
    shell.on["a1"] = lambda: shell.pump.post("b")
    shell.pump.post("a")
    assert shell.events == ["a", "b", EMPTY]


def test_the_core_hears_it_again_when_that_has_led_to_other_events() -> None:
    class Restless(Core):
        def handle(self, event: str, now_ms: int) -> list[str]:
            return ["more"] if event == EMPTY and not self.taken else super().handle(event, now_ms)

    shell = Shell(queue_empty=EMPTY)
    restless = Restless()
    pump: Pump[str, str] = Pump(
        shell.clock, restless.handle, restless.next_deadline_ms, shell.failures.append, queue_empty=EMPTY
    )
    pump.carry_out[str] = lambda effect: pump.post("b") if effect == "more" else None
    pump.run()
    assert [event for event, _ in restless.taken] == ["b", EMPTY]


def test_run_tells_the_core_that_the_queue_is_empty() -> None:
    shell = Shell(queue_empty=EMPTY)
    shell.pump.run()
    assert shell.events == [EMPTY]


async def test_the_events_of_one_turn_of_the_loop_are_settled_together_in_the_next() -> None:
    shell = Shell(queue_empty=EMPTY, settles_in_next_turn=True)
    shell.pump.post("a")
    shell.pump.post("b")
    assert (shell.events, shell.done) == (["a", "b"], ["a1", "a2", "b1", "b2"])
    await asyncio.sleep(0)
    assert shell.events == ["a", "b", EMPTY]
    shell.pump.post("c")
    await asyncio.sleep(0)
    assert shell.events == ["a", "b", EMPTY, "c", EMPTY]


async def test_a_pump_that_ends_within_the_turn_settles_nothing() -> None:
    shell = Shell(queue_empty=EMPTY, settles_in_next_turn=True)
    shell.pump.post("a")
    shell.pump.end()
    await asyncio.sleep(0)
    assert shell.events == ["a"]


def test_run_from_inside_an_effect_adds_nothing() -> None:
    shell = Shell(queue_empty=EMPTY)
    shell.on["a1"] = shell.pump.run
    shell.pump.post("a")
    assert shell.events == ["a", EMPTY]


def test_what_is_posted_between_events_is_handled_before_post_returns() -> None:
    seen: list[list[str]] = []

    def idle() -> None:
        if shell.events == ["a"]:
            shell.pump.post("b")
            seen.append(shell.done[:])

    shell = Shell(idle=idle)
    shell.pump.post("a")
    assert seen == [["a1", "a2", "b1", "b2"]]


def test_the_pump_is_busy_while_effects_are_carried_out() -> None:
    seen: list[bool] = []
    shell = Shell()
    shell.on["a2"] = lambda: seen.append(shell.pump.is_busy)
    shell.pump.post("a")
    assert seen == [True]
    assert not shell.pump.is_busy


# --- time --------------------------------------------------------------------------------------------------


async def test_the_tick_comes_at_the_deadline() -> None:
    shell = Shell(tick=TICK)
    start_ms = shell.clock.now_ms()
    shell.core.deadline_ms = start_ms + 20
    shell.pump.post("a")
    await shell.clock.advance(19)
    assert shell.events == ["a"]
    shell.core.deadline_ms = None
    await shell.clock.advance(1)
    assert shell.core.taken[-1] == (TICK, start_ms + 20)


async def test_an_earlier_deadline_moves_the_timer() -> None:
    shell = Shell(tick=TICK)
    start_ms = shell.clock.now_ms()
    shell.core.deadline_ms = start_ms + 20
    shell.pump.post("a")
    shell.core.deadline_ms = start_ms + 10
    shell.pump.post("b")
    shell.core.deadline_ms = None
    await shell.clock.advance(100)
    assert [(event, ms) for event, ms in shell.core.taken if event == TICK] == [(TICK, start_ms + 10)]


async def test_a_timer_that_is_too_early_is_set_anew() -> None:
    shell = Shell(tick=TICK)
    start_ms = shell.clock.now_ms()
    shell.core.deadline_ms = start_ms + 10
    shell.pump.post("a")
    shell.core.deadline_ms = start_ms + 30
    shell.pump.post("b")
    await shell.clock.advance(29)
    assert shell.core.taken[-1] == (TICK, start_ms + 10)
    shell.core.deadline_ms = None
    await shell.clock.advance(1)
    assert shell.core.taken[-1] == (TICK, start_ms + 30)


async def test_a_core_without_a_deadline_gets_no_tick() -> None:
    shell = Shell(tick=TICK)
    shell.pump.post("a")
    await shell.clock.advance(1000)
    assert shell.events == ["a"]


async def test_a_timer_without_a_tick_says_only_that_the_queue_is_empty() -> None:
    shell = Shell(queue_empty=EMPTY)
    shell.core.deadline_ms = shell.clock.now_ms() + 5
    shell.pump.set_timer()
    shell.core.deadline_ms = None
    await shell.clock.advance(5)
    assert shell.events == [EMPTY]


async def test_no_timer_is_set_for_less_than_the_shortest_delay() -> None:
    shell = Shell(tick=TICK, delay_ms_min=3)
    start_ms = shell.clock.now_ms()
    shell.core.deadline_ms = start_ms - 5
    shell.pump.post("a")
    shell.core.deadline_ms = None
    await shell.clock.advance(100)
    assert shell.core.taken[-1] == (TICK, start_ms + 3)


async def test_a_stopped_timer_leaves_the_pump_to_handle_events_only() -> None:
    shell = Shell(tick=TICK)
    shell.core.deadline_ms = shell.clock.now_ms() + 5
    shell.pump.post("a")
    shell.pump.stop_timer()
    shell.pump.post("b")
    await shell.clock.advance(100)
    assert shell.events == ["a", "b"]


# --- the end -----------------------------------------------------------------------------------------------


def test_what_the_core_raises_is_told_once_and_nothing_is_handled_after_it() -> None:
    shell = Shell(queue_empty=EMPTY)
    shell.on["a1"] = lambda: shell.pump.post(BUG)
    shell.on["a2"] = lambda: shell.pump.post("c")
    shell.pump.post("a")
    shell.pump.post("d")
    shell.pump.run()
    assert shell.events == ["a", BUG]
    assert [str(error) for error in shell.failures] == ["a bug"]


def test_what_an_effect_raises_ends_the_pump_before_the_next_effect() -> None:
    shell = Shell()

    def break_down() -> None:
        raise OSError("gone")

    shell.on["a1"] = break_down
    shell.pump.post("a")
    shell.pump.post("b")
    assert shell.done == ["a1"]
    assert [str(error) for error in shell.failures] == ["gone"]


def test_what_is_raised_between_events_ends_the_pump_too() -> None:
    def idle() -> None:
        raise OSError("gone")

    shell = Shell(idle=idle)
    shell.pump.post("a")
    shell.pump.post("b")
    assert shell.events == ["a"]
    assert len(shell.failures) == 1


def test_an_error_between_events_that_has_ended_the_pump_already_is_not_told_again() -> None:
    def idle() -> None:
        if not shell.pump.is_ended:
            shell.pump.post(BUG)
            raise OSError("and another one")

    shell = Shell(idle=idle)
    shell.pump.post("a")
    assert [str(error) for error in shell.failures] == ["a bug"]


async def test_a_pump_that_failed_has_no_timer() -> None:
    shell = Shell(tick=TICK)
    shell.core.deadline_ms = shell.clock.now_ms() + 5
    shell.pump.post("a")
    shell.pump.post(BUG)
    await shell.clock.advance(100)
    assert shell.events == ["a", BUG]


def test_the_end_within_an_effect_leaves_out_the_effects_behind_it_and_what_waits() -> None:
    shell = Shell(queue_empty=EMPTY)
    shell.pump.post("a")

    def end() -> None:
        shell.pump.post("c")
        shell.pump.end()

    shell.on["b1"] = end
    shell.pump.post("b")
    assert shell.done == ["a1", "a2", "b1"]
    assert shell.events == ["a", EMPTY, "b"]
    assert not shell.failures


def test_an_interrupt_is_no_failure_of_the_core_and_ends_the_pump_all_the_same() -> None:
    shell = Shell()

    def interrupt() -> None:
        raise KeyboardInterrupt

    shell.on["a1"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        shell.pump.post("a")
    assert shell.pump.is_ended
    assert not shell.failures


# --- taps --------------------------------------------------------------------------------------------------


class Ear(Tap[str, str]):
    """Notes what it hears, and how many effects were carried out by then."""

    def __init__(self, shell: Shell) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self._shell = shell

    def before(self, event: str, now_ms: int) -> None:
        self.heard.append(("before", event, len(self._shell.core.taken)))

    def after(self, event: str, effects: Sequence[str], now_ms: int) -> None:
        self.heard.append(("after", event, list(effects), len(self._shell.done)))

    def sending(self, effect: str, message: Any) -> None:
        self.heard.append(("sending", effect, message))


def test_a_tap_hears_each_event_before_the_core_and_its_effects_before_they_are_carried_out() -> None:
    shell = Shell()
    ear = Ear(shell)
    shell.pump.post("a")
    shell.pump.add_tap(ear)
    shell.pump.post("b")
    assert ear.heard == [("before", "b", 1), ("after", "b", ["b1", "b2"], 2)]


def test_a_tap_hears_what_the_shell_says_of_itself() -> None:
    shell = Shell()
    ear = Ear(shell)
    shell.pump.sending("a1", "unheard")
    shell.pump.add_tap(ear)
    shell.pump.sending("a1", "heard")
    assert ear.heard == [("sending", "a1", "heard")]


def test_all_taps_hear() -> None:
    shell = Shell()
    ears = [Ear(shell), Ear(shell)]
    for ear in ears:
        shell.pump.add_tap(ear)
    shell.pump.post("a")
    assert ears[0].heard == ears[1].heard
    assert len(ears[0].heard) == 2


def test_what_a_tap_raises_ends_the_pump() -> None:
    class Broken(Tap[str, str]):
        def after(self, event: str, effects: Sequence[str], now_ms: int) -> None:
            raise ValueError("a tap's own bug")

    shell = Shell()
    shell.pump.add_tap(Broken())
    shell.pump.post("a")
    assert shell.done == []
    assert [str(error) for error in shell.failures] == ["a tap's own bug"]


# --- how long events take ----------------------------------------------------------------------------------


async def test_waiting_and_processing_are_measured_for_each_event() -> None:
    clock, core = ManualClock(), Core()
    waited, took = Histogram((0.003, 0.010)), Histogram((0.003, 0.010))
    pump: TimedPump[str, str] = TimedPump(
        clock,
        core.handle,
        core.next_deadline_ms,
        lambda error: None,
        tick=TICK,
        queue_seconds=waited,
        processing_seconds=took,
    )

    def carry_out(effect: str) -> None:
        if effect == "a1":
            pump.post("b")
            pump.post_first("c")
        clock._now_ns += 2_000_000

    pump.carry_out[str] = carry_out
    pump.post("a")
    assert [event for event, _ in core.taken] == ["a", "c", "b"]
    # `a` waited for nothing, `c` for the two effects of `a`, `b` for those of `c` too
    assert [count for _, count in waited.value().buckets] == [1, 2, 0]
    assert waited.value().sum == pytest.approx(0.012)
    assert took.value().sum == pytest.approx(0.012)


async def test_ticks_are_measured_too() -> None:
    clock, core = ManualClock(), Core()
    waited, took = Histogram((1.0,)), Histogram((1.0,))
    pump: TimedPump[str, str] = TimedPump(
        clock,
        core.handle,
        core.next_deadline_ms,
        lambda error: None,
        tick=TICK,
        queue_seconds=waited,
        processing_seconds=took,
    )
    pump.carry_out[str] = lambda effect: None
    core.deadline_ms = clock.now_ms() + 5
    pump.post("a")
    core.deadline_ms = None
    await clock.advance(5)
    assert [event for event, _ in core.taken] == ["a", TICK]
    assert [count for _, count in took.value().buckets] == [2, 0]
