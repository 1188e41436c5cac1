"""Effects that the cores of producer and consumer have in common."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the broker; answer with `connected` or `connect_failed`."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class RefreshMetadata:
    """Ask for metadata soon; answer with `metadata_changed`, also when nothing changed."""
