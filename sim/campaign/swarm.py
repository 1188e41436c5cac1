"""Plays many seeds: the work that is done for each of them, and the engine that spreads it over processes.

Owns what is checked beside the properties (a second play of some seeds, draw by draw) and what is kept of a
failing seed. Spark spreads the same work over machines, see `sim.campaign.spark_engine`.
"""

import gc
import gzip
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from holdfast.sim.campaign import shrink
from holdfast.sim.campaign.artifact import artifact_of, save
from holdfast.sim.campaign.recording import Recording, difference, play, record
from holdfast.sim.campaign.report import failure_page
from holdfast.sim.campaign.rows import SeedRow, broken_row, row_of
from holdfast.sim.campaign.run_spec import RunTemplate

#: one seed in so many is played twice
TWICE_ONE_IN = 100
#: of a traceback
_LINES_OF_ERROR = 4
#: replays that look for a neighbour of a failing run which gets past it
_NEIGHBOURS = 6


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
    template: RunTemplate, seeds: Iterable[int], jobs: int, until: float | None = None
) -> Iterator[SeedRow]:
    """The rows of seeds as they come, from `jobs` processes at a time.

    Each seed has a process of its own: no other seed's story is in it, whatever ends the process is in
    the row of that seed, and no time goes into taking a world apart.
    `until`: no seed is begun after that instant of the monotonic clock.
    """
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
                begun = context.Process(target=_play_alone, args=(theirs, template, seed), daemon=True)
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


def _play_alone(tell: Connection, template: RunTemplate, seed: int) -> None:
    """A signal from the keyboard ends the parent, which ends us; a parent that was killed does so too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.disable()  # the process ends before it pays
    tell.send(play_seed(template, seed))
    tell.close()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


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
