"""Requests of operators: from the wire to operations of the core, and from outcomes to response rows.

Owns what a request guarantees beyond its single operations: one atomic batch, all or nothing where the API
says so, limits (R18), duplicate names, and which rows there are in which order (R17). The operations decide.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.controller.core.brokers.departures import Departures
from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.operators import topics
from holdfast.controller.core.operators.config_control import ConfigControl
from holdfast.controller.core.operators.operations import (
    AlterConfig,
    ElectionType,
    ElectLeader,
    OperationResult,
    Reassign,
    UnregisterBroker,
    UpdateFeature,
)
from holdfast.controller.core.partitions.leader_elections import elect_leader, is_under_way
from holdfast.controller.core.partitions.reassignment import reassign
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.controller.core.partitions.unclean_recovery import UncleanRecovery
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import METADATA_VERSION
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResult,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from holdfast.protocol.messages.create_partitions import CreatePartitionsRequest
from holdfast.protocol.messages.elect_leaders import (
    ElectionKind,
    ElectionPartitionResult,
    ElectionTopicPartitions,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from holdfast.protocol.messages.features import (
    FeatureUpdate,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from holdfast.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResult,
    ReassignableTopicResult,
)
from holdfast.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

#: Elections per request (R18).
ELECTIONS_MAX = 1_000

_ELECTION_TYPES = {
    ElectionKind.PREFERRED: ElectionType.PREFERRED,
    ElectionKind.UNCLEAN: ElectionType.UNCLEAN,
    ElectionKind.LONGEST_LOG_AGGRESSIVE: ElectionType.LONGEST_LOG_AGGRESSIVE,
    ElectionKind.LONGEST_LOG_BALANCED: ElectionType.LONGEST_LOG_BALANCED,
    ElectionKind.DESIGNATION: ElectionType.DESIGNATED,
}
#: Outcomes that confirm a state, or that tools take for success after a lost answer; all others refuse.
_CONFIRMATIONS = (
    ErrorCode.NONE,
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
)
_NAMED_TWICE = OperationResult(ErrorCode.INVALID_REQUEST, "it is named twice in this request")
_BEYOND_LIMIT = OperationResult(
    ErrorCode.REQUEST_LIMIT_REACHED,
    f"one request makes at most {ELECTIONS_MAX} elections; ask again for this one",
)


class OperatorRequests:
    """The active controller's answers to operators, with their records in the draft; keeps no state."""

    def __init__(
        self,
        config: ControllerConfig,
        replication: ReplicationControl,
        departures: Departures,
        recovery: UncleanRecovery,
    ) -> None:
        self._config = config
        self._replication = replication
        self._departures = departures
        self._recovery = recovery
        self._configs = ConfigControl(config, replication)

    def answer(self, draft: Draft, message: Any) -> Any:
        """The answer to a request on the wire, or to a single operation."""
        match message:
            case CreatePartitionsRequest():
                return topics.create_partitions(draft, message, self._config)
            case IncrementalAlterConfigsRequest():
                return self._alter_configs(draft, message)
            case AlterPartitionReassignmentsRequest():
                return self._reassign(draft, message)
            case ElectLeadersRequest():
                return self._elect_leaders(draft, message)
            case UnregisterBrokerRequest():
                outcome = self._carry_out(draft, UnregisterBroker(message.broker_id))
                return UnregisterBrokerResponse(outcome.error_code, outcome.error_message)
        return self._carry_out(draft, message)

    def _carry_out(self, draft: Draft, operation: Any) -> OperationResult:
        outcome = self._decide(draft, operation)
        is_gone = (
            isinstance(operation, UnregisterBroker)
            and outcome.error_code is ErrorCode.BROKER_ID_NOT_REGISTERED
        )
        draft.confirms |= is_gone or outcome.error_code in _CONFIRMATIONS
        return outcome

    def _decide(self, draft: Draft, operation: Any) -> OperationResult:
        match operation:
            case AlterConfig():
                with draft.whole():  # R109
                    return self._configs.alter(draft, operation)
            case UpdateFeature():
                with draft.whole():  # B8
                    return self._configs.update_feature(draft, operation)
            case UnregisterBroker():
                return self._departures.unregister(draft, operation.broker_id)
            case ElectLeader():
                return elect_leader(draft, operation, self._replication, self._recovery)
            case Reassign():
                return reassign(draft, operation, self._replication)
        raise AssertionError(f"no handler for {type(operation).__name__}")

    # --- configuration -----------------------------------------------------------------------------------

    def _alter_configs(
        self, draft: Draft, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        """For each resource all keys are changed or none."""
        times = Counter((row.resource_type, row.resource_name) for row in request.resources)
        rows: list[AlterConfigsResult] = []
        for asked in request.resources:
            resource = (asked.resource_type, asked.resource_name)
            problem: OperationResult | None = _NAMED_TWICE
            if times[resource] == 1:
                problem = self._config_problem(draft.image, asked)
            if problem is not None:
                rows.append(AlterConfigsResult(problem.error_code, problem.error_message, *resource))
                continue
            with draft.whole():
                for config in () if request.validate_only else asked.configs:
                    outcome = self._carry_out(draft, _change(asked, config))
                    assert outcome.error_code is ErrorCode.NONE, f"{config} was checked before: {outcome}"
            rows.append(AlterConfigsResult(ErrorCode.NONE, None, *resource))
        return IncrementalAlterConfigsResponse(ErrorCode.NONE, None, tuple(rows))

    def _config_problem(self, image: MetadataImage, asked: AlterConfigsResource) -> OperationResult | None:
        """The first problem with the changes of one resource, or None."""
        times = Counter(config.name for config in asked.configs)
        for config in asked.configs:
            text = None
            if times[config.name] > 1:
                text = f"{config.name} is named twice; send one change per key"
            elif config.config_operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
                text = f"{config.name}: no part of a value is set; set the whole value or delete it"
            elif config.config_operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
                text = f"{config.config_operation} is not a config operation; expected 0 (set) or 1 (delete)"
            elif config.config_operation == ConfigOperation.SET and config.value is None:
                text = f"{config.name}: setting it needs a value; delete it to remove the value"
            if text is not None:
                return OperationResult(ErrorCode.INVALID_REQUEST, text)
            problem = self._configs.problem(image, _change(asked, config))
            if problem is not None:
                return problem
        return self._configs.resource_problem(image, (asked.resource_type, asked.resource_name))

    def update_features(
        self, draft: Draft, request: UpdateFeaturesRequest, earlier_voters: Sequence[int] = ()
    ) -> UpdateFeaturesResponse:
        """Update all features or none. `earlier_voters`: the controllers that may not know the records of a
        higher metadata.version."""
        times = Counter(update.feature for update in request.feature_updates)
        problems = [
            _NAMED_TWICE
            if times[update.feature] > 1
            else self._feature_problem(draft.image, update, earlier_voters)
            for update in request.feature_updates
        ]
        first = next((problem for problem in problems if problem is not None), None)
        if first is None and not request.validate_only:
            with draft.whole():
                for update in request.feature_updates:
                    self._carry_out(draft, UpdateFeature(update.feature, update.max_version_level))
        untouched = None
        if first is not None:
            untouched = OperationResult(
                ErrorCode.FEATURE_UPDATE_FAILED, "another feature was refused; none was changed"
            )
        rows = tuple(
            UpdatableFeatureResult(update.feature, *_columns(problem or untouched))
            for update, problem in zip(request.feature_updates, problems, strict=True)
        )
        return UpdateFeaturesResponse(*_columns(first), rows)

    def _feature_problem(
        self, image: MetadataImage, update: FeatureUpdate, earlier_voters: Sequence[int]
    ) -> OperationResult | None:
        if update.upgrade_type not in tuple(UpgradeType):
            text = f"{update.upgrade_type} is not an upgrade type; expected 1, 2 or 3"
            return OperationResult(ErrorCode.INVALID_REQUEST, text)
        problem = self._configs.feature_problem(image, update.feature, update.max_version_level)
        level = image.level_of(update.feature)
        if (
            problem is None
            and update.max_version_level < level
            and update.upgrade_type == UpgradeType.UPGRADE
        ):
            text = f"{update.feature} is at level {level}; a lower one must be requested as a downgrade"
            return OperationResult(ErrorCode.INVALID_UPDATE_VERSION, text)
        if (
            problem is None
            and update.feature == METADATA_VERSION
            and update.max_version_level > level
            and earlier_voters
        ):
            # controllers register no levels; the quorum knows whether they fetch as an earlier build does
            text = f"the controllers {[*earlier_voters]} are of an earlier build, or have not fetched yet: "
            text += "start them with this build, and ask again"
            return OperationResult(ErrorCode.INVALID_UPDATE_VERSION, text)
        return problem

    # --- reassignments -----------------------------------------------------------------------------------

    def _reassign(
        self, draft: Draft, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        times = Counter(
            (topic.name, row.partition_index) for topic in request.topics for row in topic.partitions
        )
        answered: list[ReassignableTopicResult] = []
        for topic in request.topics:
            rows: list[ReassignablePartitionResult] = []
            for row in topic.partitions:
                wanted = Reassign(topic.name, row.partition_index, row.replicas)
                outcome: OperationResult | None = None
                if times[topic.name, row.partition_index] > 1:
                    outcome = _NAMED_TWICE
                elif not request.allow_replication_factor_change:
                    outcome = _replication_factor_problem(draft.image, wanted)
                outcome = outcome or self._carry_out(draft, wanted)
                rows.append(ReassignablePartitionResult(row.partition_index, *_columns(outcome)))
            answered.append(ReassignableTopicResult(topic.name, tuple(rows)))
        return AlterPartitionReassignmentsResponse(ErrorCode.NONE, None, tuple(answered))

    # --- elections ---------------------------------------------------------------------------------------

    def _elect_leaders(self, draft: Draft, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Elect as requested. The place to check rights: ClusterAction, or Alter on the cluster (R77)."""
        if request.election_type not in tuple(ElectionKind):
            kinds = ", ".join(f"{kind.value} {kind.name}" for kind in ElectionKind)
            text = f"{request.election_type} is not an election type; expected one of {kinds}"
            return ElectLeadersResponse(ErrorCode.INVALID_REQUEST, text, ())
        kind = ElectionKind(request.election_type)
        if request.topic_partitions is not None:
            return self._elect_named(draft, kind, request.topic_partitions)
        if kind is ElectionKind.DESIGNATION:
            text = "name the partitions and a desired leader for each"
            return ElectLeadersResponse(ErrorCode.INVALID_REQUEST, text, ())
        return self._elect_all(draft, kind)

    def _elect_named(
        self, draft: Draft, kind: ElectionKind, asked: tuple[ElectionTopicPartitions, ...]
    ) -> ElectLeadersResponse:
        """A row for each partition named; the first ELECTIONS_MAX are served (R18)."""
        times = Counter((topic.topic, index) for topic in asked for index in topic.partitions)
        served = 0
        answered: list[ReplicaElectionResult] = []
        for topic in asked:
            misfit = _desired_leaders_problem(kind, topic)
            desired = topic.desired_leaders if misfit is None else None
            rows: list[ElectionPartitionResult] = []
            for position, index in enumerate(topic.partitions):
                served += 1
                if served > ELECTIONS_MAX:
                    outcome = _BEYOND_LIMIT
                elif times[topic.topic, index] > 1:
                    outcome = _NAMED_TWICE
                elif misfit is not None:
                    outcome = misfit
                else:
                    leader = None if desired is None else desired[position]
                    outcome = self._carry_out(
                        draft, ElectLeader(_ELECTION_TYPES[kind], topic.topic, index, leader)
                    )
                rows.append(ElectionPartitionResult(index, *_columns(outcome)))
            answered.append(ReplicaElectionResult(topic.topic, tuple(rows)))
        return ElectLeadersResponse(ErrorCode.NONE, None, tuple(answered))

    def _elect_all(self, draft: Draft, kind: ElectionKind) -> ElectLeadersResponse:
        """A row for each partition that needs an election (R17). The limit counts only new elections and new
        comparisons of logs, so that asking again continues."""
        elected = 0
        answered: list[ReplicaElectionResult] = []
        for topic in draft.image.sorted_topics():
            rows: list[ElectionPartitionResult] = []
            for index, partition in topic.sorted_partitions():
                if elected < ELECTIONS_MAX:
                    operation = ElectLeader(_ELECTION_TYPES[kind], topic.name, index)
                    is_new = not is_under_way(draft.image, operation, self._recovery)
                    outcome = self._carry_out(draft, operation)
                    elected += outcome.error_code is ErrorCode.NONE and is_new
                elif _may_need_election(kind, partition):
                    outcome = _BEYOND_LIMIT
                else:
                    continue
                if outcome.error_code is not ErrorCode.ELECTION_NOT_NEEDED:
                    rows.append(ElectionPartitionResult(index, *_columns(outcome)))
            if rows:
                answered.append(ReplicaElectionResult(topic.name, tuple(rows)))
        return ElectLeadersResponse(ErrorCode.NONE, None, tuple(answered))


def _columns(outcome: OperationResult | None) -> tuple[ErrorCode, str | None]:
    return (ErrorCode.NONE, None) if outcome is None else (outcome.error_code, outcome.error_message)


def _change(asked: AlterConfigsResource, config: AlterableConfig) -> AlterConfig:
    value = config.value if config.config_operation == ConfigOperation.SET else None
    return AlterConfig((asked.resource_type, asked.resource_name), config.name, value)


def _replication_factor_problem(image: MetadataImage, wanted: Reassign) -> OperationResult | None:
    """Check the number of replicas against the list before all reassignments (R104)."""
    topic = image.topic(wanted.topic_name)
    partition = None if topic is None else topic.partitions.get(wanted.partition_index)
    if partition is None or wanted.replicas is None:
        return None
    before = partition.original_replicas or partition.replicas
    if len(wanted.replicas) == len(before):
        return None
    text = (
        f"{len(wanted.replicas)} replicas instead of {len(before)}: name as many, or allow the replication "
        f"factor to change"
    )
    return OperationResult(ErrorCode.INVALID_REPLICATION_FACTOR, text)


def _desired_leaders_problem(kind: ElectionKind, topic: ElectionTopicPartitions) -> OperationResult | None:
    """Check that DESIGNATION has one desired leader per partition, and other types none (R18)."""
    desired = topic.desired_leaders
    text = None
    if kind is not ElectionKind.DESIGNATION:
        if desired is not None:
            text = f"desired leaders are for DESIGNATION, not for {kind.name}"
    elif desired is None:
        text = "DESIGNATION needs a desired leader for each partition"
    elif len(desired) != len(topic.partitions):
        text = f"{len(desired)} desired leaders for {len(topic.partitions)} partitions; name one for each"
    return None if text is None else OperationResult(ErrorCode.INVALID_REQUEST, text)


def _may_need_election(kind: ElectionKind, partition: PartitionRegistration) -> bool:
    if kind is ElectionKind.PREFERRED:
        return partition.leader != partition.replicas[0]
    return partition.leader is None
