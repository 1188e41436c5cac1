"""What an answer to a produce request says about the batch, and what a history may claim about it.

Owns the classes of outcomes: `fail` only when the batch cannot have been appended, `info` for all
other endings without an acknowledgement. When in doubt, the answer is taken as unknown.
"""

from enum import Enum

from holdfast.protocol.errors import ErrorCode


class DeliveryOutcome(Enum):
    """How the story of a record ended; the values are those of the ledger (D11)."""

    OK = "ok"
    #: acknowledged under acks 0 or 1, which promises less
    OK1 = "ok1"
    FAIL = "fail"
    INFO = "info"


class Reaction(Enum):
    """What the producer does about an answer."""

    APPENDED = "appended"
    #: refused before the append by a node that may take it later: same place, after a pause
    REFUSED = "refused"
    #: refused before the append because the leader is another: look for it
    REFUSED_BY_OTHER = "refused by other"
    #: may or may not be in the log: ask again, under the same sequence
    UNKNOWN = "unknown"
    #: as UNKNOWN, and the leader is probably another
    UNKNOWN_MOVED = "unknown moved"
    #: refused because of a gap before it (R92)
    GAP = "gap"
    #: refused because the log has seen a newer epoch of this producer (R93)
    FENCED = "fenced"
    #: refused before the append: its records may get through in smaller batches
    TOO_LARGE = "too large"
    #: refused before the append and no repetition can help
    HOPELESS = "hopeless"


_REACTIONS = {
    ErrorCode.NONE: Reaction.APPENDED,
    ErrorCode.NOT_ENOUGH_REPLICAS: Reaction.REFUSED,
    ErrorCode.REQUEST_LIMIT_REACHED: Reaction.REFUSED,
    ErrorCode.CORRUPT_MESSAGE: Reaction.REFUSED,
    ErrorCode.UNKNOWN_TOPIC_ID: Reaction.REFUSED_BY_OTHER,
    ErrorCode.INCONSISTENT_TOPIC_ID: Reaction.REFUSED_BY_OTHER,
    ErrorCode.LEADER_NOT_AVAILABLE: Reaction.REFUSED_BY_OTHER,
    ErrorCode.FENCED_LEADER_EPOCH: Reaction.REFUSED_BY_OTHER,
    ErrorCode.UNKNOWN_LEADER_EPOCH: Reaction.REFUSED_BY_OTHER,
    # A leader that loses its role while a batch waits for the high watermark answers so too.
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Reaction.UNKNOWN_MOVED,
    # Likewise one whose replica is taken away after the append.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.UNKNOWN_MOVED,
    ErrorCode.KAFKA_STORAGE_ERROR: Reaction.UNKNOWN_MOVED,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Reaction.UNKNOWN,
    ErrorCode.REQUEST_TIMED_OUT: Reaction.UNKNOWN,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Reaction.GAP,
    ErrorCode.UNKNOWN_PRODUCER_ID: Reaction.GAP,
    ErrorCode.INVALID_PRODUCER_EPOCH: Reaction.FENCED,
    ErrorCode.PRODUCER_FENCED: Reaction.FENCED,
    ErrorCode.MESSAGE_TOO_LARGE: Reaction.TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE: Reaction.TOO_LARGE,
    ErrorCode.INVALID_RECORD: Reaction.HOPELESS,
    ErrorCode.INVALID_TIMESTAMP: Reaction.HOPELESS,
    ErrorCode.INVALID_REQUEST: Reaction.HOPELESS,
    ErrorCode.INVALID_REQUIRED_ACKS: Reaction.HOPELESS,
    ErrorCode.INVALID_TOPIC_EXCEPTION: Reaction.HOPELESS,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: Reaction.HOPELESS,
    ErrorCode.UNSUPPORTED_VERSION: Reaction.HOPELESS,
    ErrorCode.POLICY_VIOLATION: Reaction.HOPELESS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction.HOPELESS,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Reaction.HOPELESS,
}


def reaction_to(code: ErrorCode) -> Reaction:
    """What to do about `code`; a code that produce has no rule for leaves the batch's fate unknown."""
    return _REACTIONS.get(code, Reaction.UNKNOWN)


def refused_before_append(reaction: Reaction) -> bool:
    """True when the answer proves that this attempt appended nothing."""
    return reaction in _REFUSALS


_REFUSALS = frozenset(
    {
        Reaction.REFUSED,
        Reaction.REFUSED_BY_OTHER,
        Reaction.GAP,
        Reaction.FENCED,
        Reaction.TOO_LARGE,
        Reaction.HOPELESS,
    }
)


def outcome_without_ack(unanswered_attempts: int) -> DeliveryOutcome:
    """FAIL when every attempt was refused before the append, or none was made; else INFO."""
    assert unanswered_attempts >= 0
    return DeliveryOutcome.FAIL if unanswered_attempts == 0 else DeliveryOutcome.INFO
