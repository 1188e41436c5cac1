"""The story of a lost record, from what replicas have in its place."""

from pathlib import Path

import pytest

from holdfast.client.core.history import make_value
from holdfast.durability.foreign_lines import PRODUCER, number_of_value
from holdfast.durability.loss_story import Election, Fault, LostRecord, RunHistory, story_of
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
    assert story_of(dirs, LostRecord("t", 0, 3, "p", 3)) == (
        f"stored but not served: replica 2 still has it, {path} at byte {size}"
    )


def test_an_offset_that_was_given_again_names_the_epoch(tmp_path: Path) -> None:
    dirs = {
        1: replica(tmp_path / "b1", (0, 3, values(0, 1)), (2, 5, values(8))),
        2: replica(tmp_path / "b2", (0, 3, values(0, 1))),
    }
    assert story_of(dirs, LostRecord("t", 0, 2, "p", 2)) == (
        "its offset was given to another record: replica 1 in epoch 5; what was stored there was truncated"
    )


def test_logs_that_end_before_it_say_where(tmp_path: Path) -> None:
    dirs = {1: replica(tmp_path / "b1", (0, 3, values(0, 1))), 2: replica(tmp_path / "b2")}
    assert story_of(dirs, LostRecord("t", 0, 2, "p", 2)) == (
        "no replica has it or anything behind it: replica 1 ends at 2, replica 2 ends at 0; "
        "truncated, or never stored"
    )
    assert story_of(dirs, LostRecord("t", 1, 2, "p", 2)) == ""


def test_a_record_of_another_client_is_known_by_its_value(tmp_path: Path) -> None:
    dirs = {1: replica(tmp_path / "b1", (0, 3, [b"an order"]))}
    assert story_of(dirs, LostRecord("t", 0, 0, PRODUCER, number_of_value(b"an order"))).startswith(
        "stored but not served"
    )
    assert story_of(dirs, LostRecord("t", 0, 0, PRODUCER, 7)).startswith(
        "its offset was given to another record"
    )


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
        ((election(2, 1, (1,)),), ""),
        ((FIRST,), f"{HELD}; no other leader was elected since"),
        ((FIRST, CLEAN), f"{HELD}; since then only clean elections: 2 in epoch 4"),
        (
            (FIRST, LEADERLESS, UNCLEAN, election(6, 3, (2, 3))),
            f"{HELD}; epoch 5 began uncleanly with leader 2 at 2023-11-14 22:13:20.005Z (a kill)",
        ),
        (
            (FIRST, CLEAN, UNCLEAN),
            f"{HELD}; epoch 5 began uncleanly with leader 2 at 2023-11-14 22:13:20.005Z (a kill)"
            "; between them led 2 in epoch 4",
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
        f"stored but not served: replica 3 still has it, {tmp_path}/b3/t-0/{SEGMENT} at byte 0; {HELD}; "
        "epoch 5 began uncleanly with leader 2 at 2023-11-14 22:13:20.005Z (a kill), to whose log replica 1 "
        "had to be cut"
    )


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
