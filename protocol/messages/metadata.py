"""Metadata (3) and DescribeCluster (60): who is there and who leads what, from the answering node's image."""

from holdfast.protocol.messages.features import DescribedFeature
from holdfast.protocol.schema.fields import (
    array,
    array_of,
    boolean,
    field,
    int16,
    int32,
    int64,
    message,
    nullable,
    sentence,
    string,
    uuid,
)


@message
class MetadataRequest:
    """Ask any broker. The answer uses the addresses of the listener that the question came through."""

    topics: tuple[str, ...] | None = field(nullable(array(string)), "Topic names, null for all.")


@message
class MetadataBroker:
    """An unfenced broker."""

    broker_id: int = field(int32, "Id.")
    host: str = field(string, "Advertised host.")
    port: int = field(int32, "Advertised port.")
    rack: str | None = field(nullable(string), "Failure domain.")


@message
class MetadataPartition:
    """One partition as the image has it."""

    error_code: int = field(int16, "LEADER_NOT_AVAILABLE when there is none.")
    partition_index: int = field(int32, "Index.")
    leader_id: int = field(int32, "-1 when there is none.")
    leader_epoch: int = field(int32, "Epoch of that decision.")
    replicas: tuple[int, ...] = field(array(int32), "Assigned ids, preferred first.")
    isr: tuple[int, ...] = field(array(int32), "In-sync ids.")
    offline_replicas: tuple[int, ...] = field(
        array(int32), "Replicas on fenced or unknown brokers, or in failed log dirs."
    )


@message
class MetadataTopic:
    """One topic."""

    error_code: int = field(int16, "UNKNOWN_TOPIC_OR_PARTITION for a name that does not exist.")
    name: str = field(string, "Name.")
    topic_id: bytes = field(uuid, "Id, zeros when unknown.")
    partitions: tuple[MetadataPartition, ...] = field(array_of(MetadataPartition), "By index.")


@message
class MetadataResponse:
    """The image of the answering node at `metadata_offset`; it may lag behind the active controller."""

    cluster_id: str = field(string, "Cluster.")
    controller_id: int = field(int32, "Active controller as known here, -1 when unknown.")
    metadata_offset: int = field(int64, "Position of the image in the metadata log.")
    brokers: tuple[MetadataBroker, ...] = field(array_of(MetadataBroker), "Unfenced brokers, by id.")
    topics: tuple[MetadataTopic, ...] = field(array_of(MetadataTopic), "By name.")


@message
class DescribeClusterRequest:
    """Ask any broker or controller."""


@message
class DescribeClusterBroker:
    """A registered broker, fenced or not."""

    broker_id: int = field(int32, "Id.")
    broker_epoch: int = field(int64, "Registration epoch.")
    incarnation_id: bytes = field(uuid, "Process start.")
    host: str = field(string, "Advertised host on the listener asked through, else on its first.")
    port: int = field(int32, "Advertised port.")
    rack: str | None = field(nullable(string), "Failure domain.")
    is_fenced: bool = field(boolean, "May not lead nor be in an ISR.")
    in_controlled_shutdown: bool = field(boolean, "Is leaving.")
    clean_shutdown: bool = field(boolean, "The registration proved a clean shutdown (R32), or was the first.")


@message
class DescribeClusterResponse:
    """Brokers of the image and the quorum's leader."""

    error_code: int = field(int16, "NONE.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    cluster_id: str = field(string, "Cluster.")
    controller_id: int = field(int32, "Active controller, -1 when unknown.")
    controller_epoch: int = field(int32, "Raft epoch of that leader.")
    metadata_offset: int = field(int64, "Position of the image.")
    brokers: tuple[DescribeClusterBroker, ...] = field(array_of(DescribeClusterBroker), "By id.")
    features: tuple[DescribedFeature, ...] = field(array_of(DescribedFeature), "By name.")
