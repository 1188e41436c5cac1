import msgpack

from holdfast.protocol.record_batch import Record
from holdfast.raft.core.control_records import (
    LEADER_CHANGE_KEY,
    LeaderChangeRecord,
    decode_leader_change,
    encode_leader_change,
)


def test_leader_change_comes_back_and_other_control_records_are_none() -> None:
    change = LeaderChangeRecord(2, (1, 2, 3), (2, 3))
    value = encode_leader_change(change)
    assert decode_leader_change(Record(0, 0, LEADER_CHANGE_KEY, value)) == change
    assert decode_leader_change(Record(0, 0, b"\x00\x00\x00\x03", value)) is None


def test_a_leader_change_of_an_earlier_build_names_no_directories() -> None:
    value = msgpack.packb([2, [1, 2, 3], [2, 3]])
    change = decode_leader_change(Record(0, 0, LEADER_CHANGE_KEY, value))
    assert change == LeaderChangeRecord(2, (1, 2, 3), (2, 3), directories=())
