"""Names of folders and files, and who a log dir belongs to (D5)."""

import pytest

from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import NAME_BYTES_MAX
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.storage import meta_properties
from holdfast.storage.core.files import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    condemned_name,
    folder_name,
    offset_path,
    parse_folder_name,
    parse_offset_name,
)
from holdfast.storage.meta_properties import LogDirRefused

ID = bytes(range(240, 256))


def test_partition_folders_are_named_by_topic_and_index_even_with_dashes() -> None:
    assert folder_name(TopicPartition("a-b-7", 12)) == "a-b-7-12"
    assert parse_folder_name("a-b-7-12") == ("a-b-7", 12)


def test_a_folder_that_is_removed_is_no_partition_and_has_a_name_that_fits() -> None:
    tag = "0" * 32
    assert condemned_name("a-7", tag) == f"a-7.{tag}-delete"
    longest = condemned_name("n" * 249 + "-99999", tag)
    assert longest.endswith(f"n.{tag}{DELETED_SUFFIX}")
    assert len(longest) == NAME_BYTES_MAX
    assert parse_folder_name(longest) is None


@pytest.mark.parametrize("name", ["topic", "-3", "topic-", "topic-x", "topic-²", "lost+found"])
def test_other_folders_are_no_partitions(name: str) -> None:
    assert parse_folder_name(name) is None


def test_files_named_after_offsets_sort_as_offsets() -> None:
    path = offset_path("/d", 1234, LOG_SUFFIX)
    assert path == "/d/00000000000000001234.log"
    assert parse_offset_name("00000000000000001234.log", LOG_SUFFIX) == 1234
    for name in ("1234.log", "00000000000000001234.index", "0000000000000000123x.log", "checkpoint"):
        assert parse_offset_name(name, LOG_SUFFIX) is None


async def test_a_dir_keeps_its_id_and_names_what_does_not_fit() -> None:
    disk = MemoryDisk()
    await disk.make_folder("/d")
    assert await meta_properties.ensure(disk, "/d", "cluster", 3, ID) == ID
    disk.power_loss()
    assert await meta_properties.ensure(disk, "/d", "cluster", 3, bytes(16)) == ID
    with pytest.raises(LogDirRefused, match="cluster.id is cluster, this node has other"):
        await meta_properties.ensure(disk, "/d", "other", 3, ID)
    file = await disk.open("/d/meta.properties", create=False)
    await file.truncate(0)
    with pytest.raises(LogDirRefused, match="is damaged, it has no cluster.id"):
        await meta_properties.ensure(disk, "/d", "cluster", 3, ID)


async def test_a_partition_folder_knows_its_topic() -> None:
    disk = MemoryDisk()
    await disk.make_folder("/d/t-0")
    assert await meta_properties.read_topic_id(disk, "/d/t-0") is None
    await meta_properties.write_topic_id(disk, "/d/t-0", ID)
    assert await meta_properties.read_topic_id(disk, "/d/t-0") == ID
