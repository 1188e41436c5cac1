"""The page about a failing run, and the table of a swarm: for people, from what was recorded.

Owns the words and what fits on one page. Plays nothing and decides nothing.
"""

import inspect
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from textwrap import wrap
from typing import Any

from holdfast.sim.campaign.artifact import Artifact, name_of
from holdfast.sim.campaign.recording import Recording, first_event_that_differs
from holdfast.sim.campaign.rows import SeedRow
from holdfast.sim.campaign.shrink import Neighbour
from holdfast.sim.checks.all import PROPERTIES
from holdfast.sim.checks.history_rules import RULES
from holdfast.sim.load.clients import name_at
from holdfast.sim.machine.loop import START_NS

_WIDTH = 160
_EVENTS = 40
_STORY = 40
#: lines of what is told of a violation
_TOLD = 5
_WAITING = 16
_ERRORS = 6
#: kinds of events that tell what befell the cluster: processes, links, clocks, disks, operators
_BEFALLS = frozenset(
    "fault skipped point heal act kill power boot exit stop pause resume cut clog stall reset mended clock "
    "hang slow flip restore dirfault dirmended diskfault truncate".split()
)
#: as properties name the partition that they speak of
_PARTITION = re.compile(r" partition ([0-9]+): ")


def failure_page(
    kept: Artifact,
    recording: Recording,
    again: str,
    neighbour: Neighbour | None,
    defect: str | None,
) -> str:
    """One page. `again`: how to play it; `neighbour`: a run that gets past the place where this one fails."""
    result, spec = recording.result, recording.spec
    lines = [
        f"{name_of(result.violation)} violated by seed {spec.seed}",
        *_indented(wrap(str(result.violation), _WIDTH - 2)[:_TOLD]),
        *_meaning(str(result.violation)),
        f"  again:   {again}",
        f"  at:      step {result.handles}, {result.simulated_seconds:.6f} simulated seconds",
        f"  trace:   {result.trace_hash}",
        f"  code:    commit {kept.commit}, Python {kept.python}" + _broken(kept.mutant),
        f"  band:    {spec.told()}",
    ]
    if defect is not None:
        lines.append(f"  DEFECT OF THE SIMULATOR: a second play of this story parts from the first: {defect}")
    lines += ["replicas:", *result.replicas]
    lines += _parting(recording.events, neighbour)
    befell = _befell(recording.events, str(result.violation))
    head = f"what befell it, at which second (the last {min(_STORY, len(befell))} of {len(befell)}):"
    lines += [head, *_indented(befell[-_STORY:])]
    lines += [f"last {_EVENTS} events:", *_indented(recording.events[-_EVENTS:])]
    lines += ["waiting:", *_waiting(result.pending)]
    if result.errors:
        lines += ["errors logged:", *_indented(result.errors[-_ERRORS:])]
    return "\n".join(line[:_WIDTH] for line in lines)


def _meaning(violation: str) -> list[str]:
    """What the property says, and where it is checked; nothing for what has no class or function."""
    known: dict[str, Any] = {one.__name__: one for one in PROPERTIES} | RULES
    found = next((known[word] for word in violation.replace(":", " ").split()[:2] if word in known), None)
    if found is None:
        return []
    place = f"{found.__module__.removeprefix('holdfast.').replace('.', '/')}.py, {found.__name__}"
    return [f"  says:    {' '.join((inspect.getdoc(found) or '').split())}", f"  checked: {place}"]


def _befell(events: Sequence[str], violation: str) -> list[str]:
    """What happened to the cluster, and to the partition in question; in seconds from the beginning. The same
    thing several times at one instant is one line."""
    found = _PARTITION.search(violation)
    decided = f" holdfast.controller: {name_at(int(found[1]))}: " if found else None
    kept = [
        line
        for line in events
        if line.split(" ", 2)[1] in _BEFALLS or (decided is not None and decided in line)
    ]
    lines = []
    for line, same in groupby(kept):
        count = len(list(same))
        lines.append(_at_second(line) + (f" ({count} times)" if count > 1 else ""))
    return lines


def _at_second(event: str) -> str:
    """The event with its time in seconds from the beginning."""
    when, what = event.split(" ", 1)
    return f"{(int(when) - START_NS) / 1e9:9.6f} {what}"


def _broken(mutant: str) -> str:
    return f", broken on purpose by the mutant {mutant}" if mutant else ""


def _parting(events: Sequence[str], neighbour: Neighbour | None) -> list[str]:
    """Where a run that gets past this place goes another way."""
    if neighbour is None:
        return ["no neighbour: leaving out any one of the last faults changes nothing"]
    faults = [line for line in events if line.split(" ", 2)[1] == "fault"]
    end = "passes" if neighbour.fails_at_s is None else f"does not fail before {neighbour.fails_at_s:.6f}"
    # a tape that was edited by hand may name faults that are none
    told = _at_second(faults[neighbour.fault]).strip() if neighbour.fault < len(faults) else "one of them"
    head = f"without {told} it {end}"
    found = first_event_that_differs(list(events), neighbour.events)
    if found is None:
        return [f"{head}, by the same events"]
    number, here, there = found
    return [f"{head}; the first event that differs is number {number}:", *_indented([here, there])]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _waiting(pending: str) -> list[str]:
    """Pending tasks by the place where they wait, the most crowded last."""
    places: dict[str, list[str]] = defaultdict(list)
    for line in pending.splitlines():
        who, _, place = line.strip().rpartition(" at ")
        places[place].append(who.split(":")[0])
    rows = sorted(places.items(), key=lambda item: (len(item[1]), item[0]))
    lines = [f"  {place}: {_counted(who)}" for place, who in rows]
    return lines[:_WAITING] + (
        [f"  and {len(lines) - _WAITING} places more"] if len(lines) > _WAITING else []
    )


def _counted(names: Sequence[str]) -> str:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(name if count == 1 else f"{name} ({count})" for name, count in counts.items())


# --- swarms --------------------------------------------------------------------------------------------

_HEADS = "seed,band,mix,violated,steps,sim s,wall s,cpu s,batches,faults,marks,trace"
HEADS = tuple(_HEADS.split(","))


def cells(row: SeedRow) -> tuple[str, ...]:
    """A row of the table under `HEADS`."""
    return (
        str(row.seed),
        row.band,
        row.mix,
        "DEFECT" if row.defect is not None else row.violated or "-",
        str(row.steps),
        f"{row.simulated_seconds:.1f}",
        f"{row.wall_seconds:.1f}",
        f"{row.cpu_seconds:.1f}",
        str(row.acknowledged_batches),
        str(sum(row.faults.values())),
        str(sum(1 for count in row.marks.values() if count)),
        row.trace_hash,
    )


def summary(total: Mapping[str, Any]) -> str:
    """The sums of `sim.campaign.rows.sums` in words."""
    lines = [
        f"{total['seeds']} seeds, {total['simulated_seconds']} simulated seconds in {total['cpu_seconds']} "
        f"seconds of CPU: {total['simulated_seconds_per_cpu_second']} a second, "
        f"{total['seeds_per_cpu_minute']} seeds a minute",
        f"{total['steps']} steps, {total['changes']} changes checked, "
        f"{total['batches_per_simulated_second']} acknowledged batches and "
        f"{total['faults_per_simulated_second']} faults a simulated second",
    ]
    marks = total["marks"]
    if marks:
        never = total["marks_never_met"]
        lines.append(
            f"rare states: {len(marks) - len(never)} of {len(marks)} met"
            + (f"; never: {', '.join(never)}" if never else "")
        )
    lines += [f"allowed: {name}: {count}" for name, count in total["allowed"].items()]
    for name, seeds in total["violations"].items():
        lines.append(f"violated: {name} by {len(seeds)} seeds: {_some(seeds)}")
    if total["defects"]:
        lines.append(f"DEFECTS OF THE SIMULATOR, two plays differ: seeds {_some(total['defects'])}")
    if not total["violations"] and not total["defects"]:
        lines.append("every property held")
    return "\n".join(lines)


def _some(seeds: Sequence[int], limit: int = 20) -> str:
    return ", ".join(map(str, seeds[:limit])) + (
        f" and {len(seeds) - limit} more" if len(seeds) > limit else ""
    )
