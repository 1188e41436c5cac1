"""The story of a lost record, from what replicas have in its place."""

from pathlib import Path

from holdfast.client.core.history import make_value
from holdfast.durability.foreign_lines import PRODUCER, number_of_value
from holdfast.durability.loss_story import story_of
from holdfast.protocol.record_batch import Record, encode_batch

SEGMENT = "00000000000000000000.log"


def replica(folder: Path, *batches: tuple[int, int, list[bytes]]) -> str:
    """A log dir with partition t-0; a batch is (base offset, leader epoch, values)."""
    place = folder / "t-0"
    place.mkdir(parents=True)
    written = [
        encode_batch(
            [Record(base + n, 1, None, value) for n, value in enumerate(values)],
            base_offset=base,
            leader_epoch=epoch,
        )
        for base, epoch, values in batches
    ]
    (place / SEGMENT).write_bytes(b"".join(written))
    return str(folder)


def values(*pseqs: int) -> list[bytes]:
    return [make_value("p", pseq, 40) for pseq in pseqs]


def test_a_replica_that_still_has_it_is_named_with_file_and_byte(tmp_path: Path) -> None:
    first, second = (0, 3, values(0, 1)), (2, 3, values(2, 3))
    dirs = {1: replica(tmp_path / "b1", first), 2: replica(tmp_path / "b2", first, second)}
    size = (tmp_path / "b1" / "t-0" / SEGMENT).stat().st_size
    path = tmp_path / "b2" / "t-0" / SEGMENT
    assert story_of(dirs, "t", 0, 3, "p", 3) == (
        f"stored but not served: replica 2 still has it, {path} at byte {size}"
    )


def test_an_offset_that_was_given_again_names_the_epoch(tmp_path: Path) -> None:
    dirs = {
        1: replica(tmp_path / "b1", (0, 3, values(0, 1)), (2, 5, values(8))),
        2: replica(tmp_path / "b2", (0, 3, values(0, 1))),
    }
    assert story_of(dirs, "t", 0, 2, "p", 2) == (
        "its offset was given to another record: replica 1 in epoch 5; what was stored there was truncated"
    )


def test_logs_that_end_before_it_say_where(tmp_path: Path) -> None:
    dirs = {1: replica(tmp_path / "b1", (0, 3, values(0, 1))), 2: replica(tmp_path / "b2")}
    assert story_of(dirs, "t", 0, 2, "p", 2) == (
        "no replica has it or anything behind it: replica 1 ends at 2, replica 2 ends at 0; "
        "truncated, or never stored"
    )
    assert story_of(dirs, "t", 1, 2, "p", 2) == ""


def test_a_record_of_another_client_is_known_by_its_value(tmp_path: Path) -> None:
    dirs = {1: replica(tmp_path / "b1", (0, 3, [b"an order"]))}
    assert story_of(dirs, "t", 0, 0, PRODUCER, number_of_value(b"an order")).startswith(
        "stored but not served"
    )
    assert story_of(dirs, "t", 0, 0, PRODUCER, 7).startswith("its offset was given to another record")
