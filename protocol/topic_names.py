"""What a topic may be called: one rule for who makes topics and for who asks for them."""

from typing import NamedTuple

#: What the metadata log is called, which is no topic.
METADATA_TOPIC = "__cluster_metadata"
#: Kafka's name of the topic of the groups and their offsets; only their coordinators write to it.
OFFSETS_TOPIC = "__consumer_offsets"
#: As in Kafka: folder names add the index.
TOPIC_NAME_MAX = 249
_TOPIC_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class TopicPartition(NamedTuple):
    """A partition by the names that people use, as folders and checkpoints have it, too."""

    topic: str
    partition: int


def topic_name_problem(name: object) -> str | None:
    """Why a topic cannot be called so, or None."""
    if not isinstance(name, str):
        return f"a topic name is text, not {type(name).__name__}; give a str"
    if not name or name in (".", ".."):
        return f"a topic cannot be called {name!r}"
    if len(name) > TOPIC_NAME_MAX:
        return f"a topic name of {len(name)} characters is longer than {TOPIC_NAME_MAX}"
    if not _TOPIC_LETTERS.issuperset(name):
        return f"topic name {name!r} may only contain letters, digits, '.', '_' and '-'"
    if name == METADATA_TOPIC:
        return f"{name} is the metadata log, whose folder no topic may have; choose another name"
    return None
