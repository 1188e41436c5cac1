"""What a run tells of the records that it lost, out of its own history."""

from contextlib import closing
from pathlib import Path

from holdfast.client.core.history import RowWriter
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.core.poll_rows import Polled, PollRows
from holdfast.drills.outcome import LostRecord
from holdfast.drills.story import add_load, loss_stories, verdict_row
from holdfast.durability.verdict import Verdict
from holdfast.report.history import History, append_rows, read_history

ROWS = (
    {"kind": "run", "t_ms": 0, "wall_ms": 1_700_000_000_000, "mono_ns": 10**9},
    {"kind": "partition", "t_ms": -50, "topic": "t", "partition": 0, "leader": 1, "leader_epoch": 0,
     "isr": [1, 2, 3], "why": [], "is_unclean": False},
    {"kind": "fault", "t_ms": 500, "until_ms": 3000, "target": "broker-1", "fault": "kill -9",
     "text": "kill -9 broker-1"},
    {"kind": "partition", "t_ms": 2000, "topic": "t", "partition": 0, "leader": 3, "leader_epoch": 1,
     "isr": [3], "why": ["nothing else was there"], "is_unclean": True},
)  # fmt: skip


def test_a_lost_record_has_its_election_and_the_faults_near_it(tmp_path: Path) -> None:
    append_rows(tmp_path / "history.jsonl", ROWS)
    lost = [
        LostRecord("t", 0, 17, "c:p:17", leader_epoch=0, acked_ns=2 * 10**9),
        LostRecord("u", 0, 17, "c:p:18"),
    ]
    told, less = loss_stories(tmp_path / "history.jsonl", lost)
    assert told == (
        "acknowledged in epoch 0 by leader 1, whose ISR was 1, 2, 3; epoch 1 began uncleanly with leader 3 "
        "at 2023-11-14 22:13:22.000Z (nothing else was there; before it ISR: 1, 2, 3, ELR: empty); "
        "acknowledged at 2023-11-14 22:13:21.000Z; "
        "what was done to the cluster meanwhile: kill -9 broker-1 at 2023-11-14 22:13:20.500Z "
        "(healed at 2023-11-14 22:13:23.000Z)"
    )
    assert less.startswith("what was done to the cluster: kill -9 broker-1 at ")


def test_what_a_verdict_shows_has_the_times_of_the_run_and_lost_records_their_stories(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    append_rows(file, ROWS)
    samples = {
        "lost": [{"topic": "t", "partition": 0, "offset": 17}],
        "duplicated": [{"topic": "t", "partition": 0, "offset": 3, "time_ns": 1_500_000_000}],
    }
    verdict = Verdict({"lost": 40, "duplicated": 1}, samples, {}, doubts=("a mark",), notes=("a note",))
    lost = [LostRecord("t", 0, offset, "v", 0, 2 * 10**9, given_in=1) for offset in range(17, 57)]
    row = verdict_row(verdict, file, lost)
    assert (row["exit_code"], row["reasons"], row["notes"]) == (4, ["a mark"], ["a note"])
    assert row["samples"]["duplicated"] == [{"topic": "t", "partition": 0, "offset": 3, "t_ms": 500.0}]
    assert len(row["samples"]["lost"]) == 32
    first = row["samples"]["lost"][0]
    assert (first["offset"], first["value"], first["t_ms"]) == (17, "v", 1000.0)
    assert "epoch 1 began uncleanly with leader 3" in first["story"]
    assert verdict_row(verdict, file)["samples"]["lost"] == [{"topic": "t", "partition": 0, "offset": 17}]


def test_what_consumers_were_given_is_no_load(tmp_path: Path) -> None:
    """A soak's consumers write it into the folder of the producers' ledgers."""
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    sends = RowWriter("run", "p")
    answer = sends.complete([0], "t", 0, DeliveryOutcome.OK, 0, 1, None, 2_000_000)
    (ledger / "run.p.jsonl").write_text(sends.invoke(0, "t", 0, 7, -1, 1_000_000) + answer)
    polls = PollRows("run", "c", "x")
    (ledger / "run.c.polls.jsonl").write_text(polls.poll([Polled("t", 0, 5, None, ())], 5))
    file = tmp_path / "history.jsonl"
    with closing(History(file, "a run", 1)) as history:
        add_load(history, ledger)
    assert [row["acked"] for row in read_history(file) if row["kind"] == "load"] == [1]
