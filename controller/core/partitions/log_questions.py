"""GetReplicaLogInfo requests to brokers: which broker is asked for which partitions, and when again.

Owns batches, one request in flight per broker, and back-off (R61). `unclean_recovery` says what to ask and
judges the answers (R62); nothing is compared or elected here. Soft state of the active controller. The cost
grows with the number of partitions asked for: one request for up to 1000.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.events import AskBroker, LogInfoAnswered, LogInfoArrived, LogInfoFailed
from holdfast.controller.core.partitions.unclean_recovery import AnswerValidity
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.replica_log_info import (
    LOG_INFO_ROWS_MAX,
    GetReplicaLogInfoRequest,
    LogInfoTopic,
    ReplicaLogInfo,
)

#: The back-off doubles this often at most, with every answer in a row that did not help.
BACKOFF_DOUBLINGS_MAX = 4
#: Label in the replies metric for a request without an answer.
NO_ANSWER = "timeout"
#: Labels in the replies metric by verdict.
_RESULTS = {
    AnswerValidity.OK: "ok",
    AnswerValidity.ERROR: "error",
    AnswerValidity.STALE_BROKER_EPOCH: "stale_broker_epoch",
    AnswerValidity.STALE_LEADER_EPOCH: "stale_leader_epoch",
    AnswerValidity.SUPERSEDED: "stale_leader_epoch",
}


@dataclass(slots=True)
class _Broker:
    """What one broker is asked for. Every wanted key is in exactly one of ready, paused, in_flight."""

    wanted: dict[PartitionId, None] = field(default_factory=dict)
    ready: dict[PartitionId, None] = field(default_factory=dict)
    #: asked without success; ready again at `resume_ms`
    paused: dict[PartitionId, None] = field(default_factory=dict)
    resume_ms: int = 0
    #: answers in a row that did not help
    fruitless: int = 0
    #: id of the request under way, 0 for none
    question_id: int = 0
    #: keys in the request under way; some may not be wanted any more
    in_flight: dict[PartitionId, None] = field(default_factory=dict)


class LogQuestions:
    """All questions of one active controller."""

    def __init__(self, config: ControllerConfig) -> None:
        self._config = config
        self._brokers: dict[int, _Broker] = {}
        self._asked_of: dict[PartitionId, tuple[int, ...]] = {}
        #: ids are never used twice, so an answer to an earlier tenure matches nothing
        self._questions_asked = 0
        #: {(broker, result): answers} since the process started
        self.replies: dict[tuple[int, str], int] = {}

    def stop(self) -> None:
        """Drop all questions (R60). Answers under way are ignored."""
        self._brokers = {}
        self._asked_of = {}

    # --- what is wanted ----------------------------------------------------------------------------------

    def want(self, key: PartitionId, broker_ids: tuple[int, ...]) -> None:
        """Ask exactly these brokers about the partition from now on."""
        for broker_id in self._asked_of.pop(key, ()):
            if broker_id not in broker_ids:
                broker = self._brokers[broker_id]
                broker.wanted.pop(key, None)
                broker.ready.pop(key, None)
                broker.paused.pop(key, None)
        if broker_ids:
            self._asked_of[key] = broker_ids
        for broker_id in broker_ids:
            broker = self._brokers.setdefault(broker_id, _Broker())
            if key not in broker.wanted:
                broker.wanted[key] = None
                if key not in broker.in_flight:
                    broker.ready[key] = None

    # --- what came back ----------------------------------------------------------------------------------

    def answered(
        self, event: LogInfoAnswered, now_ms: int, judge: Callable[[LogInfoArrived], AnswerValidity]
    ) -> None:
        """Pass every row to `judge`. Rows that did not count, and missing ones, are asked for again."""
        broker = self._awaiting(event.broker_id, event.question_id)
        if broker is None:
            return
        response = event.response
        if response.error_code != ErrorCode.NONE:
            self._count(event.broker_id, _RESULTS[AnswerValidity.ERROR])
            self._pause(broker, broker.in_flight, now_ms)
            return
        again: dict[PartitionId, None] = {}
        at_once: dict[PartitionId, None] = {}
        judged: dict[PartitionId, AnswerValidity] = {}
        for topic in response.topics:
            for row in topic.partitions:
                key = (topic.topic_id, row.partition)
                # ignore rows that this request did not ask for
                if key in broker.in_flight and key not in judged:
                    judged[key] = judge(_arrived(event.broker_id, response.broker_epoch, key, row))
        is_fruitful = False
        for key in broker.in_flight:
            verdict = judged.get(key, AnswerValidity.ERROR)
            if verdict in _RESULTS:
                self._count(event.broker_id, _RESULTS[verdict])
            is_fruitful |= verdict is AnswerValidity.OK
            if verdict in (AnswerValidity.OK, AnswerValidity.SUPERSEDED):
                broker.wanted.pop(key, None)
            elif verdict is AnswerValidity.LATER:
                at_once[key] = None
            else:
                again[key] = None
        broker.question_id, broker.in_flight = 0, {}
        broker.ready.update((key, None) for key in at_once if key in broker.wanted)
        if is_fruitful:
            broker.fruitless = 0
        self._pause(broker, again, now_ms)

    def failed(self, event: LogInfoFailed, now_ms: int) -> None:
        """The request will get no answer."""
        broker = self._awaiting(event.broker_id, event.question_id)
        if broker is not None:
            self._count(event.broker_id, NO_ANSWER)
            self._pause(broker, broker.in_flight, now_ms)

    def _awaiting(self, broker_id: int, question_id: int) -> _Broker | None:
        broker = self._brokers.get(broker_id)
        return broker if broker is not None and broker.question_id == question_id else None

    def _pause(self, broker: _Broker, keys: dict[PartitionId, None], now_ms: int) -> None:
        """Ask for these again after the back-off, and end the request under way."""
        broker.question_id, broker.in_flight = 0, {}
        wanted = {key: None for key in keys if key in broker.wanted}
        if not wanted:
            return
        pause_ms = self._config.recovery_retry_backoff_ms << min(broker.fruitless, BACKOFF_DOUBLINGS_MAX)
        broker.fruitless += 1
        broker.paused.update(wanted)
        broker.resume_ms = now_ms + pause_ms

    def _count(self, broker_id: int, result: str) -> None:
        self.replies[broker_id, result] = self.replies.get((broker_id, result), 0) + 1

    # --- what is asked now -------------------------------------------------------------------------------

    def requests(self, image: MetadataImage, now_ms: int) -> list[AskBroker]:
        """The requests that are due now, by broker."""
        found: list[AskBroker] = []
        for broker_id in sorted(self._brokers):
            broker = self._brokers[broker_id]
            if broker.paused and broker.resume_ms <= now_ms:
                broker.ready.update(broker.paused)
                broker.paused = {}
            registration = image.brokers.get(broker_id)
            if not broker.ready or broker.question_id or registration is None:
                continue
            keys = list(broker.ready)[:LOG_INFO_ROWS_MAX]
            for key in keys:
                del broker.ready[key]
            self._questions_asked += 1
            broker.question_id, broker.in_flight = self._questions_asked, dict.fromkeys(keys)
            endpoint = registration.reachable_at(self._config.inter_broker_listener_name)
            found.append(
                AskBroker(
                    broker_id,
                    broker.question_id,
                    endpoint.host,
                    endpoint.port,
                    _request(broker_id, keys),
                    self._config.recovery_request_timeout_ms,
                )
            )
        return found

    def next_deadline_ms(self) -> int | None:
        """When a broker may be asked again."""
        return min(
            (
                broker.resume_ms
                for broker in self._brokers.values()
                if broker.paused and not broker.question_id
            ),
            default=None,
        )


def _request(broker_id: int, keys: list[PartitionId]) -> GetReplicaLogInfoRequest:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, []).append(index)
    return GetReplicaLogInfoRequest(
        broker_id, tuple(LogInfoTopic(topic_id, tuple(found)) for topic_id, found in topics.items())
    )


def _arrived(broker_id: int, broker_epoch: int, key: PartitionId, row: ReplicaLogInfo) -> LogInfoArrived:
    return LogInfoArrived(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topic_id=key[0],
        partition_index=key[1],
        leader_epoch=row.current_leader_epoch,
        last_epoch=row.last_written_leader_epoch,
        end_offset=row.log_end_offset,
        error_code=row.error_code,
        flushed_offset=row.flushed_offset,
        high_watermark=row.high_watermark,
        ceiling=row.ceiling,
    )
