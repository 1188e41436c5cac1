"""Which partition a record goes to: Kafka's murmur2 for keys, so that other clients agree."""

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key: 32 bit MurmurHash2 with its seed, unsigned."""
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Same key, same partition, as long as the count stays."""
    assert partition_count > 0
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
