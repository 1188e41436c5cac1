"""What a consumer says that it reads: the beginning of Kafka's ConsumerProtocolSubscription."""

import struct

_VERSION_AND_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Names of the topics; None when the bytes are no subscription."""
    topics: list[str] = []
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        position = _VERSION_AND_COUNT.size
        if version < 0 or count < 0:
            return None
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            begin = position + _LENGTH.size
            position = begin + length
            if length < 0 or position > len(metadata):
                return None
            topics.append(metadata[begin:position].decode())
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
