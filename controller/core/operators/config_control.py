"""Dynamic configuration and feature levels: what may be set, and how partitions follow.

Owns the checks of IncrementalAlterConfigs and UpdateFeatures. A change of min.insync.replicas and the
partition records that follow from it are one batch, so that all nodes switch at the same offset (R109).
"""

from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.decisions import Cause, CauseKind
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.operators.operations import DONE, AlterConfig, OperationResult, UpdateFeature
from holdfast.controller.core.partitions.election import ElectionMode
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.metadata.broker import SUPPORTED_FEATURES, levels_of
from holdfast.metadata.configs import BROKER_DYNAMIC_KEY_BY_NAME, unknown_key_problem, value_problem
from holdfast.metadata.describe import supported_levels
from holdfast.metadata.describe_configs import keys_of, resource_problem
from holdfast.metadata.image import (
    CLUSTER_RESOURCE,
    DEFAULT_CLIENT,
    RESOURCE_BROKER,
    RESOURCE_CLIENT,
    RESOURCE_TOPIC,
    ConfigResource,
    MetadataImage,
)
from holdfast.metadata.offsets_topic import offsets_topic_problem
from holdfast.metadata.records import ELR_FEATURE, METADATA_VERSION, ConfigRecord, FeatureLevelRecord
from holdfast.protocol.envelope import CLIENT_ID_MAX
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import FeatureRange

MIN_ISR = "min.insync.replicas"
#: Brokers that a refusal names.
NAMED_MAX = 10
_KINDS = {RESOURCE_BROKER: "broker", RESOURCE_CLIENT: "client", RESOURCE_TOPIC: "topic"}


class ConfigControl:
    """Decisions over drafts; keeps no state."""

    def __init__(self, config: ControllerConfig, replication: ReplicationControl) -> None:
        self._config = config
        self._replication = replication

    def resource_problem(self, image: MetadataImage, resource: ConfigResource) -> OperationResult | None:
        """Why the resource cannot be configured, or None. Errors: INVALID_REQUEST,
        UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED."""
        if resource[0] == RESOURCE_CLIENT:  # any id: clients are not known before they come
            if len(resource[1]) <= CLIENT_ID_MAX:
                return None
            text = f"a client id has at most {CLIENT_ID_MAX} characters"
            return OperationResult(ErrorCode.INVALID_REQUEST, text)
        problem = resource_problem(image, resource)
        return None if problem is None else OperationResult(*problem)

    def problem(self, image: MetadataImage, request: AlterConfig) -> OperationResult | None:
        """Why `alter` would refuse, or None.

        Errors: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED, INVALID_CONFIG.
        """
        kind, owner = request.resource
        if kind == RESOURCE_BROKER and owner and request.name == MIN_ISR and image.elr_enabled:
            # F14: the ELR is valid only with one value for the whole cluster
            refused = f"{MIN_ISR} of one broker cannot be set while {ELR_FEATURE} is on; set the cluster's"
            return OperationResult(ErrorCode.INVALID_CONFIG, refused)
        problem = self.resource_problem(image, request.resource)
        if problem is not None:
            return problem
        keys = keys_of(request.resource)
        key = keys.get(request.name)
        text: str | None = None
        if key is None:
            text = unknown_key_problem(request.name, keys)
        elif kind == RESOURCE_BROKER and owner and request.name not in BROKER_DYNAMIC_KEY_BY_NAME:
            text = f"{request.name} is a value of the whole cluster; a single broker has none of its own"
        elif request.value is not None:
            text = value_problem(key, request.value)
        elif request.resource == CLUSTER_RESOURCE and request.name == MIN_ISR and image.elr_enabled:
            # brokers' files may differ, and the ELR needs one value (F14)
            text = f"{MIN_ISR} of the cluster cannot be removed while {ELR_FEATURE} is on; set it"
        if text is None and kind == RESOURCE_TOPIC:
            text = offsets_topic_problem(owner, request.name, request.value)
        return None if text is None else OperationResult(ErrorCode.INVALID_CONFIG, text)

    def alter(self, draft: Draft, request: AlterConfig) -> OperationResult:
        """Set or remove one key. Setting the present value succeeds and changes nothing.

        Errors: those of `problem`.
        """
        image = draft.image
        kind, owner = request.resource
        is_cluster = request.resource == CLUSTER_RESOURCE
        problem = self.problem(image, request)
        if problem is not None:
            return problem
        resource = image.configs.get(request.resource)
        if (None if resource is None else resource.get(request.name)) == request.value:
            return DONE
        draft.write(ConfigRecord(kind, owner, request.name, request.value))
        change = f"{request.name}={'' if request.value is None else request.value}"
        draft.note(f"{_name(request.resource)} configured: {change}")
        if self._replication.compares_logs(image) and not self._replication.compares_logs(draft.image):
            # a last known leader that is back needs no comparison any more (F40); the periodic unclean pass
            # handles the others (F38)
            cause = Cause(CauseKind.MANAGER_SWITCHED_OFF)
            self._replication.elect_leaderless(draft, cause, mode=ElectionMode.ONLINE)
        if request.name == MIN_ISR:
            cause = Cause(CauseKind.MIN_ISR_CONFIGURED)
            self._replication.refresh(draft, cause, None if is_cluster else owner)
        return DONE

    def feature_problem(self, image: MetadataImage, name: str, level: int) -> OperationResult | None:
        """Why `update_feature` would refuse, or None. Errors: INVALID_UPDATE_VERSION (R108)."""
        known = next((feature for feature in SUPPORTED_FEATURES if feature.name == name), None)
        text = None
        if known is None:
            names = ", ".join(feature.name for feature in SUPPORTED_FEATURES)
            text = f"there is no feature {name}; this version knows {names}"
        else:
            low, high = supported_levels(image, known)
            if not low <= level <= high:
                text = f"{name} has the levels {low} to {high} on all brokers, not {level}"
                text += _who_lacks(image, known, level)
            elif name == METADATA_VERSION:
                text = None if level >= image.metadata_version else _use_of_renewed(image)
            elif not level and (partition := _partition_without_isr(image)) is not None:
                # without ELR no replica could ever lead it again (B8)
                text = f"{partition} has an empty ISR; {name} can be switched off once it has a leader"
        return None if text is None else OperationResult(ErrorCode.INVALID_UPDATE_VERSION, text)

    def update_feature(self, draft: Draft, request: UpdateFeature) -> OperationResult:
        """Finalize a level (R108). Errors: INVALID_UPDATE_VERSION."""
        image = draft.image
        problem = self.feature_problem(image, request.name, request.level)
        if problem is not None:
            return problem
        # an implied metadata.version is no record yet: one that an operator asks for is written
        level = image.features.get(request.name, None if request.name == METADATA_VERSION else 0)
        if level == request.level:
            return DONE
        draft.write(FeatureLevelRecord(request.name, request.level))
        if request.name == METADATA_VERSION:
            draft.note(f"{METADATA_VERSION} is {request.level}")
        else:
            self._switch_elr(draft, image, request)
        return DONE

    def _switch_elr(self, draft: Draft, image: MetadataImage, request: UpdateFeature) -> None:
        """What follows from the record; `image` is from before it."""
        draft.note(f"{ELR_FEATURE} is {'on' if request.level else 'off'}")
        cluster = image.configs.get(CLUSTER_RESOURCE)
        if request.level and (cluster is None or MIN_ISR not in cluster):
            draft.write(ConfigRecord(*CLUSTER_RESOURCE, MIN_ISR, str(self._config.min_insync_replicas)))
            # the partitions have the value of this controller's file, or of an earlier active controller's
            self._replication.refresh(draft, Cause(CauseKind.MIN_ISR_CONFIGURED))
        if request.level:
            # without ELR the last ISR member stays (F7), also one that is unregistered now
            self._replication.forget_unregistered(draft)
        if not request.level:
            self._replication.refresh(draft, Cause(CauseKind.ELR_SWITCHED_OFF))


def _name(resource: ConfigResource) -> str:
    if resource == DEFAULT_CLIENT:
        return "default of all clients"
    if resource == CLUSTER_RESOURCE:
        return "cluster"
    return f"{_KINDS[resource[0]]} {resource[1]}"


def _who_lacks(image: MetadataImage, known: FeatureRange, level: int) -> str:
    """The brokers that do not support a level that this software does; they are named, up to ten."""
    if not known.min_level <= level <= known.max_level:
        return ""
    lacking = [
        str(broker.broker_id)
        for broker in image.sorted_brokers()
        if not (found := levels_of(broker.features, known.name))[0] <= level <= found[1]
    ]
    rest = f" and {len(lacking) - NAMED_MAX} more" if len(lacking) > NAMED_MAX else ""
    plural = "s" if len(lacking) > 1 else ""
    return f": upgrade broker{plural} {', '.join(lacking[:NAMED_MAX])}{rest} first"


def _use_of_renewed(image: MetadataImage) -> str | None:
    """Why metadata.version cannot be 0 now: a build of that level would read what was written otherwise."""
    for broker in image.sorted_brokers():
        for key in sorted(broker.renewed_replicas):
            topic = image.topics.get(key.topic_id)
            if topic is not None:
                return (
                    f"broker {broker.broker_id} fetches {topic.name}-{key.partition_index} anew, which "
                    f"builds of {METADATA_VERSION} 0 take for offline; restart or unregister that broker "
                    "first"
                )
    return None


def _partition_without_isr(image: MetadataImage) -> str | None:
    for topic in image.sorted_topics():
        for index, partition in topic.sorted_partitions():
            if not partition.isr:
                return f"{topic.name}-{index}"
    return None
