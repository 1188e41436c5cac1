"""Which partitions an active controller should recover, how, and when they are decided, worked out once more
(R60 to R65, R69).

Owns a second opinion: sentences about where the controller differs. Which answers there are it is asked, not
what follows from them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from controller.events import RecoveryElected, RecoveryStated, RequestArrived
from controller.quorum_controller import QuorumController
from controller.unclean_recovery import Recovery, Strategy
from metadata.image import MetadataImage, PartitionKey
from metadata.partition import PartitionRegistration
from protocol.messages.elect_leaders import ElectionKind, ElectLeadersRequest
from sim.checkers.views import compares_logs, configured, may_lead

_ASKED_FOR = {
    ElectionKind.LONGEST_LOG_AGGRESSIVE: Strategy.AGGRESSIVE,
    ElectionKind.LONGEST_LOG_BALANCED: Strategy.BALANCED,
}


@dataclass(slots=True)
class _Known:
    """A recovery as it was looked at last."""

    #: with its answers, also once it is over
    recovery: Recovery
    row: PartitionRegistration
    #: since when the time runs that answers have
    since_ms: int
    #: all of the last known ELR were there, or none of them is waited for
    is_asking: bool


class Recoveries:
    """Of one controller process."""

    def __init__(self, core: QuorumController) -> None:
        self._core = core
        self._known: dict[PartitionKey, _Known] = {}

    def differs(self, event: Any, effects: Sequence[Any], now_ms: int) -> list[str]:
        """What is wrong with the recoveries behind an event, and with what they have led to."""
        image, recoveries = self._core.latest, self._core.recovery._recoveries
        elected = [
            effect
            for effect in effects
            if type(effect) is RecoveryStated and type(effect.statement) is RecoveryElected
        ]
        if not self._core.is_active or not (image.leaderless or recoveries or elected):
            self._known = {}
            return []
        found = [] if type(event) is not RequestArrived else self._not_forced(event.message)
        for effect in elected:
            found += self._too_early(effect, now_ms)
        seen: set[PartitionKey] = set()
        for topic, index, row in image.leaderless_partitions():
            key = topic.topic_id, index
            seen.add(key)
            name, strategy = f"{topic.name}-{index}", self._strategy(topic.name, key, row)
            recovery = recoveries.get(key)
            if recovery is None:
                if strategy is not Strategy.NONE:
                    found.append(f"{name} is not recovered, and should be, {strategy.name}: {row}")
            elif strategy is not recovery.strategy:
                found.append(
                    f"{name} is recovered, {recovery.strategy.name} instead of {strategy.name}: {row}"
                )
            elif (row.leader_epoch, row.partition_epoch) != recovery.identity[:2]:
                found.append(f"{name} has changed, and its recovery goes on: {recovery}, {row}")
            elif self._is_decided(key, self._look_at(key, row, recovery, now_ms), now_ms):
                found.append(f"{name} should have a leader by now: {recovery}, {row}")
        for key in self._known.keys() - recoveries.keys():
            del self._known[key]
        found += [
            f"{recoveries[key].topic_name} has a leader, and is recovered" for key in recoveries.keys() - seen
        ]
        return found

    def _strategy(self, topic_name: str, key: PartitionKey, row: PartitionRegistration) -> Strategy:
        """R14, R69: nobody compares logs while somebody complete is awaited, unless an operator says so."""
        image = self._core.latest
        if not compares_logs(image, self._core.config.recovery_manager_enabled):
            return Strategy.NONE
        strategy, forced = _configured(image, topic_name), self._core.recovery._forced.get(key)
        if forced is not None and forced.configured is strategy:
            strategy = forced.strategy
        is_awaited = bool(row.isr or row.elr)
        return Strategy.NONE if strategy is Strategy.BALANCED and is_awaited else strategy

    def _look_at(
        self, key: PartitionKey, row: PartitionRegistration, recovery: Recovery, now_ms: int
    ) -> _Known:
        """Its time has begun with it, or once all were there without whom nothing is proved (R64)."""
        is_asking = all(may_lead(self._core.latest, one, key) for one in _proofs(row, recovery))
        known = self._known.get(key)
        if known is None or known.recovery is not recovery or (is_asking and not known.is_asking):
            known = self._known[key] = _Known(recovery, row, now_ms, is_asking)
        known.row, known.is_asking = row, is_asking
        return known

    def _is_decided(self, key: PartitionKey, known: _Known, now_ms: int) -> bool:
        """R64, R65: those have answered who must, or whoever has once time is over."""
        return bool(self._answered(key, known)) and not self._missing(key, known, now_ms)

    def _too_early(self, stated: RecoveryStated, now_ms: int) -> list[str]:
        """Who was elected by a comparison that somebody was still to be waited for."""
        key = stated.topic_id, stated.partition_index
        known = self._known.get(key)
        name = f"{stated.topic_name}-{stated.partition_index}"
        if known is None:
            return [f"{name} is decided, and was not recovered"]
        missing = self._missing(key, known, now_ms)
        return [f"{name} is decided without {sorted(missing)}: {known}"] if missing else []

    def _missing(self, key: PartitionKey, known: _Known, now_ms: int) -> set[int]:
        """Whose answers are waited for: once time is over of those only without whom nothing is proved."""
        image, row = self._core.latest, known.row
        needed: Collection[int] = _proofs(row, known.recovery)
        if now_ms - known.since_ms < self._core.config.recovery_timeout_ms:
            active = {one for one in row.replicas if may_lead(image, one, key)}
            knows_nothing = known.recovery.strategy is Strategy.BALANCED and not needed
            needed = row.replicas if knows_nothing else {*needed, *active}
        return {*needed} - self._answered(key, known)

    def _answered(self, key: PartitionKey, known: _Known) -> set[int]:
        """Whose answers count (R63)."""
        image = self._core.latest
        return {
            one
            for one, reply in known.recovery.replies.items()
            if one in known.row.replicas
            and may_lead(image, one, key)
            and reply.broker_epoch == image.brokers[one].broker_epoch
        }

    def _not_forced(self, request: Any) -> list[str]:
        """What operators have asked for is done, or under way."""
        is_election = isinstance(request, ElectLeadersRequest)
        strategy = _ASKED_FOR.get(ElectionKind(request.election_type)) if is_election else None
        image, found = self._core.latest, []
        if strategy is None or not compares_logs(image, self._core.config.recovery_manager_enabled):
            return []
        for asked in request.topic_partitions or ():
            topic = image.topic(asked.topic)
            for index in asked.partitions:
                row = None if topic is None else topic.partitions.get(index)
                if topic is None or row is None or row.leader is not None:
                    continue
                recovery = self._core.recovery._recoveries.get((topic.topic_id, index))
                is_awaited = strategy is Strategy.BALANCED and bool(row.isr or row.elr)
                if not is_awaited and (recovery is None or recovery.strategy is not strategy):
                    found.append(
                        f"{asked.topic}-{index} is not recovered as asked, {strategy.name}: {recovery}"
                    )
        return found


def _proofs(row: PartitionRegistration, recovery: Recovery) -> Collection[int]:
    """Those without whom nothing is proved, however long it takes (R64)."""
    return row.last_known_elr if recovery.strategy is Strategy.BALANCED else ()


def _configured(image: MetadataImage, topic_name: str) -> Strategy:
    """R69: Kafka's own key counts where no strategy says otherwise. In no story do files have either."""
    strategy = configured(image, topic_name, "unclean.recovery.strategy")
    if strategy is not None:
        return Strategy(strategy)
    is_unclean = configured(image, topic_name, "unclean.leader.election.enable") == "true"
    return Strategy.AGGRESSIVE if is_unclean else Strategy.BALANCED
