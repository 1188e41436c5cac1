"""Running totals of one broker. Read by `broker.core.telemetry`; decides nothing."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class BrokerCounts:
    """Running totals since the start; {topic name: n} where a topic is known."""

    messages_in: dict[str, int] = field(default_factory=dict)
    bytes_in: dict[str, int] = field(default_factory=dict)
    replication_bytes_in: dict[str, int] = field(default_factory=dict)
    isr_expands: int = 0
    isr_shrinks: int = 0
    failed_isr_updates: int = 0
    metadata_violations: int = 0
