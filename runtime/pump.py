"""Runs a core for its shell: one queue of events, effects carried out in order, one timer, one way to end.

Owns the queue and the timer for the core's next deadline. An event that is posted while another is handled
waits in the queue. When the core, an effect or a tap raises, the pump ends: it handles and carries out
nothing more, and calls `failed` once with the error (A-20).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from holdfast.runtime.api import Clock, Timer
from holdfast.runtime.stats import Histogram

Event = TypeVar("Event")
Effect = TypeVar("Effect")


class Tap(Generic[Event, Effect]):
    """Observes a pump and changes nothing. A base class: each method does nothing."""

    def before(self, event: Event, now_ms: int) -> None:
        """Called before the core handles the event."""

    def after(self, event: Event, effects: Sequence[Effect], now_ms: int) -> None:
        """Called when the core has handled the event, before the effects are carried out."""

    def sending(self, effect: Effect, message: Any) -> None:
        """Called before the shell sends what an effect asks for, where that is not the moment after the event
        (raft waits for its vote to be durable), or where the shell makes the `message` (records are read)."""


class Pump(Generic[Event, Effect]):
    """Runs one core."""

    def __init__(
        self,
        clock: Clock,
        handle: Callable[[Event, int], Sequence[Effect]],
        next_deadline_ms: Callable[[], int | None],
        failed: Callable[[Exception], None],
        *,
        tick: Event | None = None,
        queue_empty: Event | None = None,
        idle: Callable[[], None] | None = None,
        delay_ms_min: int = 0,
        settles_in_next_turn: bool = False,
    ) -> None:
        """`handle(event, now_ms)` and `next_deadline_ms()` are the core's. `tick` is posted at that deadline
        at the latest. `failed` is called once, with what ended the pump.

        `queue_empty` is handled each time the queue has run empty; without a `tick` the timer leads to that
        alone. `idle` is called after it, between two events: an event posted there is handled before `post`
        returns. `delay_ms_min` is the shortest time a timer is set for. With `settles_in_next_turn`,
        `queue_empty` and what follows it come in the next turn of the event loop, once for all events of a
        turn.
        """
        #: {type of an effect: what carries it out}; the shell fills it in before the first event
        self.carry_out: dict[type, Callable[[Any], object]] = {}
        #: the shell has ended the pump, or something has raised: nothing is handled any more
        self.is_ended = False
        #: an event is being handled; the next one is queued
        self.is_busy = False
        self._clock = clock
        self._now_ms = clock.now_ms
        self._core_handle = self._handle = handle
        self._next_deadline_ms = next_deadline_ms
        self._failed = failed
        self._has_failed = False
        self._tick = tick
        self._queue_empty = queue_empty
        self._idle = idle
        self._delay_ms_min = delay_ms_min
        self._settles_in_next_turn = settles_in_next_turn
        #: events were handled, and `queue_empty` comes in the next turn of the event loop
        self.is_settling_due = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: deque[Event] = deque()
        self._has_timer = True
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._taps: list[Tap[Event, Effect]] = []

    # --- events --------------------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Handle the event before this returns, or queue it while another is handled. Ignored after `end`."""
        self._queue.append(event)
        if not self.is_busy:
            self._begin_run()

    def post_first(self, event: Event) -> None:
        """As `post`, but ahead of the queue."""
        self._queue.appendleft(event)
        if not self.is_busy:
            self._begin_run()

    def run(self) -> None:
        """Handle `queue_empty` alone. While an event is handled this does nothing: `queue_empty` follows."""
        if not self.is_busy:
            self._run()

    def end(self) -> None:
        """Handle nothing more, carry out nothing more."""
        self.is_ended = True
        self._queue.clear()
        self.stop_timer()

    def _begin_run(self) -> None:
        if not self._settles_in_next_turn:
            self._run()
            return
        self._run(is_settling=False)
        if not self.is_settling_due and not self.is_ended:
            self.is_settling_due = True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        self.is_settling_due = False
        self.run()

    def _run(self, *, is_settling: bool = True) -> None:
        queue, queue_empty = self._queue, self._queue_empty
        if self.is_ended:
            queue.clear()
            return
        handle, now_ms = self._handle, self._now_ms
        self.is_busy = True
        try:
            while True:
                while queue and not self.is_ended:
                    self._carry_out(handle(queue.popleft(), now_ms()))
                if not is_settling:
                    return
                if queue_empty is None or self.is_ended:
                    break
                self._carry_out(handle(queue_empty, now_ms()))
                if not queue:
                    break
            self.is_busy = False
            if self._idle is not None:
                self._idle()
            if not self.is_ended:
                self.set_timer()
        except Exception as error:  # noqa: BLE001 - not swallowed: it ends the pump
            self._fail(error)
        except BaseException:
            self.end()
            raise
        finally:
            self.is_busy = False

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        carry_out = self.carry_out
        for effect in effects:
            if self.is_ended:  # by the effect before this one
                return
            carry_out[type(effect)](effect)

    def _fail(self, error: Exception) -> None:
        self.end()
        if not self._has_failed:
            self._has_failed = True
            self._failed(error)

    # --- time ----------------------------------------------------------------------------------------------

    def set_timer(self) -> None:
        """Set the timer for the core's next deadline. An earlier timer stays: its tick sets the next one."""
        deadline_ms = self._next_deadline_ms()
        if deadline_ms is None:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        if not self._has_timer:
            return
        self._timer_ms = deadline_ms
        delay_ms = max(self._delay_ms_min, deadline_ms - self._clock.now_ms())
        self._timer = self._clock.call_later(delay_ms, self._fire)

    def stop_timer(self) -> None:
        """Post no more ticks. Other events are handled as before."""
        self._has_timer = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        if self._tick is None:
            self.run()
        else:
            self.post(self._tick)

    # --- taps ----------------------------------------------------------------------------------------------

    def add_tap(self, tap: Tap[Event, Effect]) -> None:
        """Let `tap` observe every event from now on. Without taps the core is called directly."""
        self._taps.append(tap)
        self._handle = self._handle_with_taps

    def sending(self, effect: Effect, message: Any = None) -> None:
        """For the shell: call `Tap.sending`."""
        for tap in self._taps:
            tap.sending(effect, message)

    def _handle_with_taps(self, event: Event, now_ms: int) -> Sequence[Effect]:
        for tap in self._taps:
            tap.before(event, now_ms)
        effects = self._core_handle(event, now_ms)
        for tap in self._taps:
            tap.after(event, effects, now_ms)
        return effects


class TimedPump(Pump[Event, Effect]):
    """A pump that measures for each event its time in the queue, and its processing time with all effects."""

    def __init__(
        self,
        clock: Clock,
        handle: Callable[[Event, int], Sequence[Effect]],
        next_deadline_ms: Callable[[], int | None],
        failed: Callable[[Exception], None],
        *,
        tick: Event,
        queue_seconds: Histogram,
        processing_seconds: Histogram,
    ) -> None:
        super().__init__(clock, handle, next_deadline_ms, failed, tick=tick)
        self._now_ms = self._begin
        self._queue_seconds = queue_seconds
        self._processing_seconds = processing_seconds
        #: when each event in the queue was posted, ns
        self._posted_ns: deque[int] = deque()
        #: of the event that is handled: how long it has waited, when it was begun
        self._waited_ns = self._begun_ns = 0

    def post(self, event: Event) -> None:
        self._posted_ns.append(self._clock.now_ns())
        super().post(event)

    def post_first(self, event: Event) -> None:
        self._posted_ns.appendleft(self._clock.now_ns())
        super().post_first(event)

    def _begin(self) -> int:
        self._begun_ns = self._clock.now_ns()
        self._waited_ns = self._begun_ns - self._posted_ns.popleft()
        return self._clock.now_ms()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        super()._carry_out(effects)
        self._queue_seconds.observe(self._waited_ns / 1e9)
        self._processing_seconds.observe((self._clock.now_ns() - self._begun_ns) / 1e9)
