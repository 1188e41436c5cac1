"""A broker's calls to the active controller: registration, heartbeats, ISR proposals, producer ids (K26,
K27).

Owns the lifecycle, the open ISR proposals, the producer ids, and the calls under way: at most one of each
kind. A call to a former controller is forgotten. What an answer means for partitions is decided by the
caller.
"""

from enum import Enum
from typing import Any

from holdfast.broker.core.events import CallAnswered, CallController, CallFailed, Effect, Respond
from holdfast.broker.core.registration.lifecycle import Lifecycle
from holdfast.broker.core.replicas.alter_partition import AlterPartitionQueue
from holdfast.broker.core.requests.producer_ids import ProducerIds
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import OfflineTopic
from holdfast.protocol.messages.producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    InitProducerIdRequest,
)


class Purpose(Enum):
    """What a call is for."""

    LIFECYCLE = "lifecycle"
    ALTER_PARTITION = "alter partition"
    PRODUCER_IDS = "producer ids"


class ControllerLink:
    """One broker's calls to the active controller."""

    def __init__(self, broker_id: int, lifecycle: Lifecycle, request_timeout_ms: int) -> None:
        self.lifecycle = lifecycle
        self.alter = AlterPartitionQueue()
        #: the quorum's leader as this broker's observer knows it, None for none
        self.controller_id: int | None = None
        #: raft epoch of that leader
        self.controller_epoch = 0
        #: nothing is sent before the node has started
        self.is_started = False
        self._broker_id = broker_id
        self._request_timeout_ms = request_timeout_ms
        self._producer_ids = ProducerIds()
        self._calls: dict[int, Purpose] = {}
        self._last_call_id = 0

    # --- calls ---------------------------------------------------------------------------------------------

    def requests(
        self, metadata_offset: int, now_ms: int, offline: tuple[OfflineTopic, ...] = ()
    ) -> list[Effect]:
        """The calls that are due now."""
        if self.controller_id is None or not self.is_started:
            return []
        effects: list[Effect] = []
        request: Any = self.lifecycle.next_request(metadata_offset, now_ms, offline)
        if request is not None:
            effects.append(self._call(Purpose.LIFECYCLE, request))
        if not self.lifecycle.is_registered:
            return effects
        epoch = self.lifecycle.broker_epoch
        request = self.alter.next_request(self._broker_id, epoch, self.controller_epoch, now_ms)
        if request is not None:
            effects.append(self._call(Purpose.ALTER_PARTITION, request))
        if self._producer_ids.wants_block(now_ms):
            self._producer_ids.is_allocating = True
            request = AllocateProducerIdsRequest(self._broker_id, epoch)
            effects.append(self._call(Purpose.PRODUCER_IDS, request))
        return effects

    def _call(self, purpose: Purpose, request: Any) -> Effect:
        assert self.controller_id is not None
        self._last_call_id += 1
        self._calls[self._last_call_id] = purpose
        timeout_ms = self._request_timeout_ms
        if purpose is Purpose.LIFECYCLE:
            timeout_ms = min(timeout_ms, self.lifecycle.answer_timeout_ms)
        return CallController(self._last_call_id, self.controller_id, request, timeout_ms)

    def is_awaited(self, event: CallAnswered) -> bool:
        """Whether the answer is still expected. Ask once: the call is over afterwards."""
        return self._calls.pop(event.call_id, None) is not None

    def failed(self, event: CallFailed, now_ms: int) -> list[Effect]:
        """A call got no answer: it is repeated later, or waiting producers get an error."""
        purpose = self._calls.pop(event.call_id, None)
        if purpose is Purpose.LIFECYCLE:
            self.lifecycle.failed(now_ms)
        elif purpose is Purpose.ALTER_PARTITION:
            self.alter.failed(now_ms)
        elif purpose is Purpose.PRODUCER_IDS:
            return self._refuse_producers(event.text, now_ms)
        return []

    def changed(self, controller_id: int | None, raft_epoch: int, now_ms: int) -> list[Effect]:
        """Another node leads the quorum, or no node does (K27)."""
        self.controller_epoch = raft_epoch
        if controller_id == self.controller_id:
            return []
        self.controller_id = controller_id
        self._calls.clear()
        self.lifecycle.controller_changed(now_ms)
        if self.alter.is_in_flight:
            self.alter.retry(self.alter.take_in_flight().items(), now_ms)
        if self._producer_ids.is_allocating:
            return self._refuse_producers("the active controller has changed", now_ms)
        return []

    def drop_proposals(self) -> None:
        """The registration is over: its ISR proposals are void."""
        self.alter.clear()
        self._forget(Purpose.ALTER_PARTITION)

    def clean_shutdown_disproved(self, incarnation_id: bytes, now_ms: int) -> None:
        """Register again, without the proof; an answer to what was sent before is not waited for."""
        self._forget(Purpose.LIFECYCLE)
        self.lifecycle.clean_shutdown_disproved(incarnation_id, now_ms)

    def _forget(self, purpose: Purpose) -> None:
        for call_id in [number for number, known in self._calls.items() if known is purpose]:
            del self._calls[call_id]

    # --- producer ids --------------------------------------------------------------------------------------

    def init_producer_id(self, reply_to: object, request: InitProducerIdRequest) -> list[Effect]:
        """Answer at once, or when the next block arrives."""
        response = self._producer_ids.request(reply_to, request)
        return [] if response is None else [Respond(reply_to, response)]

    def producer_ids_answered(self, response: AllocateProducerIdsResponse, now_ms: int) -> list[Effect]:
        """Take a new block and answer the producers that wait for it."""
        if response.error_code != ErrorCode.NONE:
            return self._refuse_producers(response.error_message or "refused", now_ms)
        return [Respond(reply_to, granted) for reply_to, granted in self._producer_ids.allocated(response)]

    def _refuse_producers(self, text: str, now_ms: int) -> list[Effect]:
        return [Respond(reply_to, refused) for reply_to, refused in self._producer_ids.failed(text, now_ms)]

    def next_deadline_ms(self) -> int:
        """When to call `requests`, or to check the lifecycle's time limits, again."""
        may_send = self.is_started and self.controller_id is not None
        deadline_ms = self.lifecycle.next_deadline_ms(may_send)
        if may_send and self.lifecycle.is_registered:
            for part in (self.alter.next_deadline_ms(), self._producer_ids.next_deadline_ms()):
                if part is not None and part < deadline_ms:
                    deadline_ms = part
        return deadline_ms
