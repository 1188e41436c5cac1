"""Which partitions an active controller should recover, how, and when they are decided, worked out once more
(R60 to R65, R69).

Owns a second opinion: sentences about where the controller differs. Which answers there are it is asked, not
what follows from them.
"""

from collections.abc import Collection
from typing import Any

from controller.events import RequestArrived
from controller.quorum_controller import QuorumController
from controller.unclean_recovery import Recovery, Strategy
from metadata.image import CLUSTER_RESOURCE, MetadataImage, PartitionKey
from metadata.partition import PartitionRegistration
from metadata.records import ELR_FEATURE
from protocol.messages.elect_leaders import ElectionKind, ElectLeadersRequest
from sim.checkers.views import configured, may_lead

_ASKED_FOR = {
    ElectionKind.LONGEST_LOG_AGGRESSIVE: Strategy.AGGRESSIVE,
    ElectionKind.LONGEST_LOG_BALANCED: Strategy.BALANCED,
}


class Recoveries:
    """Of one controller process."""

    def __init__(self, core: QuorumController) -> None:
        self._core = core

    def differs(self, event: Any) -> list[str]:
        """What is wrong with the recoveries behind an event."""
        image, recoveries = self._core.latest, self._core.recovery._recoveries
        if not self._core.is_active or not (image.leaderless or recoveries):
            return []
        found = [] if type(event) is not RequestArrived else self._not_forced(event.message)
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
            elif self._is_decided(key, row, recovery):
                found.append(f"{name} should have a leader by now: {recovery}, {row}")
        found += [
            f"{recoveries[key].topic_name} has a leader, and is recovered" for key in recoveries.keys() - seen
        ]
        return found

    def _strategy(self, topic_name: str, key: PartitionKey, row: PartitionRegistration) -> Strategy:
        """R14, R69: nobody compares logs while somebody complete is awaited, unless an operator says so."""
        image = self._core.latest
        if not _compares_logs(image, self._core.config.recovery_manager_enabled):
            return Strategy.NONE
        strategy, forced = _configured(image, topic_name), self._core.recovery._forced.get(key)
        if forced is not None and forced.configured is strategy:
            strategy = forced.strategy
        is_awaited = bool(row.isr or row.elr)
        return Strategy.NONE if strategy is Strategy.BALANCED and is_awaited else strategy

    def _is_decided(self, key: PartitionKey, row: PartitionRegistration, recovery: Recovery) -> bool:
        """R64, R65. Who has answered in time is enough once time is over, which no story waits for."""
        image = self._core.latest
        active = {one for one in row.replicas if may_lead(image, one, key)}
        answered = {
            one
            for one, reply in recovery.replies.items()
            if one in active and reply.broker_epoch == image.brokers[one].broker_epoch
        }
        if recovery.strategy is Strategy.AGGRESSIVE:
            needed: Collection[int] = active
        elif row.last_known_elr:
            needed = {*row.last_known_elr, *active}
        else:
            needed = row.replicas
        return bool(answered) and answered.issuperset(needed)

    def _not_forced(self, request: Any) -> list[str]:
        """What operators have asked for is done, or under way."""
        is_election = isinstance(request, ElectLeadersRequest)
        strategy = _ASKED_FOR.get(ElectionKind(request.election_type)) if is_election else None
        image, found = self._core.latest, []
        if strategy is None or not _compares_logs(image, self._core.config.recovery_manager_enabled):
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


def _compares_logs(image: MetadataImage, is_on_in_files: bool) -> bool:
    """R69: the recovery manager is on, and so is ELR."""
    values = image.configs.get(CLUSTER_RESOURCE)
    text = None if values is None else values.get("unclean.recovery.manager.enabled")
    is_on = is_on_in_files if text is None else text == "true"
    return is_on and image.features.get(ELR_FEATURE, 0) > 0


def _configured(image: MetadataImage, topic_name: str) -> Strategy:
    """R69: Kafka's own key counts where no strategy says otherwise. In no story do files have either."""
    strategy = configured(image, topic_name, "unclean.recovery.strategy")
    if strategy is not None:
        return Strategy(strategy)
    is_unclean = configured(image, topic_name, "unclean.leader.election.enable") == "true"
    return Strategy.AGGRESSIVE if is_unclean else Strategy.BALANCED
