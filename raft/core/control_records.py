"""Control records of the metadata log: LeaderChange, the first batch of every raft epoch (K12), and Voters,
which names the voters' directories (K8); and those of a snapshot, its first and its last record (K15).

The key is Kafka's (version, type); the value is msgpack in schema order, like metadata records.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

import msgpack

from holdfast.protocol.record_batch import Record, decode_records
from holdfast.protocol.schema.fields import (
    Attachment,
    array,
    array_of,
    decode_message,
    encode_message,
    field,
    int16,
    int32,
    int64,
    message,
    string,
    uuid,
)
from holdfast.runtime.api import Buffer

_KEY = struct.Struct(">hh")
#: In the key, by which readers find a type: it stays.
_KEY_VERSION = 0
#: Of the fields: a record of an earlier build lacks later ones, and an earlier build passes them over.
_VERSION = 2
LEADER_CHANGE = 2
SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
VOTERS = 6


@message
class VoterDirectory:
    """The directory under which a voter counts."""

    voter_id: int = field(int32, "Voter.")
    directory_id: bytes = field(uuid, "Its directory.")


@message
class Voter:
    """One voter of a set in the log (K30)."""

    voter_id: int = field(int32, "Voter.")
    directory_id: bytes = field(uuid, "The directory under which it counts.")
    host: str = field(string, "Where the other nodes reach it.")
    port: int = field(int32, "Its port.")


@message
class LeaderChangeRecord:
    """A voter became the leader of the batch's epoch."""

    leader_id: int = field(int32, "The leader.")
    voters: tuple[int, ...] = field(array(int32), "All voters, ascending.")
    granting_voters: tuple[int, ...] = field(array(int32), "Voters that voted for it, ascending.")
    directories: tuple[VoterDirectory, ...] = field(
        array_of(VoterDirectory),
        "Directories of the voters that are known, by voter (K8).",
        since=1,
        default=(),
    )


@message
class VotersRecord:
    """A voter's directory became known, or is replaced; or the log takes over which nodes are voters, or has
    another set from here on (K30). Repeats what stays."""

    directories: tuple[VoterDirectory, ...] = field(array_of(VoterDirectory), "By voter.")
    kraft_version: int = field(
        int16,
        "1: a voter that has this notes in its quorum-state that the log may name the voters, so that no "
        "earlier build starts with it.",
        since=2,
        default=0,
    )
    voters: tuple[Voter, ...] = field(
        array_of(Voter),
        "The voters from this record on, by id; empty: as before.",
        since=2,
        default=(),
    )


@message
class SnapshotHeaderRecord:
    """The first record of a snapshot: what the log below its offset said of the voters."""

    timestamp_ms: int = field(int64, "Wall time when it was made.")
    voters: tuple[int, ...] = field(array(int32), "All voters, ascending.")
    directories: tuple[VoterDirectory, ...] = field(
        array_of(VoterDirectory), "Directories of the voters that are known, by voter (K8)."
    )
    voter_set: tuple[Voter, ...] = field(
        array_of(Voter), "The voters, by id, when the log names them (K30).", since=2, default=()
    )


@message
class SnapshotFooterRecord:
    """The last record of a snapshot: without it, the file is half written."""

    value_count: int = field(int64, "Records between header and footer.")
    crc32c: int = field(int64, "Of all bytes before this batch.")


#: key of every SnapshotHeader record
SNAPSHOT_HEADER_KEY = _KEY.pack(_KEY_VERSION, SNAPSHOT_HEADER)
#: key of every SnapshotFooter record
SNAPSHOT_FOOTER_KEY = _KEY.pack(_KEY_VERSION, SNAPSHOT_FOOTER)
#: key of every LeaderChange record
LEADER_CHANGE_KEY = _KEY.pack(_KEY_VERSION, LEADER_CHANGE)
#: key of every Voters record
VOTERS_KEY = _KEY.pack(_KEY_VERSION, VOTERS)


def directory_rows(directories: Mapping[int, bytes]) -> tuple[VoterDirectory, ...]:
    """The rows of a record for `{voter: directory id}`."""
    return tuple(VoterDirectory(*item) for item in sorted(directories.items()))


def encode_leader_change(record: LeaderChangeRecord) -> bytes:
    """The value of a LeaderChange record."""
    return _encode(record)


def encode_voters(record: VotersRecord) -> bytes:
    """The value of a Voters record."""
    return _encode(record)


def encode_snapshot_control(record: SnapshotHeaderRecord | SnapshotFooterRecord) -> bytes:
    """The value of a snapshot's first or last record."""
    return _encode(record)


def _encode(
    record: LeaderChangeRecord | VotersRecord | SnapshotHeaderRecord | SnapshotFooterRecord,
) -> bytes:
    # As earlier builds write it, unless it says what they cannot: the log of a quorum whose voters come from
    # the configuration stays as it was, byte by byte.
    named = getattr(record, "kraft_version", 0) or getattr(record, "voter_set", ())
    packed: bytes = msgpack.packb(encode_message(record, _VERSION if named else 1, Attachment()))
    return packed


def decode_leader_change(record: Record) -> LeaderChangeRecord | None:
    """The LeaderChange in a control record, None for another type. Raises: SchemaError, ValueError."""
    if record.key != LEADER_CHANGE_KEY or record.value is None:
        return None
    return decode_message(LeaderChangeRecord, msgpack.unpackb(record.value), _VERSION, memoryview(b""))


def decode_voters(record: Record) -> VotersRecord | None:
    """The Voters in a control record, None for another type. Raises: SchemaError, ValueError."""
    if record.key != VOTERS_KEY or record.value is None:
        return None
    return decode_message(VotersRecord, msgpack.unpackb(record.value), _VERSION, memoryview(b""))


def decode_snapshot_control(record: Record) -> SnapshotHeaderRecord | SnapshotFooterRecord | None:
    """A snapshot's header or footer, None for another type. Raises: SchemaError, ValueError."""
    if record.value is None:
        return None
    if record.key == SNAPSHOT_HEADER_KEY:
        return decode_message(SnapshotHeaderRecord, msgpack.unpackb(record.value), _VERSION, memoryview(b""))
    if record.key == SNAPSHOT_FOOTER_KEY:
        return decode_message(SnapshotFooterRecord, msgpack.unpackb(record.value), _VERSION, memoryview(b""))
    return None


class VoterNews(NamedTuple):
    """What a control batch says of the voters, as its last record does."""

    #: {voter: directory id}; empty when none is named (K8)
    directories: dict[int, bytes]
    #: of the quorum's rules: 1 when the log may name the voters (K30)
    kraft_version: int = 0
    #: the voters from here on, by id; empty for the same as before
    voters: tuple[Voter, ...] = ()


NO_NEWS = VoterNews({})


def voter_news_in(control_batch: Buffer) -> VoterNews:
    """What a control batch says of the voters. Raises: CorruptBatch, SchemaError, ValueError."""
    directories: dict[int, bytes] = {}
    kraft_version = 0
    voters: tuple[Voter, ...] = ()
    for record in decode_records(control_batch):
        named = decode_leader_change(record) or decode_voters(record)
        if named is not None and named.directories:
            directories = {row.voter_id: row.directory_id for row in named.directories}
        if isinstance(named, VotersRecord):
            kraft_version, voters = max(kraft_version, named.kraft_version), named.voters or voters
    return VoterNews(directories, kraft_version, voters)


def directories_in(control_batch: Buffer) -> dict[int, bytes]:
    """`{voter: directory id}` as the last record of a control batch names them; empty when none does. Raises:
    CorruptBatch, SchemaError, ValueError."""
    return voter_news_in(control_batch).directories
