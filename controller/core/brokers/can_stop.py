"""Whether a broker may stop: what a clean stop would cost the partitions that it hosts.

Owns the verdict of `holdfast check can-stop`; `controller.core.brokers.what_if` applies the controller's own
rules. Says nothing about how long the broker may stay away.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum

from holdfast.controller.core.brokers.what_if import after_stops, context_of, registration_of
from holdfast.protocol.messages.topics import DescribedPartition, DescribedTopic


class Severity(IntEnum):
    """Exit codes of Nagios checks."""

    OK = 0
    WARN = 1
    CRIT = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class StopAdvice:
    """The result; partitions by name (`topic-0`), in order."""

    severity: Severity
    #: partitions with a replica on the broker
    hosted: int
    #: partitions that have a leader now and would have none
    goes_offline: tuple[str, ...] = ()
    #: partitions with min ISR members now, and fewer afterwards
    loses_writes: tuple[str, ...] = ()
    #: partitions without a leader or below min ISR already, which the broker could help
    needs_broker: tuple[str, ...] = ()


def can_stop(
    broker_id: int, topics: Iterable[DescribedTopic], is_active: Callable[[int], bool]
) -> StopAdvice:
    """CRIT when a partition would go offline, WARN when one would refuse writes or does so already."""
    offline: list[str] = []
    writes: list[str] = []
    needy: list[str] = []
    hosted = 0
    for topic in sorted(topics, key=lambda found: found.name):
        for row in topic.partitions:
            hosted += broker_id in row.replicas
            name = f"{topic.name}-{row.partition_index}"
            if not _matters(broker_id, row):
                continue
            before = registration_of(row)
            after = after_stops(before, (broker_id,), context_of(row, is_active))
            if before.leader is not None and after.leader is None:
                offline.append(name)
            elif before.leader is None or len(before.isr) < before.min_isr:
                needy.append(name)
            elif len(after.isr) < after.min_isr:
                writes.append(name)
    severity = Severity.CRIT if offline else Severity.WARN if writes or needy else Severity.OK
    return StopAdvice(severity, hosted, tuple(offline), tuple(writes), tuple(needy))


def _matters(broker_id: int, row: DescribedPartition) -> bool:
    """The broker leads the partition or is in its ISR, ELR or last known ELR; otherwise a stop changes
    nothing."""
    seats = (row.isr, row.eligible_leader_replicas or (), row.last_known_elr or (), (row.leader_id,))
    return any(broker_id in ids for ids in seats)
