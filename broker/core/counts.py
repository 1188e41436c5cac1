"""Running totals of one broker, for `broker.core.telemetry`."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class BrokerCounts:
    """Totals since the start, by topic name where a topic is known."""

    messages_in: dict[str, int] = field(default_factory=dict)
    bytes_in: dict[str, int] = field(default_factory=dict)
    replication_bytes_in: dict[str, int] = field(default_factory=dict)
    isr_expands: int = 0
    isr_shrinks: int = 0
    failed_isr_updates: int = 0
    metadata_violations: int = 0

    def forget_topic(self, name: str) -> None:
        """It was deleted: names that come and go leave nothing behind."""
        for totals in (self.messages_in, self.bytes_in, self.replication_bytes_in):
            totals.pop(name, None)
