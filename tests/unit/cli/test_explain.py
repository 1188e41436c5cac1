"""`holdfast explain`: stories told from a metadata log that the real controller core wrote."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.__main__ import main
from holdfast.cli.inspect.metadata_log import logged_records
from holdfast.cli.inspect.partition_elections import elections_of
from holdfast.cli.inspect.partition_story import LoggedRecord, Step, Story, story_of
from holdfast.cli.inspect.sentences import headline, sentences
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.history import CommittedRecord, MetadataHistory
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import (
    PartitionChangeRecord,
    ReplicasOfflineRecord,
    decode_record,
    encode_record,
)
from holdfast.metadata.snapshot import MetadataState, snapshot_values
from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.raft.core.control_records import SnapshotHeaderRecord
from holdfast.raft.core.snapshot_format import SnapshotEncoder, SnapshotId
from holdfast.scenario.controller_commands import Scenario
from holdfast.scenario.grammar import Command
from holdfast.storage.core.files import METADATA_FOLDER

T = "partition t-0 replicas=(1,2,3) min_isr=2"
LEADERLESS = "partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=()"
MANAGER_OFF = "config cluster unclean.recovery.manager.enabled=false"
LOGS = (
    "log_info 1 t-0 last_epoch=3 end_offset=11",
    "log_info 2 t-0 last_epoch=3 end_offset=10",
    "log_info 3 t-0 last_epoch=2 end_offset=99",
)


def played(*lines: str) -> Scenario:
    scenario = Scenario()
    for line in ("broker 1 2 3 4", *lines):
        scenario.execute(Command(line, "a test"))
    return scenario


def logged(scenario: Scenario) -> list[LoggedRecord]:
    return [
        LoggedRecord(entry.offset, 1_000_000 + entry.offset, decode_record(entry.value))
        for entry in scenario.quorum.entries
    ]


def story(*lines: str) -> Story:
    return story_of(logged(played(*lines)), "t", 0)


def last_change(told: Story) -> Step:
    return [step for step in told.steps if isinstance(step.logged.record, PartitionChangeRecord)][-1]


@pytest.mark.parametrize(
    ("lines", "change", "expected"),
    [
        (
            (T, "fence 1"),
            "leader 1@0 -> 2@1, isr (1,2,3) -> (2,3)",
            [
                "Why: broker 1 is gone: its listener refuses connections.",
                "Broker 2 leads: it is active and in the ISR. Candidates in order of preference: 1, 2, 3; "
                "rejected: 1 (fenced).",
                "Writes go on; one more replica that leaves (2,3) stops them.",
            ],
        ),
        (
            (T, "fence 3", "stop 2"),
            "isr (1,2) -> (1), elr () -> (2)",
            [
                "Why: broker 2 stops and no longer leads any partition.",
                "Broker 2 left the ISR below min ISR and stays eligible: the log is complete up to the high "
                "watermark.",
                "The high watermark stands still until 2 replicas are in sync: writes with acks=all are "
                "refused.",
                "Records acknowledged before are on 1, 2.",
            ],
        ),
        (
            (T, "fence 3", "fence 2", "expire 1"),
            "leader 1@0 -> none@1, isr (1) -> (), elr (2) -> (1,2)",
            [
                "Why: the session of broker 1 ended.",
                "No replica may lead. Candidates in order of preference: 1, 2, 3; rejected: 1 (fenced), "
                "2 (fenced), 3 (fenced).",
                "Broker 1 left the ISR below min ISR and stays eligible: the log is complete up to the high "
                "watermark.",
                "No replica leads: reads and writes wait.",
                "The first of (1,2) that is active leads at once, and nothing is lost.",
            ],
        ),
        (
            (f"{LEADERLESS} elr=(2,3)", "fence 2", "register 2 unclean"),
            "leader none@0 -> 3@1, isr () -> (3), elr (2,3) -> (), last_known_elr () -> (2)",
            [
                "Why: broker 2 registered after an unclean shutdown.",
                "Broker 3 leads: the ISR is empty and it is in the ELR, so it has all that was acknowledged. "
                "Candidates in order of preference: 1, 2, 3; rejected: 1 (not in the ELR), 2 (fenced).",
                "Broker 2 may have lost the end of its log; the seat is remembered.",
                "Broker 3 is in the ISR again and needs no eligibility.",
                "The high watermark stands still until 2 replicas are in sync: writes with acks=all are "
                "refused.",
                "Records acknowledged before are on 3.",
            ],
        ),
        (
            (f"{LEADERLESS} last_known_elr=(2,3)", *LOGS),
            "leader none@0 -> 1@1, isr () -> (1), recovering",
            [
                "Why: the recovery manager compared logs: 1 ends at 11 in epoch 3, 2 ends at 10 in epoch 3, "
                "3 ends at 99 in epoch 2.",
                "Broker 1 leads: its log ends last of those that were compared. Candidates in order of "
                "preference: 1, 2, 3.",
                "Acknowledged records may be lost: the leader was elected without proof.",
                "The high watermark stands still until 2 replicas are in sync: writes with acks=all are "
                "refused.",
            ],
        ),
        (
            (f"{LEADERLESS} elr=(1) last_known_elr=(2)", "fence 1", "elect designated t-0 leader=3"),
            None,
            [
                "Why: an operator designated broker 3.",
                "Broker 3 leads: an operator chose it, and nothing proves that its log is complete. "
                "Candidates in order of preference: 1, 2, 3.",
                "Broker 1 was passed over; the seat is remembered until the ISR reaches min ISR.",
                "Acknowledged records may be lost: the leader was elected without proof.",
                "The high watermark stands still until 2 replicas are in sync: writes with acks=all are "
                "refused.",
            ],
        ),
        (
            (f"{LEADERLESS} last_known_elr=(2,3) last_known_leader=3", MANAGER_OFF),
            None,
            [
                "Why: the recovery manager was switched off.",
                "Broker 3 leads: it led last; its log was not compared. Candidates in order of preference: "
                "1, 2, 3; rejected: 1 (not in the ELR), 2 (lost its seat to an unclean shutdown).",
                "ELR () and last known ELR (2,3) are forgotten.",
                "Acknowledged records may be lost: the leader was elected without proof.",
                "The high watermark stands still until 2 replicas are in sync: writes with acks=all are "
                "refused.",
            ],
        ),
        (
            (f"{LEADERLESS} elr=(2)", "fence 2", "register 2 unclean"),
            "elr (2) -> (), last_known_elr () -> (2)",
            [
                "Why: broker 2 registered after an unclean shutdown.",
                "Broker 2 may have lost the end of its log; the seat is remembered.",
                "No replica leads: reads and writes wait.",
                "No complete log is left for sure; those of (2) may be. The recovery manager compares logs, "
                "or an operator designates a leader.",
            ],
        ),
        (
            (f"{LEADERLESS} last_known_elr=(4)".replace("(1,2,3)", "(1,2,4)"), "unregister 4"),
            "last_known_elr (4) -> ()",
            [
                "Why: broker 4 was unregistered.",
                "Broker 4 has no seat any more.",
                "No replica leads: reads and writes wait.",
                "No replica is known to have a complete log: an election now may lose acknowledged records.",
            ],
        ),
        (
            (T, "alter t-0 isr=(1)", "config topic t min.insync.replicas=1"),
            "elr (2,3) -> (), min_isr 2 -> 1",
            [
                "Why: min.insync.replicas was configured.",
                "The ISR has reached min ISR 1, so no replica outside it is eligible any more.",
                "Effective min ISR is 1 from here on, for controller and leader alike.",
                "Writes go on; one more replica that leaves (1) stops them.",
            ],
        ),
        (
            (T, "alter t-0 isr=(1)", "feature elr=0"),
            "elr (2,3) -> ()",
            [
                "Why: eligible leader replicas were switched off.",
                "Eligible leader replicas are off, so both sets are empty.",
                "The high watermark stands still until 2 replicas are in sync: writes with acks=all are "
                "refused.",
                "Records acknowledged before are on 1.",
            ],
        ),
        (
            (T, "reassign t-0 replicas=(1,2,4)"),
            None,
            [
                "Why: a reassignment was requested.",
                "A reassignment runs: it ends once (4) are in the ISR and enough of the final replicas are "
                "in sync for min ISR.",
            ],
        ),
        (
            (T, "reassign t-0 replicas=(2,4,3)", "alter t-0 isr=(1,2,3,4)"),
            None,
            [
                "Why: leader 1 requested it.",
                "Broker 2 leads: it is active and in the ISR. Candidates in order of preference: 2, 4, 3; "
                "rejected: 1 (no replica any more).",
                "The reassignment has ended: the replicas are (2,4,3).",
            ],
        ),
    ],
)
def test_each_change_is_told_with_its_cause_and_what_follows(
    lines: tuple[str, ...], change: str | None, expected: list[str]
) -> None:
    """Issue 3 item 5."""
    step = last_change(story(*lines))
    if change is not None:
        assert headline(step) == change
    assert sentences(step) == expected


def test_what_happened_around_the_partition_is_told_in_order() -> None:
    told = story(
        T,
        "partition u-0 replicas=(4) min_isr=1",
        "stop 3",
        "register 3 unclean",
        "unfence 3",
        "fence 4",
        "unfence 4",
        "config cluster min.insync.replicas=2",
        "config topic t unclean.leader.election.enable=true",
        "config topic t segment.bytes=2048",
        "config topic t unclean.leader.election.enable=",
        "feature metadata.version=0",
        "feature elr=0",
        "delete t",
    )
    lines = [headline(step) for step in told.steps]
    assert lines[0].startswith("created: replicas (1,2,3), leader=1@0")
    assert lines[1:] == [
        "isr (1,2,3) -> (1,2)",
        "broker 3 was fenced",
        "broker 3 registered after an unclean shutdown, epoch 19",
        "broker 3 was unfenced",
        "cluster configured: min.insync.replicas=2",
        "topic t configured: unclean.leader.election.enable=true",
        "topic t configured: unclean.leader.election.enable removed",
        "feature eligible.leader.replicas.version is at level 0",
        "deleted with its topic",
    ]
    assert told.complaints == ()


def test_a_change_of_another_partition_of_the_topic_is_not_told() -> None:
    told = story(T, "partition t-1 replicas=(3,2,4) min_isr=2", "fence 4", "fence 3")
    changes = [step for step in told.steps if isinstance(step.logged.record, PartitionChangeRecord)]
    assert list(map(headline, changes)) == ["isr (1,2,3) -> (1,2)"]
    assert told.complaints == ()


def test_a_replica_that_is_lost_and_fetched_anew_is_told_also_where_no_set_changes() -> None:
    told = story(
        T,
        "fence 3",
        "partition t-1 replicas=(1,2,3) min_isr=2",
        "offline 3 t-0",
        "offline 3 t-1",
        "renew 3 t-0",
    )
    steps = [step for step in told.steps if isinstance(step.logged.record, ReplicasOfflineRecord)]
    assert [(headline(step), sentences(step)) for step in steps] == [
        ("broker 3 lost its replica: damaged, or in a log dir that failed", []),
        ("broker 3 fetches its replica anew", []),
    ]
    assert told.complaints == ()


def test_a_topic_made_anew_is_another_life() -> None:
    told = story(T, "fence 1", "delete t", T.replace("(1,2,3)", "(2,3)"), "fence 3")
    lives = list(dict.fromkeys(step.topic_id for step in told.steps))
    assert len(lives) == 2
    assert [step.topic_id for step in told.steps] == sorted(
        (step.topic_id for step in told.steps), key=lives.index
    )
    ended = [step for step in told.steps if step.after is None]
    assert [step.topic_id for step in ended] == lives[:1]


def test_one_epoch_is_what_began_it_and_what_happened_in_it() -> None:
    told = story(T, "fence 1", "fence 3", "fence 2").of_epoch(1)
    assert [headline(step) for step in told.steps] == [
        "leader 1@0 -> 2@1, isr (1,2,3) -> (2,3)",
        "broker 1 was fenced",
        "isr (2,3) -> (2), elr () -> (3)",
        "broker 3 was fenced",
    ]


def test_a_record_without_a_decision_is_told_all_the_same() -> None:
    """Old records carry none."""
    log = logged(played(T, "fence 1"))
    bare = [
        LoggedRecord(
            one.offset,
            one.timestamp_ms,
            PartitionChangeRecord(one.record.topic_id, 0, one.record.isr, one.record.leader, *[None] * 9)
            if isinstance(one.record, PartitionChangeRecord)
            else one.record,
        )
        for one in log
    ]
    step = last_change(story_of(bare, "t", 0))
    assert headline(step) == "leader 1@0 -> 2@1, isr (1,2,3) -> (2,3)"
    assert sentences(step)[0] == (
        "Why: this record says nothing that this version understands; it may be an old one."
    )


def test_a_log_that_does_not_fit_its_own_rules_is_complained_about() -> None:
    log = logged(played(T, "fence 1"))
    told = story_of([one for one in log if one.record != log[2].record], "t", 0)
    assert told.complaints


# --- the command -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A node's metadata log of one segment, one batch a record."""
    made = tmp_path / METADATA_FOLDER
    made.mkdir()
    entries = played(T, "fence 1").quorum.entries
    (made / f"{0:020}.log").write_bytes(b"".join(_batch(entry.offset, entry.value) for entry in entries))
    (tmp_path / "node.log").write_text("no segment\n")
    return tmp_path


def _batch(offset: int, value: bytes) -> bytes:
    record = Record(offset, 1_700_000_000_000 + offset, None, value)
    return encode_batch([record], base_offset=offset, leader_epoch=1)


def explain(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, arguments)])


def test_a_folder_is_told_in_text(folder: Path) -> None:
    for place in (folder, folder / METADATA_FOLDER):
        result = explain("t", 0, "--metadata-dir", place)
        assert result.exit_code == 0
        lines = result.stdout.splitlines()
        assert lines[0].startswith("t-0, topic id ")
        assert lines[1].startswith("offset ")
        assert "  2023-11-14 22:13:20.0" in lines[1]
        assert "    Why: broker 1 is gone: its listener refuses connections." in lines


def test_a_folder_is_told_as_json(folder: Path) -> None:
    result = explain("t", 0, "--metadata-dir", folder, "--output", "json", "--at-epoch", 1)
    answer = json.loads(result.stdout)
    assert (answer["schema"], answer["ok"]) == ("holdfast.explain/1", True)
    row = answer["data"][0]
    assert row["change"] == "leader 1@0 -> 2@1, isr (1,2,3) -> (2,3)"
    assert (row["before"]["isr"], row["after"]["isr"], row["after"]["leader"]) == ([1, 2, 3], [2, 3], 2)
    assert row["decision"] == {
        "cause": "connection_refused",
        "cause_broker": 1,
        "reason": "isr",
        "candidates": [1, 2, 3],
        "rejected": [{"replica": 1, "because": "fenced"}],
        "sets_rule": "cleared_at_min_isr",
        "logs": [],
        "predicted_loss": None,
        "most_lost": None,
    }


def test_a_torn_end_is_warned_of_and_the_rest_is_told(folder: Path) -> None:
    segment = folder / METADATA_FOLDER / f"{0:020}.log"
    segment.write_bytes(segment.read_bytes()[:-3])
    result = explain("t", 0, "--metadata-dir", folder)
    assert result.exit_code == 0
    assert "ends in a torn batch" in result.stderr
    assert "Why: broker 1 is gone" in result.stdout


def test_an_invalid_batch_before_the_last_segment_is_an_error(folder: Path) -> None:
    segment = folder / METADATA_FOLDER / f"{0:020}.log"
    segment.write_bytes(segment.read_bytes()[:-3])
    (folder / METADATA_FOLDER / f"{900:020}.log").write_bytes(b"")
    result = explain("t", 0, "--metadata-dir", folder)
    assert result.exit_code == 1
    assert "look at it with dump-log" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("x", 0), "the metadata log does not name it"),
        (("t", 5), "the metadata log does not name it"),
        (("t", 0, "--at-epoch", 7), "t-0 has had no leader epoch 7"),
    ],
)
def test_what_never_was_is_an_error(folder: Path, arguments: tuple[object, ...], text: str) -> None:
    result = explain(*arguments, "--metadata-dir", folder)
    assert (result.exit_code, text in result.stderr) == (1, True)


def test_a_folder_without_a_log_is_an_error(tmp_path: Path) -> None:
    result = explain("t", 0, "--metadata-dir", tmp_path)
    assert result.exit_code == 1
    assert "holds no metadata log; give the metadata.log.dir of a node" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("t", 0),
        ("t", 0, "--metadata-dir", ".", "--bootstrap-server", "127.0.0.1:1"),
        ("t", 0, "--bootstrap-server", "nonsense"),
        ("t", -1, "--metadata-dir", "."),
    ],
)
def test_wrong_usage_exits_2(arguments: tuple[object, ...]) -> None:
    assert explain(*arguments).exit_code == 2


# --- a trimmed log (K15) -------------------------------------------------------------------------------


def trimmed(folder: Path, *, is_whole: bool = True) -> int:
    """Leave a snapshot and the log behind it, as a node does; its offset."""
    place = folder / METADATA_FOLDER
    segment = place / f"{0:020}.log"
    records = list(logged_records(segment.read_bytes()))
    image, history = MetadataImage(), MetadataHistory()
    for logged in records[:-1]:
        history.note(image, [CommittedRecord(logged.offset, logged.timestamp_ms, logged.record)])
        delta = MetadataDelta(image)
        delta.replay(logged.record, logged.offset, 1)
        image = delta.apply()
    offset = records[-1].offset
    state = MetadataState(MetadataDelta(image).apply(offset), history)
    id = SnapshotId(offset, 1)
    encoder = SnapshotEncoder(id, 5)
    parts = [encoder.header(SnapshotHeaderRecord(5, (1, 2, 3), ()))]
    parts += [encoder.values([value]) for value in snapshot_values(state)]
    parts += [encoder.footer()] if is_whole else []
    (place / id.file_name).write_bytes(b"".join(parts))
    last = _batch(offset, encode_record(records[-1].record))
    segment.unlink()
    (place / f"{offset:020}.log").write_bytes(last)
    return offset


def test_a_trimmed_log_is_told_from_its_snapshot_on_with_the_last_changes(folder: Path) -> None:
    whole = explain("t", 0, "--metadata-dir", folder).stdout.splitlines()
    offset = trimmed(folder)
    result = explain("t", 0, "--metadata-dir", folder)
    assert result.exit_code == 0
    assert f"a snapshot holds what is below offset {offset}" in result.stderr
    told = result.stdout.splitlines()
    assert "    Why: broker 1 is gone: its listener refuses connections." in told
    assert [line for line in told if "created: " in line] == [line for line in whole if "created: " in line]


def test_a_log_that_begins_later_without_a_whole_snapshot_is_unreadable(folder: Path) -> None:
    trimmed(folder, is_whole=False)
    result = explain("t", 0, "--metadata-dir", folder)
    assert result.exit_code == 1
    assert "is cut off" in result.stderr


def test_dump_log_shows_a_snapshot_in_words_and_notices_damage(folder: Path) -> None:
    offset = trimmed(folder)
    path = folder / METADATA_FOLDER / SnapshotId(offset, 1).file_name
    arguments = ["dump-log", "--cluster-metadata-decoder", "--files", str(path)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    for word in (
        "SnapshotHeader",
        "SnapshotStateRecord",
        "PartitionRecord",
        "PastChangeRecord",
        "SnapshotFooter",
    ):
        assert f'"type": "{word}"' in result.stdout
    content = path.read_bytes()
    for broken in (content[:-1], content[:200] + b"x" + content[201:], content[: len(content) // 2]):
        path.write_bytes(broken)
        assert CliRunner().invoke(main, arguments).exit_code == 1


# --- for the stories of lost records ----------------------------------------------------------------------


def test_each_leader_epoch_has_its_cause_and_its_isr_at_first_and_at_last() -> None:
    lines = ("config cluster unclean.leader.election.enable=true", MANAGER_OFF, T, "fence 3", "fence 2")
    told = elections_of(story(*lines, "fence 1", "register 1 unclean", "register 2 unclean", "unfence 2"))
    shown = [(one.leader_epoch, one.leader, one.first_isr, one.last_isr, one.is_unclean) for one in told]
    assert shown == [
        (0, 1, (1, 2, 3), (1,), False),
        (1, None, (), (), False),
        (2, 2, (2,), (2,), True),
    ]
    assert [(one.last_elr, one.last_known_elr) for one in told[:2]] == [((2,), ()), ((), (1, 2))]
    assert [one.log_end for one in told] == [None, None, None]
