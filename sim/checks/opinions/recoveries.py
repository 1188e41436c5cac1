"""Which partitions an active controller should recover, how, and when they are decided, worked out once more
(R60 to R65, R69).

Owns a second opinion: sentences about where the controller differs. Which answers there are it is asked, not
what follows from them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.controller.core.events import (
    AskBroker,
    RecoveryElected,
    RecoveryStated,
    RequestReceived,
    Respond,
)
from holdfast.controller.core.partitions.log_questions import BACKOFF_DOUBLINGS_MAX
from holdfast.controller.core.partitions.unclean_recovery import Recovery, Strategy
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.elect_leaders import ElectionKind, ElectLeadersRequest
from holdfast.sim.checks.observe.views import compares_logs, configured, may_lead

#: what events may take to come, and processes to be paused
_SLACK_MS = 2_000
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
        self._known: dict[PartitionId, _Known] = {}
        #: {leaderless partition: (how operators want its logs compared, what was configured then)}
        self._wishes: dict[PartitionId, tuple[Strategy, Strategy]] = {}
        #: {(partition, broker): since when it was not asked for its log, though its answer is waited for}
        self._unasked: dict[tuple[PartitionId, int], int] = {}
        #: elections by comparison that were asked for while none are made, and which have no leader
        self._vain: dict[int, set[tuple[str, int]]] = {}
        self._called_ms = 0

    def differs(self, event: Any, effects: Sequence[Any], now_ms: int) -> list[str]:
        """What is wrong with the recoveries behind an event, and with what they have led to."""
        image, recoveries = self._core.latest, self._core.recovery._recoveries
        elected = [
            effect
            for effect in effects
            if type(effect) is RecoveryStated and type(effect.statement) is RecoveryElected
        ]
        if not self._core.is_active or not (image.leaderless or recoveries or elected):
            self._known, self._wishes, self._unasked = {}, {}, {}
            return self._promised(effects)
        # who switches the manager off takes back what was asked of it
        holds = compares_logs(image, self._core.config.recovery_manager_enabled)
        self._wishes = {key: wish for key, wish in self._wishes.items() if holds and key in image.leaderless}
        found = self._promised(effects)
        if type(event) is RequestReceived and isinstance(event.message, ElectLeadersRequest):
            found += self._asked_for(event.request_id, event.message, effects)
        for effect in elected:
            found += self._too_early(effect, now_ms)
        later = self._core.recovery._dirty  # a controller looks at so many a turn, and the next one is due
        next_ms = self._core.recovery.next_deadline_ms()
        if later and (next_ms is None or next_ms > now_ms):
            found.append(f"{len(later)} partitions wait for a turn that is not due before {next_ms}")
        seen: set[PartitionId] = set()
        for topic, index, row in image.leaderless_partitions():
            key = PartitionId(topic.topic_id, index)
            seen.add(key)
            name, strategy = f"{topic.name}-{index}", self._strategy(topic.name, key, row)
            recovery = recoveries.get(key)
            if key in later:
                continue
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
            elif self._known[key].is_asking:
                found += self._unheard(name, key, self._known[key], effects, now_ms)
        for key in self._known.keys() - recoveries.keys():
            del self._known[key]
        self._unasked = {one: since for one, since in self._unasked.items() if one[0] in self._known}
        self._called_ms = now_ms
        found += [
            f"{recoveries[key].topic_name} has a leader, and is recovered"
            for key in recoveries.keys() - seen - later.keys()
        ]
        return found

    def _strategy(self, topic_name: str, key: PartitionId, row: PartitionRegistration) -> Strategy:
        """R14, R69: no logs are compared while a complete replica is awaited, unless an operator says so."""
        image = self._core.latest
        if not compares_logs(image, self._core.config.recovery_manager_enabled):
            return Strategy.NONE
        strategy, wish = _configured(image, topic_name), self._wishes.get(key)
        if wish is not None and wish[1] is strategy:
            strategy = wish[0]
        elif wish is not None:
            del self._wishes[key]  # another strategy was configured since
        is_awaited = bool(row.isr or row.elr)
        return Strategy.NONE if strategy is Strategy.BALANCED and is_awaited else strategy

    def _look_at(
        self, key: PartitionId, row: PartitionRegistration, recovery: Recovery, now_ms: int
    ) -> _Known:
        """Its time has begun with it, or once all were there without whom nothing is proved (R64)."""
        is_asking = all(may_lead(self._core.latest, one, key) for one in _proofs(row, recovery))
        known = self._known.get(key)
        if known is None or known.recovery is not recovery or (is_asking and not known.is_asking):
            known = self._known[key] = _Known(recovery, row, now_ms, is_asking)
        known.row, known.is_asking = row, is_asking
        return known

    def _is_decided(self, key: PartitionId, known: _Known, now_ms: int) -> bool:
        """R64, R65: all have answered that must; once time is over, one is enough."""
        return bool(self._answered(key, known)) and not self._missing(key, known, now_ms)

    def _too_early(self, stated: RecoveryStated, now_ms: int) -> list[str]:
        """Replicas that were elected by a comparison while an answer was still to be waited for."""
        key = PartitionId(stated.topic_id, stated.partition_index)
        known = self._known.get(key)
        name = f"{stated.topic_name}-{stated.partition_index}"
        if known is None:
            return [f"{name} is decided, and was not recovered"]
        missing = self._missing(key, known, now_ms)
        return [f"{name} is decided without {sorted(missing)}: {known}"] if missing else []

    def _missing(self, key: PartitionId, known: _Known, now_ms: int) -> set[int]:
        """Whose answers are waited for: once time is over of those only without whom nothing is proved."""
        image, row = self._core.latest, known.row
        needed: Collection[int] = _proofs(row, known.recovery)
        if now_ms - known.since_ms < self._core.config.recovery_timeout_ms:
            active = {one for one in row.replicas if may_lead(image, one, key)}
            # fewer than min ISR may all have lost something (R66)
            knows_little = len(needed) < max(1, row.min_isr)
            is_balanced = known.recovery.strategy is Strategy.BALANCED
            needed = row.replicas if is_balanced and knows_little else {*needed, *active}
        return {*needed} - self._answered(key, known)

    def _answered(self, key: PartitionId, known: _Known) -> set[int]:
        """Whose answers count (R63)."""
        image = self._core.latest
        return {
            one
            for one, reply in known.recovery.replies.items()
            if one in known.row.replicas
            and may_lead(image, one, key)
            and reply.broker_epoch == image.brokers[one].broker_epoch
        }

    # --- what operators want ---------------------------------------------------------------------------

    def _asked_for(self, request_id: int, request: ElectLeadersRequest, effects: Sequence[Any]) -> list[str]:
        """What operators have asked for is done, or under way (R17); it holds until there is a leader."""
        strategy, image = _ASKED_FOR.get(ElectionKind(request.election_type)), self._core.latest
        if strategy is None:
            return []
        wanted = {
            (topic.name, index): (topic.topic_id, row)
            for topic, index, row in image.leaderless_partitions()
            if request.topic_partitions is None
            or any(one.topic == topic.name and index in one.partitions for one in request.topic_partitions)
        }
        if not compares_logs(image, self._core.config.recovery_manager_enabled):
            self._vain[request_id] = set(wanted)
            return self._promised(effects)
        found = []
        for (topic_name, index), (topic_id, row) in wanted.items():
            if strategy is Strategy.BALANCED and (row.isr or row.elr):
                continue  # refused: a complete replica is away
            self._wishes[PartitionId(topic_id, index)] = strategy, _configured(image, topic_name)
            recovery = self._core.recovery._recoveries.get(PartitionId(topic_id, index))
            if (topic_id, index) in self._core.recovery._dirty:
                continue  # its turn comes
            if recovery is None or recovery.strategy is not strategy:
                found.append(f"{topic_name}-{index} is not recovered as asked, {strategy.name}: {recovery}")
        return found

    def _promised(self, effects: Sequence[Any]) -> list[str]:
        """No operator is promised a comparison where none are made (R17, R69)."""
        found = []
        for effect in effects if self._vain else ():
            if type(effect) is not Respond or effect.request_id not in self._vain:
                continue
            vain = self._vain.pop(effect.request_id)
            found += [
                f"{result.topic}-{row.partition_id} is to be recovered, as operators are told, and is not"
                for result in effect.message.replica_election_results
                for row in result.partition_results
                if row.error_code == ErrorCode.NONE and (result.topic, row.partition_id) in vain
            ]
        return found

    # --- who is asked ----------------------------------------------------------------------------------

    def _unheard(
        self, name: str, key: PartitionId, known: _Known, effects: Sequence[Any], now_ms: int
    ) -> list[str]:
        """R61, R62: whose answer is waited for is asked, and again until one counts."""
        config, image = self._core.config, self._core.latest
        longest_pause_ms = config.recovery_retry_backoff_ms << BACKOFF_DOUBLINGS_MAX
        # another question may be under way to it
        patience_ms = 2 * (config.recovery_request_timeout_ms + longest_pause_ms) + _SLACK_MS
        asked = {effect.broker_id for effect in effects if type(effect) is AskBroker and _names(effect, key)}
        waited_for = {one for one in self._missing(key, known, now_ms) if may_lead(image, one, key)}
        if now_ms - self._called_ms > _SLACK_MS // 2:
            asked |= waited_for  # it may have stood still
        found = []
        for broker_id in known.row.replicas:
            if broker_id not in waited_for:
                self._unasked.pop((key, broker_id), None)
            elif broker_id in asked:
                self._unasked[key, broker_id] = now_ms
            elif now_ms - self._unasked.setdefault((key, broker_id), now_ms) > patience_ms:
                silent_ms = now_ms - self._unasked[key, broker_id]
                found.append(f"{name} waits for {broker_id}, which is not asked for {silent_ms} ms: {known}")
        return found


def _names(effect: AskBroker, key: PartitionId) -> bool:
    """The question is about that partition, too."""
    return any(one.topic_id == key[0] and key[1] in one.partitions for one in effect.request.topic_partitions)


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
