"""Which Kafka code a client gets for each of ours: the one that makes it do the right thing.

Most numbers are Kafka's own. The others are chosen by what clients do with them: those of the first table are
retried after a look at the metadata.
"""

from kio.schema.errors import ErrorCode as KafkaErrorCode

from holdfast.protocol.errors import ErrorCode

#: Ours where Kafka has no such code, or where Kafka's clients would give up although they could try again.
_TRANSLATED = {
    # Java's client does not retry BROKER_NOT_AVAILABLE; this one makes it look for another leader.
    ErrorCode.BROKER_NOT_AVAILABLE: KafkaErrorCode.leader_not_available,
    # Nothing was done, and the same request may succeed a moment later.
    ErrorCode.OPERATION_NOT_ATTEMPTED: KafkaErrorCode.request_timed_out,
    ErrorCode.REQUEST_LIMIT_REACHED: KafkaErrorCode.request_timed_out,
    ErrorCode.MALFORMED_FRAME: KafkaErrorCode.invalid_request,
}
_KNOWN = {int(code): int(code) for code in KafkaErrorCode} | {
    int(ours): int(theirs) for ours, theirs in _TRANSLATED.items()
}
#: Those of a partition that Java's consumer knows how to go on after, or raises as what they are.
_FETCHED = frozenset(
    {
        KafkaErrorCode.corrupt_message,
        KafkaErrorCode.unknown_topic_or_partition,
        KafkaErrorCode.not_leader_or_follower,
        KafkaErrorCode.replica_not_available,
        KafkaErrorCode.kafka_storage_error,
        KafkaErrorCode.fenced_leader_epoch,
        KafkaErrorCode.unknown_leader_epoch,
        KafkaErrorCode.offset_not_available,
        KafkaErrorCode.unknown_topic_id,
        KafkaErrorCode.inconsistent_topic_id,
    }
)


def kafka_code(code: int) -> int:
    """Kafka's code for one of ours; UNKNOWN_SERVER_ERROR for one that Kafka does not have."""
    return _KNOWN.get(code, int(KafkaErrorCode.unknown_server_error))


def admin_code(code: int) -> int:
    """Kafka's code when an admin request was refused as a whole: asked again only if nothing was done."""
    if code == ErrorCode.NETWORK_EXCEPTION:  # whether it was carried out is not known
        return int(KafkaErrorCode.request_timed_out)
    if code in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_LIMIT_REACHED):
        # Kafka's clients look for the controller anew, and may ask another broker.
        return int(KafkaErrorCode.not_controller)
    return kafka_code(code)


def group_code(code: int) -> int:
    """Kafka's code for a request about a group; a broker that cannot serve it now is no coordinator."""
    if code in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_LIMIT_REACHED):
        return int(KafkaErrorCode.not_coordinator)  # clients look for it anew
    return kafka_code(code)


def fetch_code(code: int) -> int:
    """Kafka's code for a partition of a Fetch that was refused as a whole.

    Java's consumer ends with "Unexpected error code" after any that Kafka's brokers never give there,
    retriable or not: a broker that starts or stops has to say that it does not lead.
    """
    found = KafkaErrorCode(kafka_code(code))
    if found.retriable and found not in _FETCHED:
        return int(KafkaErrorCode.not_leader_or_follower)
    return int(found)
