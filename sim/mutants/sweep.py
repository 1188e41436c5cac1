"""Plays ordinary stories with mechanical mutants, and says which of them no property notices.

Owns what becomes of one: noticed, without any effect on these stories, or to be looked at. A survivor may be
an optimisation, a courtesy, masked by another rule, or a blind spot; only people can tell.
"""

import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from types import CodeType

from holdfast.sim.campaign.recording import play
from holdfast.sim.campaign.run import RunResult
from holdfast.sim.campaign.run_spec import RunSpec, RunTemplate
from holdfast.sim.machine.choices import Choices
from holdfast.sim.mutants.find_kill import first_line
from holdfast.sim.mutants.mechanical import NotExchangeable, SourceChange, applied, changes_of, path_of
from holdfast.sim.mutants.table import MUTANTS

#: a change that has had no effect on so many stories is not looked at further
_PATIENCE = 4
#: of one story; only a loop without an end needs more
_CPU_SECONDS_MAX = 120
_MEMORY_MAX = 4 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a change."""

    change: SourceChange
    #: stories that were played with it
    tried: int
    #: of those: they were others than without it
    differed: int
    #: the seed that noticed, with what it said
    seed: str | None = None
    text: str = ""

    @property
    def outcome(self) -> str:
        """In a word or two."""
        if self.seed is not None:
            return "killed"
        if self.differed:
            return "survives"
        return "no effect" if self.tried else "not reached"


@dataclass(frozen=True, slots=True)
class SweepRuns:
    """What is played with a change."""

    band: str = "budget"
    #: the name of a mutant: stories in which that shows; without one, ordinary ones of the band
    like: str = ""

    def spec(self, seed: str) -> RunSpec:
        """Of one seed."""
        return MUTANTS[self.like].setting.spec(seed) if self.like else RunTemplate(band=self.band).spec(seed)


USUAL = SweepRuns()


class Endless(KeyboardInterrupt):
    """A story took too long. A KeyboardInterrupt, since nodes take care of all other errors."""


def drawn(names: Sequence[str], count: int, seed: str) -> list[SourceChange]:
    """So many changes of these modules, each as likely as the others."""
    left = [change for name in names for change in changes_of(name)]
    stream = Choices(seed).stream("sweep")
    return [left.pop(stream.draw(len(left))) for _ in range(min(count, len(left)))]


def judge(change: SourceChange, seeds: Sequence[str], runs: SweepRuns = USUAL) -> Finding | None:
    """Play until a seed notices, or has had no effect for long. None: the change cannot be made."""
    if not any(_played(seed, runs).reaches(change) for seed in seeds):
        return Finding(change, 0, 0)
    tried = differed = 0
    for seed in seeds:
        usual = _played(seed, runs).result
        if usual.violation is not None:
            continue
        tried += 1
        try:
            with applied(change):
                result = _bounded(seed, runs)
        except NotExchangeable:
            return None
        except Endless:
            return Finding(change, tried, differed + 1, seed, f"no end within {_CPU_SECONDS_MAX} s of CPU")
        except Exception as error:  # noqa: BLE001  of the mutant, before the world was there
            return Finding(change, tried, differed + 1, seed, f"{type(error).__name__}: {error}")
        if result.violation is not None:
            return Finding(change, tried, differed + 1, seed, first_line(result.violation))
        differed += result.trace_hash != usual.trace_hash
        if tried == _PATIENCE and not differed:
            break
    return Finding(change, tried, differed)


def sweep(
    changes: Sequence[SourceChange], seeds: Sequence[str], runs: SweepRuns, jobs: int
) -> Iterator[Finding]:
    """As `judge`, from several processes, as they come; those that cannot be made are left out. A change that
    takes its whole process along, such as one that grows without end, is killed like others."""
    left = list(changes)
    while left:
        with _pool(jobs) as pool:
            asked = {pool.submit(judge, change, seeds, runs): change for change in left}
            for future in as_completed(asked):
                if isinstance(future.exception(), BrokenProcessPool):
                    break
                left.remove(asked[future])
                finding = future.result()
                if finding is not None:
                    yield finding
        # Those that were being played when one of them ended its process, each by itself.
        suspects, left = left[:jobs], left[jobs:]
        for change in suspects:
            finding = _alone(change, seeds, runs)
            if finding is not None:
                yield finding


def _alone(change: SourceChange, seeds: Sequence[str], runs: SweepRuns) -> Finding | None:
    with _pool(1) as pool:
        pool.submit(int).result()  # who cannot start at all, for want of memory or files, says nothing of it
        try:
            return pool.submit(judge, change, seeds, runs).result()
        except BrokenProcessPool:
            return Finding(change, len(seeds), 1, "one of them", "its process ended")


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_bound)


def _bound() -> None:
    """Keep a process within bounds that a mutant may not know."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX, _MEMORY_MAX))


@dataclass(frozen=True, slots=True)
class _Usual:
    """A story without any change."""

    result: RunResult
    #: (file, line) of all code that ran; None where Python cannot tell cheaply (before 3.12)
    lines: frozenset[tuple[str, int]] | None

    def reaches(self, change: SourceChange) -> bool:
        """Whether the changed line ran, as far as is known."""
        return self.lines is None or (path_of(change.module), change.line) in self.lines


@cache
def _played(seed: str, runs: SweepRuns) -> _Usual:
    spec = runs.spec(seed)
    if sys.version_info < (3, 12):
        return _Usual(play(spec), None)
    lines: set[tuple[str, int]] = set()

    def ran(code: CodeType, line: int) -> object:
        lines.add((code.co_filename, line))
        return sys.monitoring.DISABLE

    watch, events = sys.monitoring, sys.monitoring.events
    watch.use_tool_id(watch.COVERAGE_ID, "sweep")
    watch.restart_events()
    watch.register_callback(watch.COVERAGE_ID, events.LINE, ran)
    watch.set_events(watch.COVERAGE_ID, events.LINE)
    try:
        return _Usual(play(spec), frozenset(lines))
    finally:
        watch.set_events(watch.COVERAGE_ID, 0)
        watch.free_tool_id(watch.COVERAGE_ID)


def _bounded(seed: str, runs: SweepRuns) -> RunResult:
    former = signal.signal(signal.SIGVTALRM, _interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, _CPU_SECONDS_MAX)
    try:
        return play(runs.spec(seed))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)


def _interrupt(number: int, frame: object) -> None:
    raise Endless
