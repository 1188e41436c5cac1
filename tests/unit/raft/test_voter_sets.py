from holdfast.protocol.record_batch import Record
from holdfast.raft.core.control_records import (
    SNAPSHOT_HEADER_KEY,
    VOTERS_KEY,
    SnapshotHeaderRecord,
    Voter,
    VoterDirectory,
    VotersRecord,
    decode_snapshot_control,
    decode_voters,
    encode_snapshot_control,
    encode_voters,
)
from holdfast.raft.core.voter_sets import VoterSets, parse_endpoint, with_voter, without_voter

ONE, TWO, THREE = (Voter(id, bytes([id]) * 16, f"c{id}", 9000 + id) for id in (1, 2, 3))


def test_the_latest_set_counts_and_goes_with_the_record_that_names_it() -> None:
    """K30."""
    sets = VoterSets([(5, (ONE,))])
    sets.append(9, (ONE, TWO))
    assert (sets.latest, sets.latest_offset) == ((ONE, TWO), 9)
    assert (sets.below(9), sets.below(10), sets.below(5)) == ((ONE,), (ONE, TWO), ())
    sets.truncate_to(9)
    assert (sets.latest, sets.latest_offset) == ((ONE,), 5)
    sets.truncate_to(5)
    assert (sets.latest, sets.latest_offset) == ((), -1)


def test_a_set_changes_by_one_voter_and_stays_in_order() -> None:
    assert with_voter((ONE, THREE), TWO) == (ONE, TWO, THREE)
    assert without_voter((ONE, TWO, THREE), 2) == (ONE, THREE)
    assert VoterSets([(0, (ONE, TWO))]).find(2) == TWO
    assert VoterSets([(0, (ONE, TWO))]).find(3) is None


def test_an_endpoint_has_a_host_and_a_port() -> None:
    assert parse_endpoint("c1:9093") == ("c1", 9093)
    assert parse_endpoint("::1:9093") == ("::1", 9093)
    long = "c" * 256 + ":1"
    for text in (None, "", "c1", ":9093", "c1:", "c1:0", "c1:65536", "c1:-1", "c1:9 3", "c1:²", long):
        assert parse_endpoint(text) is None


def test_records_of_a_configured_quorum_are_those_of_earlier_builds_byte_by_byte() -> None:
    """Two arrays and a number more in each would be a difference that an earlier build never made."""
    rows = (VoterDirectory(1, b"d" * 16),)
    plain = encode_voters(VotersRecord(rows))
    assert plain == b"\x91\x91\x92\x01\xc4\x10" + b"d" * 16
    header = SnapshotHeaderRecord(7, (1,), rows)
    assert encode_snapshot_control(header) == b"\x93\x07\x91\x01" + plain[1:]


def test_records_that_name_the_voters_come_back() -> None:
    record = VotersRecord((VoterDirectory(1, ONE.directory_id),), 1, (ONE,))
    assert decode_voters(Record(0, 0, VOTERS_KEY, encode_voters(record))) == record
    header = SnapshotHeaderRecord(7, (1,), (VoterDirectory(1, ONE.directory_id),), (ONE,))
    value = encode_snapshot_control(header)
    assert decode_snapshot_control(Record(0, 0, SNAPSHOT_HEADER_KEY, value)) == header
