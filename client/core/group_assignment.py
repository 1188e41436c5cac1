"""What a member of a group was given: Kafka's ConsumerProtocolAssignment, every version."""

import struct

from holdfast.protocol.topic_names import TopicPartition

_VERSION_AND_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")
_COUNT = struct.Struct(">i")


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions, in order; none when the bytes are no assignment of a consumer."""
    found: list[TopicPartition] = []
    try:
        version, topics = _VERSION_AND_COUNT.unpack_from(assignment)
        position = _VERSION_AND_COUNT.size
        if version < 0:
            return ()
        for _ in range(topics):
            (length,) = _LENGTH.unpack_from(assignment, position)
            begin = position + _LENGTH.size
            position = begin + max(0, length)
            (count,) = _COUNT.unpack_from(assignment, position)
            name = assignment[begin:position].decode()
            position += _COUNT.size
            if not 0 <= count <= (len(assignment) - position) // 4:
                return ()
            indexes = struct.unpack_from(f">{count}i", assignment, position)
            position += 4 * count
            found += [TopicPartition(name, index) for index in indexes]
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(found))
