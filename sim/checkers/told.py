"""Properties of what the controllers tell operators of losses (B-4, R68)."""

import re
from collections import Counter
from collections.abc import Sequence

from controller.election import ElectionReason
from sim.checkers.observer import Observer
from sim.checkers.views import Change, Property
from sim.clients import partition_at
from sim.nodes import SimController

_UNCLEAN = tuple(reason for reason in ElectionReason if reason.is_unclean)
_TOLD = re.compile(r"(\S+)-(\d+): .*elected as (\w+); records may be lost")


class UncleanElectionsAreTold(Property):
    """Whenever somebody is elected who may lack committed records, the controller has told of it, by
    partition and rule, and has counted it. In every band."""

    name = "B-4 UncleanElectionsAreTold"

    def __init__(self) -> None:
        #: {(topic, index, rule): how often}; an election that was told of may never be committed
        self._told: Counter[tuple[str, int, str]] = Counter()
        #: {process of a controller: elections that it told of}
        self._by_process: Counter[str] = Counter()

    def controller_warned(self, seen: Observer, node: SimController, lines: Sequence[str]) -> None:
        for line in lines:
            found = _TOLD.match(line)
            if found is None:
                seen.broken(self, None, f"{node.name} does not tell which partition: {line}")
                return
            self._told[found[1], int(found[2]), found[3]] += 1
        process = node.process.name
        self._by_process[process] += len(lines)
        assert node.server is not None
        elections = node.server.core.counts.elections
        counted = sum(elections[reason] for reason in _UNCLEAN)
        if counted != self._by_process[process]:
            story = f"{node.name} counts {counted} elections that may lose records"
            seen.broken(self, None, f"{story}, it told of {self._by_process[process]}: {lines[-1]}")

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        reason = change.decision.reason
        if reason is None or not reason.is_unclean:
            return
        partition = partition_at(index)
        key = partition.topic, partition.partition, reason.value
        if not self._told[key]:
            seen.broken(self, index, f"nobody told of {change.decision}: {change.before} -> {change.after}")
        self._told[key] -= 1
