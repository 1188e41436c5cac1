"""How much one request may ask for: more than any honest client does, and not enough to hold the event loop.

Owns the limits; counts what a request names before it is decoded. Bytes are limited elsewhere.
"""

from typing import Any

from holdfast.protocol.api_keys import ApiKey

#: A body up to so many bytes is too small to hold too much.
UNCOUNTED_BYTES = 8 << 10
#: Values and lists in a request, nested ones counted too: some thousands of rows.
ITEMS_MAX = 50_000
#: Where each value costs much more: names that are looked up and answered for one by one. Clients ask for
#: 1000 topics at a time. And where one row may be larger than that.
ITEMS_MAX_OF = {
    ApiKey.METADATA: 4_000,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 4_000,
    ApiKey.DELETE_TOPICS: 10_000,
    ApiKey.DESCRIBE_CONFIGS: 8_000,
    # One request creates 10 000 partitions at most, which a topic may need at once: eight values for each
    # whose five brokers are named.
    ApiKey.CREATE_TOPICS: 100_000,
    ApiKey.CREATE_PARTITIONS: 100_000,
}


def too_much(api_key: ApiKey, message: Any, body_bytes: int) -> str | None:
    """Why a request (its undecoded msgpack value, and the bytes that it was) is refused, or None."""
    if body_bytes <= UNCOUNTED_BYTES:
        return None
    limit = ITEMS_MAX_OF.get(api_key, ITEMS_MAX)
    if _items(message, limit) <= limit:
        return None
    return f"{api_key.name} with more than {limit} values; ask for less at once"


def _items(raw: Any, limit: int) -> int:
    """Values and lists below `raw`; any number above `limit` when there are more."""
    lists = [raw] if type(raw) is list else []
    count = 0
    while lists:
        one = lists.pop()
        count += len(one)
        if count > limit:
            break
        lists += [item for item in one if type(item) is list]
    return count
