"""The story of a lost record, from what replicas have in its place."""

import re
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.client.core.history import make_value
from holdfast.durability.foreign_lines import PRODUCER, number_of_value
from holdfast.durability.loss_story import Election, Fault, LostRecord, RunHistory
from holdfast.durability.loss_story import story_of as told_of
from holdfast.durability.replica_places import Has, ReplicaPlaces
from holdfast.durability.segments import WINDOW_BYTES
from holdfast.protocol.record_batch import Record, encode_batch

SEGMENT = "00000000000000000000.log"


def story_of(
    log_dirs: Mapping[int, str],
    lost: LostRecord,
    elections: Sequence[Election] = (),
    history: RunHistory | None = None,
) -> str:
    found = ReplicaPlaces(log_dirs).found(lost.topic, lost.partition, lost.offset, lost.producer, lost.pseq)
    return told_of(found, lost, elections, history)


def replica(folder: Path, *batches: tuple[int, int, list[bytes]]) -> str:
    """A log dir with partition t-0; a batch is (base offset, leader epoch, values)."""
    place = folder / "t-0"
    place.mkdir(parents=True)
    (place / SEGMENT).write_bytes(replica_bytes(*batches))
    return str(folder)


def replica_bytes(*batches: tuple[int, int, list[bytes]]) -> bytes:
    written = [
        encode_batch(
            [Record(base + n, 1, None, value) for n, value in enumerate(values)],
            base_offset=base,
            leader_epoch=epoch,
        )
        for base, epoch, values in batches
    ]
    return b"".join(written)


def values(*pseqs: int) -> list[bytes]:
    return [make_value("p", pseq, 40) for pseq in pseqs]


def test_a_replica_that_still_has_it_is_named_with_file_and_byte(tmp_path: Path) -> None:
    first, second = (0, 3, values(0, 1)), (2, 3, values(2, 3))
    dirs = {1: replica(tmp_path / "b1", first), 2: replica(tmp_path / "b2", first, second)}
    size = (tmp_path / "b1" / "t-0" / SEGMENT).stat().st_size
    path = tmp_path / "b2" / "t-0" / SEGMENT
    assert story_of(dirs, LostRecord("t", 0, 3, "p", 3)) == (
        f"stored but not served: replica 2 still has it, {path} at byte {size}"
    )


def test_an_offset_that_was_given_again_names_the_epoch(tmp_path: Path) -> None:
    dirs = {
        1: replica(tmp_path / "b1", (0, 3, values(0, 1)), (2, 5, values(8))),
        2: replica(tmp_path / "b2", (0, 3, values(0, 1))),
    }
    assert story_of(dirs, LostRecord("t", 0, 2, "p", 2)) == (
        "its offset was given to another record: replica 1 in epoch 5; what was stored there was truncated, "
        "or lost with its files; "
        "replica 2 ends at 2"
    )


def test_logs_that_end_before_it_say_where(tmp_path: Path) -> None:
    dirs = {1: replica(tmp_path / "b1", (0, 3, values(0, 1))), 2: replica(tmp_path / "b2")}
    assert story_of(dirs, LostRecord("t", 0, 2, "p", 2)) == (
        "no replica has it or anything behind it: replica 1 ends at 2, replica 2 ends at 0; "
        "truncated, or never stored"
    )
    assert story_of(dirs, LostRecord("t", 1, 2, "p", 2)) == ""


def test_of_a_large_segment_little_is_kept(tmp_path: Path) -> None:
    """It may have a gigabyte, and there is one for each replica."""
    batches = [(base, 3, [b"x" * 100_000]) for base in range(80)]
    places = ReplicaPlaces({1: replica(tmp_path / "b1", *batches)})
    tracemalloc.start()
    try:
        places.found("t", 0, 79, "p", 79)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 20
    assert most < 4 * WINDOW_BYTES


def test_a_batch_that_a_broker_replaces_meanwhile_cannot_be_read(tmp_path: Path) -> None:
    dirs = {1: replica(tmp_path / "b1", (0, 3, values(0, 1)))}
    places, path = ReplicaPlaces(dirs), tmp_path / "b1" / "t-0" / SEGMENT
    assert [one.has for one in places.found("t", 0, 1, "p", 1)] == [Has.RECORD]
    for data in (replica_bytes((0, 4, values(8, 1))), b""):
        path.write_bytes(data)
        assert [one.has for one in places.found("t", 0, 1, "p", 1)] == [Has.UNREADABLE]


def test_a_record_of_another_client_is_known_by_its_value(tmp_path: Path) -> None:
    dirs = {1: replica(tmp_path / "b1", (0, 3, [b"an order"]))}
    assert story_of(dirs, LostRecord("t", 0, 0, PRODUCER, number_of_value(b"an order"))).startswith(
        "stored but not served"
    )
    assert story_of(dirs, LostRecord("t", 0, 0, PRODUCER, 7)).startswith(
        "its offset was given to another record"
    )


def test_another_record_of_the_very_epoch_was_there_from_the_beginning(tmp_path: Path) -> None:
    dirs = {1: replica(tmp_path / "b1", (0, 3, values(0, 1, 8)))}
    assert story_of(dirs, LOST) == (
        "its offset was given to another record: replica 1 in epoch 3, the one that acknowledged it: it was "
        "never stored there"
    )


def test_a_gap_a_later_beginning_and_bytes_that_cannot_be_read_are_no_end(tmp_path: Path) -> None:
    dirs = {
        1: replica(tmp_path / "b1", (0, 3, values(0, 1)), (4, 3, values(4, 5))),
        2: replica(tmp_path / "b2", (0, 3, values(0, 1)), (2, 3, values(2, 3)), (4, 3, values(4))),
        3: replica(tmp_path / "b3"),
    }
    (tmp_path / "b3" / "t-0" / SEGMENT).rename(tmp_path / "b3" / "t-0" / SEGMENT.replace("0.log", "9.log"))
    damaged = tmp_path / "b2" / "t-0" / SEGMENT
    size = len(replica_bytes((0, 3, values(0, 1))))
    data = bytearray(damaged.read_bytes())
    data[size + 70] ^= 1
    damaged.write_bytes(data)
    assert story_of(dirs, LOST) == (
        f"no replica has it: replica 2 cannot be read there, {damaged} at byte {size}, replica 1 has a gap "
        "there and goes on at 4, replica 3 begins at 9"
    )


def test_a_segment_that_is_missing_is_a_gap(tmp_path: Path) -> None:
    dirs = {1: replica(tmp_path / "b1", (0, 3, values(0, 1)))}
    (tmp_path / "b1" / "t-0" / SEGMENT.replace("0.log", "8.log")).write_bytes(b"")
    assert story_of(dirs, LOST) == "no replica has it: replica 1 has a gap there and goes on at 8"


# --- elections -----------------------------------------------------------------------------------------


def election(epoch: int, leader: int | None, *isrs: tuple[int, ...], is_unclean: bool = False) -> Election:
    return Election(epoch, leader, isrs[0], isrs[-1], is_unclean, 1_700_000_000_000 + epoch, "a kill")


FIRST = election(3, 1, (1, 2, 3), (1,))
LEADERLESS = election(4, None, ())
CLEAN = election(4, 2, (2, 3))
UNCLEAN = election(5, 2, (2,), is_unclean=True)
LOST = LostRecord("t", 0, 2, "p", 2, leader_epoch=3)
HELD = "acknowledged in epoch 3 by leader 1, whose ISR was 1, 2, 3 at first and 1 at last"


@pytest.mark.parametrize(
    ("elections", "told"),
    [
        ((), ""),
        (
            (election(2, 1, (1,)),),
            "acknowledged in epoch 3; the metadata log tells only to epoch 2, so by which election it "
            "was lost is not known",
        ),
        (
            (election(4, 1, (1,)), UNCLEAN),
            "acknowledged in epoch 3; the metadata log tells only from epoch 4 on, so by which election it "
            "was lost is not known",
        ),
        ((FIRST,), f"{HELD}; no other leader was elected since"),
        (
            (FIRST, CLEAN),
            f"{HELD}; epoch 4 began cleanly with leader 2 at 2023-11-14 22:13:20.004Z (a kill; before it "
            "ISR: 1, ELR: empty), whose log had to be complete and was not",
        ),
        (
            (FIRST, CLEAN, election(5, 3, (3,))),
            f"{HELD}; since then only clean elections: 2 in epoch 4, 3 in epoch 5: a log that had to be "
            "complete was not",
        ),
        (
            (FIRST, LEADERLESS, UNCLEAN, election(6, 3, (2, 3))),
            f"{HELD}; epoch 5 began uncleanly with leader 2 at 2023-11-14 22:13:20.005Z (a kill; before it "
            "ISR: empty, ELR: empty)",
        ),
        (
            (FIRST, CLEAN, UNCLEAN),
            f"{HELD}; epoch 5 began uncleanly with leader 2 at 2023-11-14 22:13:20.005Z (a kill; before it "
            "ISR: 2, 3, ELR: empty); between them led 2 in epoch 4",
        ),
    ],
)
def test_without_files_the_elections_alone_are_told(elections: tuple[Election, ...], told: str) -> None:
    assert story_of({}, LOST, elections) == told


def test_replicas_that_were_cut_are_named_with_the_election(tmp_path: Path) -> None:
    other = (2, 5, values(8))
    dirs = {
        1: replica(tmp_path / "b1", (0, 3, values(0, 1)), other),
        2: replica(tmp_path / "b2", (0, 3, values(0, 1)), other),
        3: replica(tmp_path / "b3", (0, 3, values(0, 1, 2))),
    }
    assert story_of(dirs, LOST, (FIRST, LEADERLESS, UNCLEAN)) == (
        f"stored but not served: replica 3 still has it, {tmp_path}/b3/t-0/{SEGMENT} at byte 0; "
        "its offset was given to another record: replica 1 in epoch 5, replica 2 in epoch 5; what was stored "
        f"there was truncated, or lost with its files; {HELD}; epoch 5 began uncleanly with leader 2 at "
        "2023-11-14 22:13:20.005Z (a kill; before it ISR: empty, ELR: empty), to whose log replica 1 "
        "had to be cut"
    )


SECOND, THIRD = election(7, 3, (3,), is_unclean=True), election(9, 1, (1,), is_unclean=True)
THREE = (FIRST, UNCLEAN, election(6, 2, (1, 2, 3)), SECOND, election(8, 3, (3,)), THIRD)


@pytest.mark.parametrize(
    ("given_in", "outlived", "blamed"),
    [
        (5, None, ["epoch 5"]),
        (6, None, ["epoch 5"]),
        (7, None, ["epoch 5", "epoch 7"]),  # the leader of epoch 5 acknowledged nothing
        (8, 6, ["epoch 7"]),
        (9, 8, ["epoch 9"]),
        (None, 6, ["epoch 7", "epoch 9"]),  # nothing was written since
        (None, None, ["epoch 5", "epoch 7", "epoch 9"]),
    ],
)
def test_of_several_unclean_elections_the_one_after_which_its_offset_was_given_again_is_named(
    given_in: int | None, outlived: int | None, blamed: list[str]
) -> None:
    lost = replace(LOST, given_in=given_in, outlived=outlived)
    story = told_of((), lost, THREE)
    assert re.findall(r"epoch \d+(?= began uncleanly)", story) == blamed
    assert (f"one of these {len(blamed)} elections gave its place" in story) == (len(blamed) > 1)


def test_compared_logs_tell_whether_the_elected_one_had_it() -> None:
    lost = replace(LOST, given_in=9)
    ends = {5: 40, 7: 2}
    compared = [replace(one, log_end=ends.get(one.leader_epoch)) for one in THREE]
    assert re.findall(r"epoch \d+(?= began)", told_of((), lost, compared)) == ["epoch 7"]


def test_a_record_that_outlived_all_elections_blames_none() -> None:
    story = told_of((), replace(LOST, outlived=9), THREE)
    assert story == f"{HELD}; it outlived the elections until epoch 9, the last one"


def test_a_ledger_without_epochs_gets_the_unclean_elections_that_there_were() -> None:
    story = told_of((), replace(LOST, leader_epoch=-1), (FIRST, CLEAN, UNCLEAN))
    assert story.startswith("the ledger does not say in which epoch it was acknowledged; epoch 5 began uncl")
    story = told_of((), replace(LOST, leader_epoch=-1), (FIRST, CLEAN))
    assert story.endswith("the metadata log has no unclean election of the partition")


EPOCHS = (
    Election(3, 1, (1, 2, 3), (1,), False, 1_700_000_000_000, "the topic was created"),
    Election(5, 2, (2,), (2,), True, 1_700_000_010_000, "broker 2 was registered"),
)


def run_history(*faults: Fault) -> RunHistory:
    return RunHistory(wall_ms=1_700_000_000_000, mono_ns=5_000_000_000, faults=faults)


def fault(text: str, since_s: float, until_s: float | None) -> Fault:
    start_ms = 1_700_000_000_000
    until_ms = None if until_s is None else start_ms + round(1000 * until_s)
    return Fault(text, start_ms + round(1000 * since_s), until_ms)


def test_faults_from_the_acknowledgement_to_the_unclean_election_are_named_with_their_times() -> None:
    history = run_history(
        fault("healed before it", 1, 1.5),
        fault("kill -9 broker-1", 1, 4),
        fault("power loss broker-3", 9, None),
        fault("after the election", 10.5, 11),
    )
    lost = LostRecord("t", 0, 2, "p", 2, leader_epoch=3, acked_ns=7_000_000_000)
    assert story_of({}, lost, EPOCHS, history).endswith(
        "acknowledged at 2023-11-14 22:13:22.000Z; what was done to the cluster meanwhile: "
        "kill -9 broker-1 at 2023-11-14 22:13:21.000Z (healed at 2023-11-14 22:13:24.000Z), "
        "power loss broker-3 at 2023-11-14 22:13:29.000Z"
    )


def test_a_history_without_a_fault_in_that_time_says_so() -> None:
    lost = LostRecord("t", 0, 2, "p", 2, leader_epoch=3, acked_ns=7_000_000_000)
    assert story_of({}, lost, EPOCHS, run_history(fault("before", 0, 1))).endswith(
        "acknowledged at 2023-11-14 22:13:22.000Z; the run's history has no fault in that time"
    )


def test_without_times_all_faults_are_near_and_the_last_are_named() -> None:
    history = run_history(*(fault(f"fault {n}", n, n + 1) for n in range(8)))
    story = story_of({}, LostRecord("t", 0, 2, "p", 2, acked_ns=1), (), history)
    assert story.startswith("what was done to the cluster, the last of 8: fault 3 at ")
    assert story.endswith("fault 7 at 2023-11-14 22:13:27.000Z (healed at 2023-11-14 22:13:28.000Z)")
