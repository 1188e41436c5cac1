"""What an active controller does by itself every few minutes, worked out once more: partitions that may have
any leader get one, and leaderships go back to preferred replicas (R16).

Owns a second opinion: sentences about what was left undone for a whole interval, and about leaderships that
were moved without need. Only stories with short intervals last long enough for it.
"""

from typing import Any, TypeAlias

from holdfast.controller.core.decisions import CauseKind
from holdfast.controller.core.events import Tick
from holdfast.controller.core.partitions import leader_balance, replication_control
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.sim.checks.observe.views import compares_logs, may_lead, takes_any_replica

#: longer than any story, ms
_NEVER_MS = 120_000
#: by partition, since when a replica could lead it; of one pass
_Since: TypeAlias = dict[PartitionId, int]


class Passes:
    """Of one controller process."""

    def __init__(self, core: QuorumController) -> None:
        self._core = core
        config = core.config
        self._unclean_ms, self._balance_ms = config.unclean_election_interval_ms, config.rebalance_interval_ms
        self._is_idle = min(self._unclean_ms, self._balance_ms) > _NEVER_MS
        self._leaderless: _Since = {}
        self._missed: _Since = {}
        #: that was looked at last
        self._image: MetadataImage | None = None
        #: leaderships were moved last
        self._moved_ms: int | None = None
        #: of the last decision that was looked at
        self._offset = -1

    def differs(self, event: Any, now_ms: int) -> list[str]:
        """What is wrong with what the passes have done, or not, by an event."""
        if self._is_idle:
            return []
        core = self._core
        if not core.is_active:
            self._image, self._moved_ms, self._offset = None, None, -1
            return []
        image, found = core.latest, []
        if self._image is None:
            self._leaderless, self._missed = {}, {}
        if image is not self._image:
            self._image = image
            found = self._needless(image, now_ms)
            self._leaderless = _since(self._leaderless, self._may_have_any_leader(image), now_ms)
            self._missed = _since(self._missed, self._may_go_back(image), now_ms)
        if type(event) is Tick:
            count = sum(len(topic.partitions) for topic in image.topics.values())
            whats = (
                (
                    "may have any leader, and has none",
                    self._leaderless,
                    self._unclean_ms,
                    replication_control.UNCLEAN_PASS_MAX,
                ),
                (
                    "is not led by its preferred replica",
                    self._missed,
                    self._balance_ms,
                    leader_balance.PASS_MAX,
                ),
            )
            for what, since, interval_ms, pass_max in whats:
                # those that come first may have the places of a pass over and over
                patience_ms = interval_ms * (1 + (count - 1) // pass_max)
                found += [
                    f"{_name(image, key)} {what} for {now_ms - ms} ms"
                    for key, ms in since.items()
                    if now_ms - ms > patience_ms
                ]
        return found

    def _may_have_any_leader(self, image: MetadataImage) -> list[PartitionId]:
        """Partitions for unclean elections while logs are not compared (R12)."""
        if not image.leaderless or compares_logs(image, self._core.config.recovery_manager_enabled):
            return []
        return [
            PartitionId(topic.topic_id, index)
            for topic, index, row in image.leaderless_partitions()
            if takes_any_replica(image, topic.name, self._core.config.recovery_manager_enabled)
            and any(may_lead(image, one, PartitionId(topic.topic_id, index)) for one in row.replicas)
        ]

    def _may_go_back(self, image: MetadataImage) -> list[PartitionId]:
        """Partitions of brokers that miss too many of their leaderships, which they could lead now."""
        missing = {broker_id for broker_id, share in _missed(image).items() if self._is_too_much(*share)}
        return [
            PartitionId(topic.topic_id, index)
            for topic in image.topics.values()
            for index, row in topic.partitions.items()
            if (preferred := row.replicas[0]) in missing
            and preferred in row.isr
            and row.leader != preferred
            and not row.adding_replicas
            and not row.removing_replicas
            and may_lead(image, preferred, PartitionId(topic.topic_id, index))
        ]

    def _is_too_much(self, missed: int, preferring: int) -> bool:
        return missed / preferring > self._core.config.imbalance_percentage / 100

    def _needless(self, image: MetadataImage, now_ms: int) -> list[str]:
        """Leaderships that were moved though their brokers missed few, or too soon behind the pass before."""
        news = [one for one in self._core.decisions if one.offset > self._offset]
        if not news:
            return []
        self._offset = news[-1].offset
        moved: dict[int, int] = {}
        for one in news:
            if one.decision.cause.kind is CauseKind.LEADER_BALANCE:
                moved[one.after.replicas[0]] = moved.get(one.after.replicas[0], 0) + 1
        if not moved:
            return []
        found, last_ms = [], self._moved_ms
        self._moved_ms = now_ms
        if last_ms is not None and now_ms - last_ms < self._balance_ms:
            found.append(f"leaderships are moved again after {now_ms - last_ms} ms")
        shares = _missed(image)
        for broker_id, count in moved.items():
            missed, preferring = shares[broker_id]
            if not self._is_too_much(missed + count, preferring):
                found.append(
                    f"broker {broker_id} gets {count} back, and missed {missed + count} of {preferring}"
                )
        return found


def _since(known: _Since, keys: list[PartitionId], now_ms: int) -> _Since:
    return {key: known.get(key, now_ms) for key in keys}


def _missed(image: MetadataImage) -> dict[int, tuple[int, int]]:
    """By broker: partitions that prefer it and that others lead or no broker does, and all that prefer it."""
    found: dict[int, tuple[int, int]] = {}
    for topic in image.topics.values():
        for row in topic.partitions.values():
            missed, preferring = found.get(row.replicas[0], (0, 0))
            found[row.replicas[0]] = missed + (row.leader != row.replicas[0]), preferring + 1
    return found


def _name(image: MetadataImage, key: PartitionId) -> str:
    return f"{image.topics[key[0]].name}-{key[1]}"
