"""Dynamic configuration and feature levels: what may be set, and what becomes of the partitions.

Owns the checks of IncrementalAlterConfigs and UpdateFeatures. A value of min.insync.replicas and the
partition records that follow from it stand in one batch: all nodes switch at the same offset (R109).
"""

from difflib import get_close_matches

from controller.config import ControllerConfig
from controller.decisions import Cause, CauseKind
from controller.draft import Draft
from controller.election import ElectionMode
from controller.operations import DONE, AlterConfig, Outcome, UpdateFeature
from controller.replication_control import ReplicationControl
from metadata.configs import CLUSTER_KEYS, TOPIC_KEY_BY_NAME, ConfigError, ConfigKey, parse_value
from metadata.image import CLUSTER_RESOURCE, RESOURCE_TOPIC, MetadataImage
from metadata.records import ELR_FEATURE, ConfigRecord, FeatureLevelRecord
from protocol.errors import ErrorCode

MIN_ISR = "min.insync.replicas"
_CLUSTER_KEY_BY_NAME = {key.name: key for key in CLUSTER_KEYS}


class ConfigControl:
    """Decisions over drafts; keeps no state."""

    def __init__(self, config: ControllerConfig, replication: ReplicationControl) -> None:
        self._config = config
        self._replication = replication

    def alter(self, draft: Draft, request: AlterConfig) -> Outcome:
        """Set or take away one key.

        Errors: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG.
        """
        image = draft.image
        kind, owner = request.resource
        is_cluster = request.resource == CLUSTER_RESOURCE
        if not is_cluster and kind != RESOURCE_TOPIC:
            text = "only topics and the cluster have dynamic values; the others stand in a node's file"
            return Outcome(ErrorCode.INVALID_REQUEST, text)
        if not is_cluster and owner not in image.topic_ids:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {owner}")
        keys = _CLUSTER_KEY_BY_NAME if is_cluster else TOPIC_KEY_BY_NAME
        problem = _problem(keys, request.name, request.value)
        if problem is None and is_cluster and (request.name, request.value) == (MIN_ISR, None):
            if image.elr_enabled:
                # brokers' own files may differ, and the promise of the ELR needs one value (F14)
                problem = f"{MIN_ISR} of the cluster cannot be removed while {ELR_FEATURE} is on; set it"
        if problem is not None:
            return Outcome(ErrorCode.INVALID_CONFIG, problem)
        resource = image.configs.get(request.resource)
        if (None if resource is None else resource.get(request.name)) == request.value:
            return DONE
        draft.write(ConfigRecord(kind, owner, request.name, request.value))
        change = f"{request.name}={'' if request.value is None else request.value}"
        draft.note(f"{'cluster' if is_cluster else f'topic {owner}'} configured: {change}")
        if self._replication.compares_logs(image) and not self._replication.compares_logs(draft.image):
            # what no comparison decides any more: a last known leader that is back (F40); the unclean pass
            # sees to the rest at its time (F38)
            cause = Cause(CauseKind.MANAGER_SWITCHED_OFF)
            self._replication.elect_leaderless(draft, cause, mode=ElectionMode.ONLINE)
        if request.name == MIN_ISR:
            cause = Cause(CauseKind.MIN_ISR_CONFIGURED)
            self._replication.refresh(draft, cause, None if is_cluster else owner)
        return DONE

    def update_feature(self, draft: Draft, request: UpdateFeature) -> Outcome:
        """Switch ELR on or off (R108). Errors: INVALID_UPDATE_VERSION."""
        image = draft.image
        problem = None
        if request.name != ELR_FEATURE:
            problem = f"there is no feature {request.name}; this version knows {ELR_FEATURE}"
        elif request.level not in (0, 1):
            problem = f"{ELR_FEATURE} has the levels 0 and 1, not {request.level}"
        elif not request.level and (name := _partition_without_isr(image)) is not None:
            # without ELR nobody could ever lead it again (B8)
            problem = f"{name} has nobody in its ISR; {ELR_FEATURE} can be switched off once it has a leader"
        if problem is not None:
            return Outcome(ErrorCode.INVALID_UPDATE_VERSION, problem)
        if int(image.elr_enabled) == request.level:
            return DONE
        draft.write(FeatureLevelRecord(ELR_FEATURE, request.level))
        draft.note(f"{ELR_FEATURE} is {'on' if request.level else 'off'}")
        cluster = image.configs.get(CLUSTER_RESOURCE)
        if request.level and (cluster is None or MIN_ISR not in cluster):
            draft.write(ConfigRecord(*CLUSTER_RESOURCE, MIN_ISR, str(self._config.min_insync_replicas)))
        if not request.level:
            self._replication.refresh(draft, Cause(CauseKind.ELR_SWITCHED_OFF))
        return DONE


def _problem(keys: dict[str, ConfigKey], name: str, value: str | None) -> str | None:
    key = keys.get(name)
    if key is None:
        near = get_close_matches(name, sorted(keys), n=1, cutoff=0.8)
        return f"there is no dynamic key {name} here" + (f"; did you mean {near[0]}?" if near else "")
    try:
        if value is not None:
            parse_value(key, value)
    except ConfigError as error:
        return str(error)
    return None


def _partition_without_isr(image: MetadataImage) -> str | None:
    for topic in image.sorted_topics():
        for index, partition in topic.sorted_partitions():
            if not partition.isr:
                return f"{topic.name}-{index}"
    return None
