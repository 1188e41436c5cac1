"""A key that is accepted does something: some module reads it, by its name or by that of its topic key."""

from pathlib import Path

import pytest

from holdfast.metadata.config_keys import (
    BROKER_KEYS,
    CLIENT_KEYS,
    CLUSTER_KEYS,
    COMMON_KEYS,
    CONTROLLER_KEYS,
    TOPIC_KEYS,
    ConfigKey,
)

ROOT = Path(__file__).parents[3]
#: the packages of nodes
PACKAGES = ("broker", "controller", "metadata", "raft", "rpc", "runtime", "storage")

SOURCE = "\n".join(
    path.read_text(encoding="utf-8")
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if path.name != "config_keys.py"
)
EVERY_KEY = {
    key.name: key
    for key in (*COMMON_KEYS, *CONTROLLER_KEYS, *BROKER_KEYS, *TOPIC_KEYS, *CLUSTER_KEYS, *CLIENT_KEYS)
}
#: {the node's key of a default: topic key}
TOPIC_KEY_OF = {key.synonym: key.name for key in TOPIC_KEYS if key.synonym}


@pytest.mark.parametrize("key", EVERY_KEY.values(), ids=EVERY_KEY)
def test_key_is_read(key: ConfigKey) -> None:
    assert f'"{key.name}"' in SOURCE or f'"{TOPIC_KEY_OF.get(key.name)}"' in SOURCE
