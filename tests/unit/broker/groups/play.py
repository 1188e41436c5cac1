"""A coordinator with a log in memory: broker 1 leads the only partition of the topic of the offsets.

What is appended is committed at once, unless `holds_back`; appends take until `finish_append` if
`appends_slowly`; the clock moves only by `pass_ms`.
"""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from immutables import Map

from holdfast.broker.core.events import (
    Append,
    Appended,
    AppendResult,
    CreateOffsetsTopic,
    Effect,
    GroupClient,
    GroupLogRead,
    GroupRequestReceived,
    MoveLogStart,
    ReadGroupLog,
    Respond,
    RespondInSteps,
)
from holdfast.broker.core.groups.config import GroupConfig
from holdfast.broker.core.groups.coordinator import GroupCoordinator
from holdfast.metadata.answer_steps import AnswerSteps
from holdfast.metadata.config_keys import BROKER_FILE_KEYS
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage, TopicImage
from holdfast.metadata.offsets_topic import OFFSETS_TOPIC_CONFIGS
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.committed_offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from holdfast.protocol.messages.groups import (
    GroupHeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from holdfast.protocol.record_batch import stamp
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from holdfast.runtime.stats import LogLine
from tests.unit.metadata.test_describe import IMAGE

OFFSETS_ID = b"o" * 16
KEY = PartitionId(OFFSETS_ID, 0)
T = IMAGE.topic_ids["t"]
WALL_AHEAD_MS = 1_700_000_000_000
STATIC: dict[str, Any] = {key.name: key.default for key in BROKER_FILE_KEYS}
#: As a consumer of topic `t` sends it.
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


def image_with_offsets() -> MetadataImage:
    (_, partition), *_ = IMAGE.topics[T].sorted_partitions()
    topic = TopicImage(OFFSETS_TOPIC, OFFSETS_ID, Map({0: replace(partition, leader=1)}))
    return replace(
        IMAGE,
        topics=IMAGE.topics.set(OFFSETS_ID, topic),
        topic_ids=IMAGE.topic_ids.set(OFFSETS_TOPIC, OFFSETS_ID),
    )


@dataclass
class Log:
    """What all coordinators of one play share."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0
    high_watermark: int = 0
    start: int = 0

    def append(self, batch: Any, count: int) -> int:
        head, rest = stamp(batch, self.end, 0)
        self.batches.append((self.end, head + bytes(rest)))
        self.end += count
        return self.end

    def read(self, start: int, end: int) -> bytes:
        return b"".join(batch for offset, batch in self.batches if start <= offset < end)


class Play:
    """One coordinator and what it answers."""

    def __init__(
        self,
        log: Log | None = None,
        *,
        epoch: int = 1,
        loads: bool = True,
        snapshot_records: int | None = None,
        **static: Any,
    ) -> None:
        """`static`: values of keys, with `_` for `.`."""
        self.now_ms = 1_000
        self.log = log or Log()
        self.image = image_with_offsets()
        self.is_session_over = False
        self.refusal = ErrorCode.NONE
        self.holds_back = False
        self.appends_slowly = False
        self.appends: list[Append] = []
        self.answers: dict[object, Any] = {}
        #: answers that are made in steps, by request
        self.in_steps: dict[object, AnswerSteps] = {}
        self.reads: list[ReadGroupLog] = []
        self.created: list[CreateOffsetsTopic] = []
        self.lines: list[LogLine] = []
        self.joins = 0
        self._outbox: list[Effect] = []
        self.partition = SimpleNamespace(
            key=KEY,
            topic_name=OFFSETS_TOPIC,
            leadership=SimpleNamespace(leader_epoch=epoch, start_offset=self.log.end),
            visible_high_watermark=self.log.end if loads else -1,
            high_watermark=self.log.end,
            log=SimpleNamespace(log_start_offset=self.log.start),
            check_produce=lambda acks: self.refusal,
        )
        self.partitions: dict[PartitionId, Any] = {KEY: self.partition}
        keys = {"group_initial_rebalance_delay_ms": 0, **static}
        config = GroupConfig.from_static(STATIC | {name.replace("_", "."): keys[name] for name in keys})
        if snapshot_records is not None:
            config = replace(config, snapshot_records_min=snapshot_records)
        self.coordinator = GroupCoordinator(
            config,
            self.partitions,
            {KEY: int(OFFSETS_TOPIC_CONFIGS["max.message.bytes"])},
            lambda: self.image,
            lambda now_ms: self.is_session_over,
            self._outbox,
        )
        self.coordinator.partition_changed(KEY, OFFSETS_TOPIC)
        self._carry_out()

    # --- what happens -------------------------------------------------------------------------------------

    def request(self, message: Any) -> str:
        """Ask; the answer is in `answers` under the returned name."""
        self.joins += 1
        name = f"request {self.joins}"
        client = GroupClient("client", "10.0.0.1", "A", f"{self.joins}")
        event = GroupRequestReceived(name, message, client, self.now_ms + WALL_AHEAD_MS)
        self.coordinator.request(event, self.now_ms)
        self._carry_out()
        return name

    def ask(self, message: Any) -> Any:
        """The answer, which must come at once."""
        return self.answers[self.request(message)]

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, tick by tick."""
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.coordinator.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.coordinator.tick(self.now_ms)
            self._carry_out()
        self.now_ms = end_ms

    def commit(self, offset: int | None = None) -> None:
        """The high watermark reaches this offset, the end of the log when none is given."""
        reached = self.log.end if offset is None else offset
        self.partition.high_watermark = self.partition.visible_high_watermark = reached
        self.coordinator.high_watermark_moved(KEY, self.now_ms)
        self._carry_out()

    def depose(self) -> None:
        """Another broker leads."""
        self.partition.leadership = None
        self.coordinator.partition_changed(KEY, OFFSETS_TOPIC)
        self._carry_out()

    def successor(self, **static: Any) -> "Play":
        """The coordinator after this one, which has the same log."""
        heir = Play(self.log, epoch=self.partition.leadership.leader_epoch + 1, **static)
        heir.joins = self.joins  # no member gets the id of another one
        return heir

    def _carry_out(self) -> None:
        while self._outbox:
            effect = self._outbox.pop(0)
            match effect:
                case Respond(reply_to, message):
                    assert reply_to not in self.answers, f"{reply_to} is answered twice"
                    self.answers[reply_to] = message
                case RespondInSteps(reply_to, steps):
                    self.in_steps[reply_to] = steps
                case Append():
                    self.appends.append(effect)
                    if not self.appends_slowly:
                        self._append(ErrorCode.NONE)
                case ReadGroupLog():
                    self.reads.append(effect)
                    records = self.log.read(effect.start_offset, effect.end_offset)
                    self.read(effect, records)
                case MoveLogStart(_, offset):
                    self.log.start = offset
                case CreateOffsetsTopic():
                    self.created.append(effect)
                case LogLine():
                    self.lines.append(effect)

    def finish_append(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """The oldest append under way is done, or refused."""
        self._append(code)
        self._carry_out()

    def _append(self, code: ErrorCode) -> None:
        append = self.appends.pop(0)
        ((key, epoch, header, batch),) = append.batches
        if code is ErrorCode.NONE:
            end = self.log.append(batch, header.record_count)
            result = AppendResult(key, epoch, end - header.record_count, end, len(batch))
            if not self.holds_back:
                self.partition.high_watermark = end
        else:
            result = AppendResult(key, epoch, -1, -1, 0, code)
        self.coordinator.appended(Appended(append.context, (result,)), self.now_ms)

    def read(self, effect: ReadGroupLog, records: bytes, problem: str | None = None) -> None:
        """The answer to a ReadGroupLog."""
        event = GroupLogRead(
            effect.key,
            effect.leader_epoch,
            effect.start_offset,
            records,
            problem,
            self.now_ms + WALL_AHEAD_MS,
        )
        self.coordinator.log_read(event, self.now_ms)

    # --- members ------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        protocols: tuple[tuple[str, bytes], ...] = (("range", SUBSCRIPTION),),
        instance: str | None = None,
        kind: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        needs_id: bool = False,
        skips: bool = False,
    ) -> str:
        rows = tuple(JoinGroupProtocol(*one) for one in protocols)
        return self.request(
            JoinGroupRequest(
                group, session_ms, rebalance_ms, member_id, instance, kind, rows, needs_id, skips
            )
        )

    def joined(self, name: str) -> JoinGroupResponse:
        """The answer to a join that succeeded."""
        answer = self.answers[name]
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.NONE, answer
        return answer

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        kind: str | None = None,
        protocol: str | None = None,
    ) -> str:
        rows = tuple(SyncGroupAssignment(*one) for one in (assignments or {}).items())
        return self.request(SyncGroupRequest("g", generation_id, member_id, instance, kind, protocol, rows))

    def synced(self, name: str) -> bytes:
        """The assignment of a sync that succeeded."""
        answer = self.answers[name]
        assert isinstance(answer, SyncGroupResponse)
        assert answer.error_code == ErrorCode.NONE, answer
        return answer.assignment

    def stable(self, count: int = 1, **how: Any) -> list[str]:
        """A stable group of so many members, the first one leads; their ids. Each has b"p<number>"."""
        waiting = [self.join(**how) for _ in range(count)]
        if count > 1:  # the first one was alone in a generation of its own, and joins again
            first = self.answers[waiting[0]].member_id
            waiting[0] = self.join(first, **how)
        answers = [self.joined(name) for name in waiting]
        ids = [answer.member_id for answer in answers]
        generation_id = answers[0].generation_id
        given = {one: b"p%d" % number for number, one in enumerate(ids)}
        names = [
            self.sync(one, generation_id, given if not number else None) for number, one in enumerate(ids)
        ]
        assert [self.synced(name) for name in names] == list(given.values())
        return ids

    def beat(self, member_id: str, generation_id: int, instance: str | None = None) -> str:
        answer = self.ask(GroupHeartbeatRequest("g", generation_id, member_id, instance))
        return ErrorCode(answer.error_code).name

    def leave(self, member_id: str, instance: str | None = None) -> str:
        answer = self.ask(LeaveGroupRequest("g", (LeavingMember(member_id, instance),)))
        return ErrorCode(answer.error_code or answer.members[0].error_code).name

    def code(self, name: str) -> str:
        """The error of an answer."""
        return ErrorCode(self.answers[name].error_code).name

    # --- offsets ------------------------------------------------------------------------------------------

    def commit_offset(
        self,
        offset: int,
        member_id: str = "",
        generation_id: int = -1,
        *,
        group: str = "g",
        index: int = 0,
        topic_id: bytes = T,
        metadata: str | None = None,
        instance: str | None = None,
    ) -> str:
        row = OffsetCommitPartition(topic_id, index, offset, 3, metadata)
        return self.request(OffsetCommitRequest(group, generation_id, member_id, instance, (row,)))

    def commit_code(self, name: str) -> str:
        """The error of the row of a commit."""
        (row,) = self.answers[name].partitions
        return ErrorCode(row.error_code).name

    def committed(self, group: str = "g") -> dict[int, int]:
        """{partition: offset} of topic t."""
        answer = self.ask(OffsetFetchRequest(group, None))
        assert answer.error_code == ErrorCode.NONE, answer
        return {row.partition_index: row.offset for row in answer.partitions}
