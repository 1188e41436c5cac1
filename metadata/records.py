"""Metadata records: the schema of every entry of the metadata log, and its encoding.

A record's value is msgpack `[record_key, version, fields]`, with the fields in schema order as in RPCs.
Numbers are Kafka's. State changes only by replaying records; `metadata.delta` knows what they do.
"""

from bisect import bisect_right
from typing import Any, TypeAlias

import msgpack

from holdfast.protocol.messages.broker_registration import FeatureRange, ListenerEndpoint
from holdfast.protocol.schema.fields import (
    Attachment,
    SchemaError,
    WrittenLater,
    array,
    array_of,
    boolean,
    decode_message,
    encode_message,
    field,
    has_later_fields,
    int8,
    int16,
    int32,
    int64,
    message,
    nullable,
    string,
    struct,
    uuid,
)

#: `leader` and `last_known_leader` on the wire when there is none.
NO_LEADER = -1
RECOVERED = 0
RECOVERING = 1

#: The feature that switches ELR; level 1 is on.
ELR_FEATURE = "eligible.leader.replicas.version"
#: The feature whose level names the records that controllers write (K31).
METADATA_VERSION = "metadata.version"


@message
class RegisterBrokerRecord:
    """A new incarnation, fenced. The record's offset is the broker epoch (K28)."""

    broker_id: int = field(int32, "Broker.")
    incarnation_id: bytes = field(uuid, "Random id of the process.")
    broker_epoch: int = field(int64, "Equals the offset of this record; checked at replay.")
    listeners: tuple[ListenerEndpoint, ...] = field(array_of(ListenerEndpoint), "Addresses.")
    rack: str | None = field(nullable(string), "Failure domain.")
    features: tuple[FeatureRange, ...] = field(array_of(FeatureRange), "Supported features.")
    log_dirs: tuple[bytes, ...] = field(array(uuid), "Directory ids.")
    clean_shutdown: bool = field(boolean, "The previous incarnation stopped cleanly (R32).")


@message
class UnregisterBrokerRecord:
    """The broker is removed permanently."""

    broker_id: int = field(int32, "Broker.")
    broker_epoch: int = field(int64, "Registration that ends.")


@message
class TopicRecord:
    """A topic; its partitions follow."""

    name: str = field(string, "Name.")
    topic_id: bytes = field(uuid, "Id.")


@message
class PartitionRecord:
    """A new partition, complete."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Index.")
    replicas: tuple[int, ...] = field(array(int32), "Assigned ids, preferred first.")
    isr: tuple[int, ...] = field(array(int32), "In-sync ids, ascending.")
    removing_replicas: tuple[int, ...] = field(array(int32), "Leaving by reassignment.")
    adding_replicas: tuple[int, ...] = field(array(int32), "Joining by reassignment.")
    elr: tuple[int, ...] = field(array(int32), "Eligible leader replicas, ascending.")
    last_known_elr: tuple[int, ...] = field(array(int32), "Members lost to unclean shutdowns, ascending.")
    last_known_leader: int = field(int32, "Last leader before none, -1 for none.")
    leader: int = field(int32, "-1 for none.")
    leader_recovery_state: int = field(int16, "0 RECOVERED, 1 RECOVERING.")
    leader_epoch: int = field(int32, "Starts at 0.")
    partition_epoch: int = field(int32, "Starts at 0.")
    min_isr: int = field(int32, "Effective min ISR (R109).")
    original_replicas: tuple[int, ...] | None = field(
        nullable(array(int32)), "List before a reassignment, in its order; null without one (R105)."
    )


@message
class ReplicaLogEnd:
    """End of a replica's log when logs were compared."""

    replica: int = field(int32, "Broker.")
    last_epoch: int = field(int32, "Epoch of its last batch.")
    end_offset: int = field(int64, "Its end, exclusive.")
    flushed_offset: int = field(int64, "End of what was durable, -1 if not known.", since=2, default=-1)
    high_watermark: int = field(int64, "As the replica knew it, -1 if not known.", since=2, default=-1)


@message
class StoredDecision:
    """Why a partition changed; controller/core/decisions.py has the numbers."""

    cause: int = field(int8, "Which kind of event.")
    cause_broker: int = field(int32, "Broker of the event, -1 for none.")
    reason: int = field(int8, "Rule that elected the leader; 0 when it stays or there is none.")
    sets_rule: int = field(int8, "Rule that made ELR and last known ELR.")
    rejected: tuple[int, ...] = field(array(int32), "Replica and why it could not lead, in turn.")
    logs: tuple[ReplicaLogEnd, ...] = field(array_of(ReplicaLogEnd), "Logs that were compared (R68).")
    loss_at_most: int = field(
        int64, "Most committed records that the leader may lack, -1 if not known.", since=3, default=-1
    )


@message
class PartitionChangeRecord:
    """Difference of two registrations; null leaves a field alone. `partition_epoch` grows by one (R2)."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Index.")
    isr: tuple[int, ...] | None = field(nullable(array(int32)), "New ISR.")
    leader: int | None = field(
        nullable(int32), "Leader decision, -1 for none; grows leader_epoch even when equal."
    )
    replicas: tuple[int, ...] | None = field(nullable(array(int32)), "New assignment.")
    removing_replicas: tuple[int, ...] | None = field(nullable(array(int32)), "Leaving.")
    adding_replicas: tuple[int, ...] | None = field(nullable(array(int32)), "Joining.")
    original_replicas: tuple[int, ...] | None = field(
        nullable(array(int32)), "List before the reassignment; empty when it ends."
    )
    elr: tuple[int, ...] | None = field(nullable(array(int32)), "New ELR.")
    last_known_elr: tuple[int, ...] | None = field(nullable(array(int32)), "New last known ELR.")
    last_known_leader: int | None = field(nullable(int32), "New last known leader, -1 for none.")
    leader_recovery_state: int | None = field(nullable(int16), "0 RECOVERED, 1 RECOVERING.")
    min_isr: int | None = field(nullable(int32), "New effective min ISR.")
    decision: StoredDecision | None = field(
        nullable(struct(StoredDecision)), "Why; changes nothing at replay.", since=1, default=None
    )


@message
class ConfigRecord:
    """One key of one resource."""

    resource_type: int = field(int16, "2 topic, 4 broker (name '' is the cluster), 100 client.")
    resource_name: str = field(
        string, "Topic name, broker id, client id, or '' for the cluster or the default of all clients."
    )
    name: str = field(string, "Key.")
    value: str | None = field(nullable(string), "Value, null deletes.")


@message
class FenceBrokerRecord:
    """The broker may neither lead nor be in an ISR."""

    broker_id: int = field(int32, "Broker.")
    broker_epoch: int = field(int64, "Its registration.")


@message
class UnfenceBrokerRecord:
    """The broker may lead and be in ISRs."""

    broker_id: int = field(int32, "Broker.")
    broker_epoch: int = field(int64, "Its registration.")


@message
class BrokerRegistrationChangeRecord:
    """The broker has begun a controlled shutdown (R22), or changed its registration (R31)."""

    broker_id: int = field(int32, "Broker.")
    broker_epoch: int = field(int64, "Its registration.")
    in_controlled_shutdown: bool = field(boolean, "Is shutting down.")
    listeners: tuple[ListenerEndpoint, ...] = field(array_of(ListenerEndpoint), "Addresses.")
    rack: str | None = field(nullable(string), "Failure domain.")
    features: tuple[FeatureRange, ...] = field(array_of(FeatureRange), "Supported features.")
    log_dirs: tuple[bytes, ...] = field(array(uuid), "Directory ids.")


@message
class ReplicasOfflineRecord:
    """A log dir of the broker failed, or these replicas are damaged: they are inactive until the broker
    registers again, or has put them aside and fetches them anew (R27)."""

    broker_id: int = field(int32, "Broker.")
    broker_epoch: int = field(int64, "Its registration.")
    topic_id: bytes = field(uuid, "Topic.")
    partitions: tuple[int, ...] = field(array(int32), "Indexes, ascending.")
    are_online: bool = field(boolean, "They are fetched anew: inactive no more.", since=4, default=False)


@message
class RemoveTopicRecord:
    """The topic is deleted, with its partitions and configs."""

    topic_id: bytes = field(uuid, "Topic.")


@message
class FeatureLevelRecord:
    """A finalized feature level, 0 for off."""

    name: str = field(string, "Feature.")
    level: int = field(int16, "Level.")


@message
class ProducerIdsRecord:
    """A block of producer ids was given to a broker."""

    broker_id: int = field(int32, "Broker.")
    broker_epoch: int = field(int64, "Its registration.")
    next_producer_id: int = field(int64, "First id that is not allocated.")


@message
class NoOpRecord:
    """Shows time and progress to observers (K24), and that its writer leads (K20)."""


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | BrokerRegistrationChangeRecord
    | ReplicasOfflineRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | NoOpRecord
)

RECORD_CLASSES: dict[int, type] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    12: FeatureLevelRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    20: NoOpRecord,
    # Holdfast's own; Kafka stores the directory of each replica instead (KIP-858)
    100: ReplicasOfflineRecord,
}
_KEYS: dict[type, int] = {cls: key for key, cls in RECORD_CLASSES.items()}

#: The latest version of records that this software knows.
RECORD_VERSION = 5
#: Version of the records of each level of metadata.version. 0: those of builds that know of no levels; 1: a
#: replica that was offline is told to be fetched anew. Builds without levels wrote 4, too, which implies
#: level 0: their brokers may register until an operator raises the level.
RECORD_VERSIONS = (3, 5)
#: A build that adds a level must also write its level in new clusters, as a FeatureLevelRecord: to a build
#: that does not know the level its records imply only the highest that it knows, and only a record of the
#: level, or with a new field, stops it.
METADATA_VERSION_MAX = len(RECORD_VERSIONS) - 1


def implied_metadata_version(record_version: int | None) -> int:
    """The level of a cluster that has none finalized, by the latest version of its records; None: it has no
    record yet, and begins with the highest level."""
    if record_version is None:
        return METADATA_VERSION_MAX
    return max(0, bisect_right(RECORD_VERSIONS, record_version) - 1)


def encode_record(record: MetadataRecord, version: int = RECORD_VERSION) -> bytes:
    """The bytes of a record's value. A field that is later than `version` is left out."""
    assert version >= 4 or type(record) is not ReplicasOfflineRecord or not record.are_online, (
        "without the later field the record says the contrary"
    )
    attachment = Attachment()
    fields = encode_message(record, version, attachment)
    assert attachment.size == 0
    packed: bytes = msgpack.packb([_KEYS[type(record)], version, fields], use_bin_type=True)
    return packed


class LaterRecord(WrittenLater):
    """A record of a kind, or with a field, that this build does not know: a later one wrote it. To apply the
    rest of it could mean something else, so nothing from there on is applied (K29)."""


def decode_record(value: bytes) -> MetadataRecord:
    """The record in a value. Raises: LaterRecord; SchemaError for a wrong field."""
    return decode_versioned(value)[0]


def decode_versioned(value: bytes) -> tuple[MetadataRecord, int]:
    """The record in a value, and its version. Raises: LaterRecord; SchemaError for a wrong field."""
    try:
        raw: Any = msgpack.unpackb(value, raw=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise SchemaError(f"metadata record is not msgpack: {error}") from error
    if type(raw) is not list or len(raw) != 3 or type(raw[0]) is not int or type(raw[1]) is not int:
        raise SchemaError("metadata record is not [key, version, fields]")
    key, version, fields = raw
    if key < 0 or version < 0:
        raise SchemaError(f"metadata record has key {key} and version {version}")
    cls = RECORD_CLASSES.get(key)
    if cls is None:
        raise LaterRecord(f"a later build wrote a record of kind {key}, which this one does not know")
    if version > RECORD_VERSION and has_later_fields(cls, fields):
        raise LaterRecord(
            f"a later build wrote a {cls.__name__} of version {version}, which has fields that this one does "
            "not know"
        )
    decoded: MetadataRecord = decode_message(cls, fields, version, memoryview(b""))
    if type(decoded) is FeatureLevelRecord and decoded.name == METADATA_VERSION:
        if decoded.level < 0:
            raise SchemaError(f"{METADATA_VERSION} is at level {decoded.level}")
        if decoded.level > METADATA_VERSION_MAX:
            raise LaterRecord(
                f"{METADATA_VERSION} is at level {decoded.level}, and this build knows 0 to "
                f"{METADATA_VERSION_MAX}"
            )
    return decoded, version
