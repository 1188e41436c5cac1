"""`meta.properties`: which node a log dir belongs to. `partition.metadata`: which topic a partition folder
holds.

Owns both files. A dir of another cluster or node is refused with a text for the operator: mounting the wrong
volume must never look like an empty or restored replica.
"""

import posixpath
from collections.abc import Mapping

from holdfast.protocol.id_text import decode_id, encode_id
from holdfast.runtime.api import Disk
from holdfast.storage import checkpoint
from holdfast.storage.core.files import META_PROPERTIES, PARTITION_METADATA

META_VERSION = "1"


class LogDirRefused(Exception):
    """A log dir, or a folder in it, is not what this node expects; the text says what the operator can do."""


async def ensure(disk: Disk, log_dir: str, cluster_id: str, node_id: int, new_directory_id: bytes) -> bytes:
    """The id of a log dir of this node; an unmarked dir is durably marked with `new_directory_id`.

    Raises: LogDirRefused when it belongs to another cluster or node or cannot be read, DiskError.
    """
    path = posixpath.join(log_dir, META_PROPERTIES)
    if not await disk.exists(path):
        written = {
            "version": META_VERSION,
            "cluster.id": cluster_id,
            "node.id": str(node_id),
            "directory.id": encode_id(new_directory_id),
        }
        await checkpoint.write_atomically(disk, path, _encode(written, "="))
        return new_directory_id
    found = _decode(await checkpoint.read_text(disk, path), "=")
    for key, expected in (("cluster.id", cluster_id), ("node.id", str(node_id))):
        if key not in found:
            raise LogDirRefused(
                f"{path} is damaged, it has no {key}: put the file back; or, when this is surely the dir of "
                f"node {node_id}, write {key}={expected} into it"
            )
        if found[key] != expected:
            raise LogDirRefused(
                f"{path}: {key} is {found[key]}, this node has {expected}; give it its own log dir, "
                "or correct its configuration"
            )
    directory_id = decode_id(found.get("directory.id", ""))
    if directory_id is None:
        raise LogDirRefused(f"{path}: directory.id {found.get('directory.id')} is invalid; restore the file")
    return directory_id


async def write_topic_id(disk: Disk, folder: str, topic_id: bytes) -> None:
    """Store which topic the partition folder belongs to; durable once the folder is synced. Raises:
    DiskError."""
    text = _encode({"version": "0", "topic_id": encode_id(topic_id)}, ": ")
    await checkpoint.replace(disk, posixpath.join(folder, PARTITION_METADATA), text)


async def read_topic_id(disk: Disk, folder: str) -> bytes | None:
    """The topic id of a partition folder; None when it cannot be read. Raises: DiskError."""
    text = await checkpoint.read_text(disk, posixpath.join(folder, PARTITION_METADATA))
    return decode_id(_decode(text, ":").get("topic_id", ""))


def _encode(pairs: Mapping[str, str], between: str) -> str:
    return "".join(f"{key}{between}{value}\n" for key, value in pairs.items())


def _decode(text: str | None, between: str) -> dict[str, str]:
    pairs = {}
    for line in (text or "").splitlines():
        key, found, value = line.partition(between)
        if found and not key.startswith("#"):
            pairs[key.strip()] = value.strip()
    return pairs
