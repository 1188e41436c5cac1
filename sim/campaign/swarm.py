"""Plays many seeds: the work that is done for each of them, and the engine that spreads it over processes.

Owns what is checked beside the properties (a second play of some seeds, draw by draw), how long a seed may
take, and what is kept of a failing seed. Spark spreads the same work over machines, see
`sim.campaign.spark_engine`.
"""

import gc
import gzip
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from holdfast.sim.campaign import shrink
from holdfast.sim.campaign.artifact import artifact_of, save
from holdfast.sim.campaign.recording import Recording, difference, play, record
from holdfast.sim.campaign.report import failure_page
from holdfast.sim.campaign.rows import SeedRow, broken_row, row_of
from holdfast.sim.campaign.run_spec import RunTemplate
from holdfast.sim.machine.loop import START_NS, SimLoop

#: one seed in so many is played twice
TWICE_ONE_IN = 100
#: of a traceback
_LINES_OF_ERROR = 4
#: replays that look for a neighbour of a failing run which gets past it
_NEIGHBOURS = 6
#: how often a seed's process looks at itself
_LOOK_S = 1.0
#: who uses less of the processor between two looks does nothing but look
_IDLE_S = 0.002
#: the kernel ends a process that is over its time by so much: it does not even come to look
_GRACE_S = 30
#: calls that are told of a process that is over its time
_CALLS = 12


@dataclass(frozen=True, slots=True)
class SeedLimits:
    """How long the process of a seed may take. A run that never rests ends by its own bound of handles; these
    are for what a run cannot count: one handle that never ends, or a wait for the real world."""

    #: of the processor, for all plays of the seed: a hundred times what most seeds need
    cpu_seconds: float
    #: that it does nothing at all, of the wall clock
    idle_seconds: float = 120.0

    @classmethod
    def of(cls, template: RunTemplate) -> "SeedLimits":
        """For stories as long as these."""
        return cls(120 + 16 * template.seconds)


def play_seed(template: RunTemplate, seed: int) -> SeedRow:
    """Play a seed. One in a hundred, and each that fails, is played again and compared draw by draw."""
    started, cpu_started = time.monotonic(), time.process_time()
    spec = template.spec(str(seed))
    try:
        result = play(spec)
    except Exception as error:  # noqa: BLE001  it is in the row, and the other seeds go on
        return broken_row(seed, spec, "".join(traceback.format_exception(error)[-_LINES_OF_ERROR:]))
    wall, cpu = time.monotonic() - started, time.process_time() - cpu_started
    defect = None
    if seed % TWICE_ONE_IN == 0 or result.violation is not None:
        recording = record(spec)
        defect = difference(recording, record(spec))
        if defect is None and recording.result.trace_hash != result.trace_hash:
            defect = "recording a run changes its trace"
    return row_of(seed, spec, result, defect, wall, cpu)


def play_seeds(
    template: RunTemplate,
    seeds: Iterable[int],
    jobs: int,
    until: float | None = None,
    limits: SeedLimits | None = None,
) -> Iterator[SeedRow]:
    """The rows of seeds as they come, from `jobs` processes at a time.

    Each seed has a process of its own: no other seed's story is in it, what ends the process is in the row of
    that seed, and no time goes into taking a world apart.
    `until`: no seed is begun after that instant of the monotonic clock. `limits`: by the length of the
    stories unless given; the row of a seed beyond them says what it was doing.
    """
    limits = limits or SeedLimits.of(template)
    # Forked from a server that has imported everything and has nothing of this process, its threads included.
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__, "holdfast.sim.campaign.warm"])
    left = iter(seeds)
    running: dict[Connection, tuple[int, BaseProcess]] = {}
    try:
        while True:
            while len(running) < jobs and (until is None or time.monotonic() < until):
                seed = next(left, None)
                if seed is None:
                    break
                ours, theirs = context.Pipe(duplex=False)
                begun = context.Process(
                    target=_play_alone, args=(theirs, template, seed, limits), daemon=True
                )
                begun.start()
                theirs.close()
                running[ours] = seed, begun
            if not running:
                return
            for told in wait(list(running)):
                assert isinstance(told, Connection)
                seed, process = running.pop(told)
                yield _row_from(told, process, template, seed)
    finally:
        for told, (_, process) in running.items():
            process.kill()
            process.join()
            told.close()


def _row_from(told: Connection, process: BaseProcess, template: RunTemplate, seed: int) -> SeedRow:
    with told:
        try:
            row = told.recv()
            assert isinstance(row, SeedRow)
        except (EOFError, OSError):  # before its row, or within it
            process.join()
            defect = f"its process ended with {process.exitcode} before it was played"
            return broken_row(seed, template.spec(str(seed)), defect)
        process.join()
        return row


def _play_alone(tell: Connection, template: RunTemplate, seed: int, limits: SeedLimits) -> None:
    """A signal from the keyboard ends the parent, which ends us; a parent that was killed does so too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    telling = threading.Lock()
    threading.Thread(target=_watch, args=(tell, telling, template, seed, limits), daemon=True).start()
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    most = int(limits.cpu_seconds) + _GRACE_S
    resource.setrlimit(
        resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )
    gc.disable()  # the process ends before it pays
    row = play_seed(template, seed)
    with telling:
        tell.send(row)
    tell.close()


def _watch(
    tell: Connection, telling: threading.Lock, template: RunTemplate, seed: int, limits: SeedLimits
) -> None:
    """End this process with its parent, or when it takes too long; then its row says what it was doing."""
    parent, playing = parent_process(), threading.main_thread().ident
    assert parent is not None
    assert playing is not None
    used = idle = 0.0
    while True:
        parent.join(_LOOK_S)
        if not parent.is_alive():
            os._exit(1)
        before, used = used, time.process_time()
        # A process that was stopped and goes on is idle for one look only.
        idle = idle + _LOOK_S if used - before < _IDLE_S else 0.0
        if used > limits.cpu_seconds or idle > limits.idle_seconds:
            how = (
                f"idle for {idle:g} s"
                if idle > limits.idle_seconds
                else f"after {used:.0f} s of the processor"
            )
            defect = f"not over {how}: {_doing(sys._current_frames()[playing])}"
            with telling:
                tell.send(broken_row(seed, template.spec(str(seed)), defect))
            os._exit(1)


def _doing(frame: FrameType) -> str:
    """Where a story is, and the innermost calls."""
    stack = traceback.extract_stack(frame)[-_CALLS:]
    calls = " < ".join(
        f"{'/'.join(call.filename.split('/')[-2:])}:{call.lineno} {call.name}" for call in reversed(stack)
    )
    at: FrameType | None = frame
    while at is not None:
        loop = at.f_locals.get("self")
        if isinstance(loop, SimLoop):
            seconds = (loop.now_ns - START_NS) / 1e9
            return f"{loop.current.name}, {loop.steps} handles, {seconds:.6f} simulated seconds, {calls}"
        at = at.f_back
    return calls


def keep_seed(template: RunTemplate, seed: str, folder: Path | None) -> str:
    """Play a failing seed again with everything kept; returns its page.

    Into `folder`: `seed-N.json` for replay and shrink, `seed-N.txt` the page, `seed-N.events.gz` every event.
    """
    recording = record(template.spec(seed))
    page = page_of(recording, template.command(seed))
    if folder is not None:
        path = folder / f"seed-{seed}.json"
        save(artifact_of(recording.spec, recording.tape, recording.result), path)
        path.with_suffix(".txt").write_text(page + "\n", encoding="utf-8")
        with gzip.open(path.with_suffix(".events.gz"), "wt", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in recording.events)
    return page


def page_of(recording: Recording, again: str, mutant: str = "") -> str:
    """The page about a recorded run that failed; plays it once more, and neighbours of it.

    `mutant`: the name of the one that is in the code meanwhile.
    """
    kept = artifact_of(recording.spec, recording.tape, recording.result, mutant)
    # From the tape in both cases: the seed's generators are not part of the comparison then.
    defect = difference(_as_replayed(recording), record(recording.spec, recording.tape))
    neighbour = shrink.passing_neighbour(kept, recording.result.simulated_seconds, _NEIGHBOURS)
    return failure_page(kept, recording, again, neighbour, defect)


def _as_replayed(recording: Recording) -> Recording:
    return Recording(recording.spec, recording.result, recording.tape, {}, recording.events)
