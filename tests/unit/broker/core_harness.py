"""One broker's core with logs in memory: its effects on logs come back as events at once, the others are
kept.

Broker 1 of brokers 1 to 3; the clock moves only by `now_ms`. What the core sends is in `answers`,
`fetches`, `calls`.
"""

from typing import Any

from holdfast.broker.core.broker import Broker
from holdfast.broker.core.config import BrokerConfig
from holdfast.broker.core.events import (
    AnswerFetch,
    Append,
    Appended,
    AppendFetched,
    AppendResult,
    CallAnswered,
    CallController,
    CeilingsStored,
    ControllerChanged,
    DeleteLog,
    Effect,
    EndWithoutAnswer,
    EpochStarted,
    Event,
    FetchedAppended,
    Flush,
    Flushed,
    LogOpened,
    LogsLoaded,
    MetadataCommitted,
    OpenLog,
    QueueEmpty,
    RequestReceived,
    Reset,
    Respond,
    SendFetch,
    SnapshotLoaded,
    Started,
    StartEpoch,
    Stop,
    StoreCeilings,
    Tick,
    Truncate,
    Truncated,
)
from holdfast.broker.core.registration.lifecycle import Identity
from holdfast.broker.core.replicas.partition import Partition
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.history import CommittedRecord, MetadataHistory
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import (
    RECOVERED,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    encode_record,
)
from holdfast.metadata.snapshot import MetadataState
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
    ListenerEndpoint,
)
from holdfast.protocol.messages.fetch import FetchPartition, FetchRequest
from holdfast.protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
from holdfast.protocol.record_batch import Record, check_batch, encode_batch, iter_batches
from holdfast.runtime.pump import Tap
from holdfast.runtime.stats import LogLine
from holdfast.scenario.partition import MemoryLog
from holdfast.storage.core.producer_state import Duplicate, ProducerState, Rejected

TOPIC = b"t" * 16
KEY = PartitionId(TOPIC, 0)
PROPERTIES = {
    "node.id": "1",
    "process.roles": "broker",
    "listeners": "PLAINTEXT://127.0.0.1:9001",
    "controller.quorum.voters": "101@127.0.0.1:9101",
    "log.dirs": "/data",
    "holdfast.cluster.id": "cluster",
}


def config(**changes: str) -> BrokerConfig:
    """Broker 1's settings; keys with `_` for `.`."""
    keys = {name.replace("_", "."): value for name, value in changes.items()}
    return BrokerConfig.from_properties({**PROPERTIES, **keys})[0]


def batch(count: int = 1, *, producer: tuple[int, int, int] = (-1, -1, -1), size: int = 10) -> memoryview:
    """A client's batch; `producer` is (id, epoch, first sequence)."""
    return memoryview(
        encode_batch(
            [Record(offset, 1, None, b"x" * size) for offset in range(count)],
            base_offset=0,
            leader_epoch=-1,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
        )
    )


def fetched_batch(base_offset: int, count: int, epoch: int) -> memoryview:
    """A batch as a leader sends it."""
    records = [Record(base_offset + n, 1, None, b"x") for n in range(count)]
    return memoryview(encode_batch(records, base_offset=base_offset, leader_epoch=epoch))


def register(broker_id: int, epoch: int, port: int = 0) -> RegisterBrokerRecord:
    endpoint = ListenerEndpoint("PLAINTEXT", "127.0.0.1", port or 9000 + broker_id)
    return RegisterBrokerRecord(broker_id, bytes([broker_id]) * 16, epoch, (endpoint,), None, (), (), True)


def partition(
    leader: int,
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    index: int = 0,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    min_isr: int = 2,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> PartitionRecord:
    return PartitionRecord(
        TOPIC,
        index,
        replicas,
        isr,
        (),
        (),
        (),
        (),
        -1,
        leader,
        RECOVERED,
        leader_epoch,
        partition_epoch,
        min_isr,
        None,
    )


def change(
    *,
    leader: int | None = None,
    isr: tuple[int, ...] | None = None,
    replicas: tuple[int, ...] | None = None,
    adding: tuple[int, ...] | None = None,
    original: tuple[int, ...] | None = None,
    min_isr: int | None = None,
    index: int = 0,
) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        topic_id=TOPIC,
        partition_index=index,
        isr=isr,
        leader=leader,
        replicas=replicas,
        removing_replicas=None,
        adding_replicas=adding,
        original_replicas=original,
        elr=None,
        last_known_elr=None,
        last_known_leader=None,
        leader_recovery_state=None,
        min_isr=min_isr,
    )


class CoreHarness:
    """Broker 1 and what it sends."""

    def __init__(self, **changes: str) -> None:
        self.now_ms = 1_000_000
        identity = Identity(1, "cluster", b"i" * 16, (), None, (), (b"d" * 16,), previous_broker_epoch=-1)
        self.core = Broker(config(**changes), identity, self.now_ms)
        self.logs: dict[PartitionId, MemoryLog] = {}
        self.producers: dict[PartitionId, ProducerState] = {}
        #: {reply_to: message or AnswerFetch}
        self.answers: dict[object, Any] = {}
        self.dropped: list[object] = []
        #: {request without an answer: why its connection ends}
        self.refusals: dict[object, str] = {}
        self.fetches: list[SendFetch] = []
        self.calls: list[CallController] = []
        self.others: list[Effect] = []
        self.notes: list[str] = []
        #: flushes take until `finish_flushes`, cuts until `finish_cuts`
        self.flushes: list[Flush] = []
        self.cuts: list[Truncate | Reset] = []
        #: ceilings take until `finish_ceilings` to be stored, if `stores_slowly`
        self.stores_slowly = False
        self.ceilings: list[StoreCeilings] = []
        #: batches of clients wait for the log until `finish_appends`, if `appends_slowly`
        self.appends_slowly = False
        self.appends: list[Append] = []
        #: logs take until `finish_opens` to open, if `opens_slowly`
        self.opens_slowly = False
        self.opens: list[OpenLog] = []
        #: hear each event with its effects
        self.taps: list[Tap[Event, Effect]] = []
        self._metadata_offset = 0
        self._requests = 0

    # --- events -------------------------------------------------------------------------------------------

    def post(self, *events: Event) -> None:
        """Handle the events, those that their effects cause, and then QueueEmpty."""
        queue: list[Event] = [*events]
        while queue:
            while queue:
                self._carry_out(self._handle(queue.pop(0)), queue)
            self._carry_out(self._handle(QueueEmpty()), queue)

    def _handle(self, event: Event) -> list[Effect]:
        for tap in self.taps:
            tap.before(event, self.now_ms)
        effects = self.core.handle(event, self.now_ms)
        for tap in self.taps:
            tap.after(event, effects, self.now_ms)
        return effects

    def tick(self, duration_ms: int = 0) -> None:
        self.now_ms += duration_ms
        self.post(Tick())

    def metadata(self, *records: MetadataRecord) -> None:
        """Commit records at the next offsets."""
        entries = []
        for record in records:
            entries.append((self._metadata_offset, 1, encode_record(record), -1))
            self._metadata_offset += 1
        self.post(MetadataCommitted(tuple(entries), self._metadata_offset))

    def snapshot(self, *records: MetadataRecord) -> None:
        """A snapshot of a log with just these records, from offset 0 on, which ends behind what was
        committed."""
        image, history = MetadataImage(), MetadataHistory()
        for offset, record in enumerate(records):
            history.note(image, [CommittedRecord(offset, 0, record)])
            delta = MetadataDelta(image)
            delta.replay(record, offset, 1)
            image = delta.apply()
        self._metadata_offset = max(self._metadata_offset, len(records)) + 10
        image = MetadataDelta(image).apply(self._metadata_offset)
        self.post(SnapshotLoaded(MetadataState(image, history)))

    @property
    def metadata_offset(self) -> int:
        """Where the next record will stand."""
        return self._metadata_offset

    def request(self, message: Any) -> object:
        """Send a request; its answer is in `answers` under the returned name."""
        self._requests += 1
        name = f"request {self._requests}"
        self.post(RequestReceived(name, message))
        return name

    def answer_call(self, response: Any) -> None:
        """Answer the oldest unanswered call to the controller."""
        self.post(CallAnswered(self.calls.pop(0).call_id, response))

    # --- common beginnings ---------------------------------------------------------------------------------

    def join(self, *records: MetadataRecord, topic: str = "t") -> "CoreHarness":
        """Brokers 2, 3 (epochs 0, 1), a topic with `records`, our own registration; then all are unfenced."""
        epoch = 3 + len(records)
        self.post(Started(), LogsLoaded(self.logs, {}, {}), ControllerChanged(101, 1))
        self.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, epoch, True))
        self.metadata(register(2, 0), register(3, 1), TopicRecord(topic, TOPIC), *records, register(1, epoch))
        self.metadata(*(UnfenceBrokerRecord(b, e) for b, e in ((1, epoch), (2, 0), (3, 1))))
        self.answer_heartbeats()
        return self

    def answer_heartbeats(self, session_timeout_ms: int = -1) -> None:
        while self.calls and type(self.calls[0].request).__name__ == "BrokerHeartbeatRequest":
            self.answer_call(
                BrokerHeartbeatResponse(ErrorCode.NONE, None, True, False, False, session_timeout_ms)
            )

    def topic_config(self, name: str, value: str) -> ConfigRecord:
        return ConfigRecord(2, "t", name, value)

    # --- requests -------------------------------------------------------------------------------------------

    def produce(self, *batches: memoryview, acks: int = -1, timeout_ms: int = 1000, index: int = 0) -> object:
        rows = tuple(ProducePartition(TOPIC, index, data) for data in batches)
        return self.request(ProduceRequest(acks, timeout_ms, rows))

    def row(self, name: object) -> tuple[str, int]:
        """(error, base offset) of the first row of a produce answer."""
        response = self.answers[name]
        assert isinstance(response, ProduceResponse)
        first = response.partitions[0]
        return ErrorCode(first.error_code).name, first.base_offset

    def fetch(
        self,
        replica_id: int,
        offset: int | None,
        *,
        session: int = 1,
        number: int = 0,
        epoch: int = 0,
        last_epoch: int | None = None,
        wait_ms: int = 500,
        flushed: int | None = None,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        broker_epoch: int | None = None,
    ) -> object:
        """A fetch of partition 0 by a follower, or by a consumer (-1); without offset no row is listed."""
        rows: tuple[FetchPartition, ...] = ()
        if offset is not None:
            flushed = offset if flushed is None else flushed
            if last_epoch is None:  # who has records has them of this epoch
                last_epoch = epoch if offset and replica_id >= 0 else -1
            rows = (FetchPartition(TOPIC, 0, epoch, offset, last_epoch, flushed, max_bytes),)
        is_follower = replica_id >= 0
        return self.request(
            FetchRequest(
                None,
                replica_id,
                broker_epoch if broker_epoch is not None else replica_id - 2 if is_follower else -1,
                wait_ms,
                min_bytes,
                10 << 20,
                rows,
                session if is_follower else -1,
                number,
            )
        )

    def fetch_rows(self, name: object) -> list[tuple[str, int, int, int]]:
        """(error, high watermark, from, to) of each row of a fetch answer; from = to without records."""
        answer = self.answers[name]
        assert isinstance(answer, AnswerFetch)
        return [
            (
                ErrorCode(row.error_code).name,
                row.high_watermark,
                row.fetch_offset if row.max_bytes else -1,
                row.end_offset if row.max_bytes else -1,
            )
            for row in answer.rows
        ]

    @property
    def partition(self) -> Partition:
        return self.core.partitions[KEY]

    # --- effects --------------------------------------------------------------------------------------------

    def finish_flushes(self) -> None:
        flushes, self.flushes = self.flushes, []
        for effect in flushes:
            log = self.logs[effect.key]
            log.flushed_offset = log.log_end_offset
            self.post(Flushed(effect.key))

    def finish_cuts(self) -> None:
        cuts, self.cuts = self.cuts, []
        for effect in cuts:
            log = self.logs[effect.key]
            if isinstance(effect, Truncate):
                log.truncate_to(effect.end_offset)
            else:
                log.reset_to(effect.start_offset)
            self.post(Truncated(effect.key))

    def finish_ceilings(self) -> None:
        ceilings, self.ceilings = self.ceilings, []
        self.post(*(CeilingsStored(effect.rows) for effect in ceilings))

    def finish_appends(self) -> None:
        """The log is free: one result after the other, as from `broker.log_effects`."""
        appends, self.appends = self.appends, []
        for effect in appends:
            for item in effect.batches:
                if self.core.leads(item.key, item.leader_epoch):
                    result = self._append(item)
                else:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                    result = AppendResult(item.key, item.leader_epoch, -1, -1, 0, code, "deposed")
                self.post(Appended(effect.context, (result,)))

    def finish_opens(self) -> list[PartitionId]:
        """What was opened."""
        opened = self._open_logs()
        self.post(*opened)
        return [event.key for event in opened]

    def _open_logs(self) -> list[LogOpened]:
        opens, self.opens = self.opens, []
        assert len({effect.key for effect in opens}) == len(opens), "one opening of a log at a time"
        return [LogOpened(effect.key, self.logs.setdefault(effect.key, MemoryLog())) for effect in opens]

    def _carry_out(self, effects: list[Effect], queue: list[Event]) -> None:
        for effect in effects:
            match effect:
                case Respond(reply_to, message):
                    assert reply_to not in self.answers, "answered twice"
                    self.answers[reply_to] = message
                case AnswerFetch(reply_to):
                    assert reply_to not in self.answers, "answered twice"
                    self.answers[reply_to] = effect
                case EndWithoutAnswer(reply_to, refusal):
                    self.dropped.append(reply_to)
                    if refusal is not None:
                        self.refusals[reply_to] = refusal
                case Append() if self.appends_slowly:
                    self.appends.append(effect)
                case Append(context, batches):
                    queue.append(Appended(context, tuple(self._append(item) for item in batches)))
                case AppendFetched(fetched):
                    queue.append(FetchedAppended(tuple(self._append_fetched(item) for item in fetched)))
                case StartEpoch(key, epoch):
                    queue.append(EpochStarted(key, epoch, self.logs[key].start_epoch(epoch)))
                case StoreCeilings(rows):
                    if self.stores_slowly:
                        self.ceilings.append(effect)
                    else:
                        queue.append(CeilingsStored(rows))
                case OpenLog():
                    self.opens.append(effect)
                    if not self.opens_slowly:
                        queue += self._open_logs()
                case DeleteLog(key):
                    del self.logs[key]
                    self.others.append(effect)
                case Flush():
                    self.flushes.append(effect)
                case Truncate() | Reset():
                    self.cuts.append(effect)
                case SendFetch():
                    self.fetches.append(effect)
                case CallController():
                    self.calls.append(effect)
                case LogLine(_, text):
                    self.notes.append(text)
                case Stop():
                    self.others.append(effect)
                case _:
                    self.others.append(effect)

    def _append(self, item: Any) -> AppendResult:
        state = self.producers.setdefault(item.key, ProducerState())
        verdict = state.check(item.header)
        if isinstance(verdict, Rejected):
            return AppendResult(item.key, item.leader_epoch, -1, -1, 0, verdict.error_code, verdict.text)
        if isinstance(verdict, Duplicate):
            found = self.logs[item.key].epochs.epoch_at(verdict.base_offset)
            return AppendResult(
                item.key,
                item.leader_epoch,
                verdict.base_offset,
                verdict.last_offset + 1,
                0,
                is_duplicate=True,
                batch_epoch=-1 if found is None else found,
            )
        log = self.logs[item.key]
        base_offset = log.log_end_offset
        check_batch(item.batch)
        state.apply(item.header, base_offset)
        log.append(item.header.record_count, item.leader_epoch)
        return AppendResult(
            item.key,
            item.leader_epoch,
            base_offset,
            log.log_end_offset,
            len(item.batch),
            batch_epoch=item.leader_epoch,
            must_flush=self.partition.counts_flushed,
        )

    def _append_fetched(self, item: Any) -> tuple[PartitionId, str | None, int, bool]:
        log = self.logs[item.key]
        for header, _ in iter_batches(item.records):
            if header.base_offset != log.log_end_offset or header.leader_epoch > item.leader_epoch:
                return item.key, "does not continue this log", 0, False
            log.append(header.record_count, header.leader_epoch)
        return item.key, None, len(item.records), False
