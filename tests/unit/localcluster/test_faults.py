"""The journal of faults, and which file is meant by the part that it plays; no process is started."""

from pathlib import Path

import pytest

from holdfast.localcluster.faults import damage
from holdfast.localcluster.faults.catalogue import FAULTS
from holdfast.localcluster.faults.fault import FaultRefused, heal_all
from holdfast.localcluster.faults.journal import FaultJournal
from holdfast.localcluster.faults.network import Partition
from holdfast.localcluster.faults.places import Field, Part, Place, bit_in_file, find
from holdfast.localcluster.faults.processes import Pause, PowerLoss
from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.processes import FAULTS_FILE, LocalCluster
from holdfast.protocol.record_batch import HEADER_SIZE, Record, encode_batch


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """Three brokers that were never started, and some files of partition t-0."""
    made = LocalCluster.create(tmp_path / "cluster", 3, 1)
    folder = made.data_folder(made.broker(1)) / "t-0"
    folder.mkdir(parents=True)
    batch = encode_batch([Record(0, 1, b"key", b"value")], base_offset=0, leader_epoch=0)
    for offset in (0, 10, 20):
        (folder / f"{offset:020}.log").write_bytes(batch * 4)
    (folder / f"{10:020}.index").write_bytes(b"12345678")
    (folder / f"{20:020}.index").write_bytes(b"")
    (folder / "partition.metadata").write_text("version: 0\n")
    return made


def test_files_are_found_by_the_part_they_play(cluster: LocalCluster) -> None:
    node = cluster.broker(1)
    names = {
        part: find(cluster, node, Place(part, "t-0"), 0).name
        for part in (Part.FIRST_SEGMENT, Part.CLOSED_SEGMENT, Part.ACTIVE_SEGMENT, Part.INDEX)
    }
    assert names == {
        Part.FIRST_SEGMENT: f"{0:020}.log",
        Part.CLOSED_SEGMENT: f"{10:020}.log",
        Part.ACTIVE_SEGMENT: f"{20:020}.log",
        Part.INDEX: f"{10:020}.index",
    }
    for place, reason in (
        (Place(Part.SNAPSHOT, "t-0"), "no snapshot"),
        (Place(Part.INDEX), "which partition"),
    ):
        with pytest.raises(ClusterError, match=reason):
            find(cluster, node, place, 0)


@pytest.mark.parametrize(
    ("field", "first", "end"),
    [
        (Field.BASE_OFFSET, 0, 8),
        (Field.LENGTH, 8, 12),
        (Field.LEADER_EPOCH, 12, 16),
        (Field.PAYLOAD, 21, HEADER_SIZE + 1000),
    ],
)
def test_a_bit_is_drawn_within_the_field_of_a_batch_by_seed(
    cluster: LocalCluster, field: Field, first: int, end: int
) -> None:
    path = find(cluster, cluster.broker(1), Place(Part.CLOSED_SEGMENT, "t-0"), 0)
    size = path.stat().st_size // 4
    drawn = [bit_in_file(path, field, seed) for seed in range(50)]
    assert drawn == [bit_in_file(path, field, seed) for seed in range(50)]
    assert len(set(drawn)) > 10
    assert all(first <= position % size < end and 0 <= bit < 8 for position, bit in drawn)


def test_damage_is_undone_from_the_journal_by_another_process(cluster: LocalCluster) -> None:
    node = cluster.broker(1)
    folder = cluster.data_folder(node)
    before = _content(folder)
    for fault in (
        damage.FlipBit(cluster, node, Place(Part.ACTIVE_SEGMENT, "t-0"), field=Field.PAYLOAD),
        damage.CutFile(cluster, node, Place(Part.ACTIVE_SEGMENT, "t-0")),
        damage.RemoveFile(cluster, node, Place(Part.PARTITION_METADATA, "t-0")),
    ):
        fault.apply()
        assert _content(folder) != before
    damage.WipeDisk(cluster, node).apply()
    assert not folder.exists()
    assert len(heal_all(cluster.folder)) == 4
    assert _content(folder) == before
    assert heal_all(cluster.folder) == []
    cluster.delete()
    assert not cluster.folder.exists()


def test_a_step_that_was_noted_but_never_done_is_healed_as_well(cluster: LocalCluster) -> None:
    journal = FaultJournal(cluster)
    node = cluster.broker(1)
    path = find(cluster, node, Place(Part.INDEX, "t-0"), 0)
    details = {"node": node.name, "path": str(path), "start": "", "aside": str(path) + ".aside"}
    journal.begin("cut-file", "index", "put-back", details)
    with (cluster.folder / FAULTS_FILE).open("ab") as file:
        file.write(b'{"id": "its writer died he')
    assert [step.fault for step in journal.open_steps()] == ["cut-file"]
    assert heal_all(cluster.folder) == ["cut-file of index"]
    assert path.read_bytes() == b"12345678"


def test_what_cannot_be_done_here_is_refused_with_a_reason(cluster: LocalCluster) -> None:
    node = cluster.broker(1)
    for fault, reason in (
        (Pause(cluster, node), "does not run"),
        (PowerLoss(cluster, node), "power-loss"),
        (Partition.isolate(cluster, node), "with links"),
    ):
        with pytest.raises(FaultRefused, match=reason):
            fault.apply()
    assert FaultJournal(cluster).open_steps() == []


def test_every_fault_has_a_name_of_its_own() -> None:
    assert all(name == fault.name for name, fault in FAULTS.items())
    assert len(FAULTS) == 23


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
