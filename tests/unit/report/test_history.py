"""The history of a run: what was written is read, also when its writer died."""

import json
from pathlib import Path

import pytest

from holdfast.client.core.history import RowWriter
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.report.history import History, append_rows, read_history
from holdfast.report.load import load_rows


def test_rows_come_back_by_time_behind_the_row_of_the_run(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    history = History(file, "a run", 7, {"elr": "on"})
    history.write(kind="note", t_ms=20, text="late")
    append_rows(file, [{"kind": "note", "t_ms": -5, "text": "before the run"}])
    rows = read_history(file)
    assert [row["t_ms"] for row in rows] == [0, -5, 20]
    assert (rows[0]["what"], rows[0]["seed"], rows[0]["settings"]) == ("a run", 7, {"elr": "on"})


def test_a_fault_is_one_row_from_its_begin_to_its_end(tmp_path: Path) -> None:
    history = History(tmp_path / "h", "a run", 1)
    history.fault_begins("kill -9", "broker-1", "kill -9 broker-1")
    history.fault_begins("power cut", "broker-2", "power cut: broker-2")
    history.fault_ends("broker-1")
    history.fault_ends("broker-3")
    history.close()
    healed, open_still = read_history(tmp_path / "h")[1:]
    if healed["target"] != "broker-1":
        healed, open_still = open_still, healed
    assert (healed["fault"], healed["target"]) == ("kill -9", "broker-1")
    assert healed["until_ms"] >= healed["t_ms"]
    assert (open_still["target"], open_still["until_ms"]) == ("broker-2", None)


def test_a_line_that_a_dead_writer_cut_is_passed_over_and_one_in_the_middle_is_not(tmp_path: Path) -> None:
    file = tmp_path / "h"
    History(file, "a run", 1)
    whole = file.read_text()
    file.write_text(whole + '{"kind": "note", "t_')
    assert len(read_history(file)) == 1
    file.write_text(whole + '{"kind": "note", "t_\n' + whole)
    with pytest.raises(ValueError, match="h:2 is no row"):
        read_history(file)


@pytest.mark.parametrize("text", ["", '{"kind": "invoke"}\n', "[]\n", '{"kind": "note", "t_ms": 1}\n'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "h").write_text(text)
    with pytest.raises(ValueError, match="history"):
        read_history(tmp_path / "h")


def test_sends_become_rates_and_latencies_by_interval(tmp_path: Path) -> None:
    rows = RowWriter("run", "p")
    ledger = tmp_path / "run.p.1.jsonl"
    second = 1_000_000_000
    lines = [rows.invoke(number, "t", 0, 1, -1, 1000 + number * second) for number in range(4)]
    for number, latency_ms in enumerate((10, 20, 30)):
        end = 1000 + number * second + latency_ms * 1_000_000
        lines.append(rows.complete([number], "t", 0, DeliveryOutcome.OK, number, 1, None, end))
    lines.append(rows.complete([3], "t", 0, DeliveryOutcome.FAIL, -1, -1, "X", 1000 + 3 * second))
    lines.append(rows.invoke(9, "other", 0, 1, -1, 1000))
    ledger.write_text("".join(lines) + '{"kind":"inv')
    found = load_rows([ledger], "t", mono_ns=1000)
    assert (found[0]["acked"], found[0]["p50_ms"], found[0]["t_ms"]) == (1, 10.0, 10.0)
    assert sum(row["acked"] for row in found) == 3
    assert sum(row["failed"] for row in found) == 1
    assert max(row["max_ms"] or 0 for row in found) == 30.0
    assert load_rows([ledger], "none", mono_ns=0) == []
    json.dumps(found)
