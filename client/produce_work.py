"""Carries out what a producer's `client.core.sender` decides: requests, connections and the identity.

What comes of them is posted to the producer's pump. Decides nothing.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.batch import ProducerIdAndEpoch
from holdfast.client.core.config import ProducerConfig
from holdfast.client.core.effects import Call, Connect, RefreshMetadata
from holdfast.client.core.errors import ClientError, code_of
from holdfast.client.core.sender import Sender
from holdfast.client.core.sender_effects import AskIdentity, Effect, SendBatches
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
from holdfast.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from holdfast.rpc.channel import CallRefused, Disconnected
from holdfast.runtime.api import NetworkError, Runtime
from holdfast.runtime.pump import Pump

#: How long after the leader's own limit an answer may still be on its way.
_ANSWER_GRACE_MS = 1_000
_IDENTITY_TIMEOUT_MS = 5_000
_IDENTITY_ATTEMPT_MS = 1_000


class ProduceWork:
    """Of one producer."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: ClusterClient,
        sender: Sender,
        pump: Pump[Call[Effect], Effect],
        config: ProducerConfig,
        write_ahead: Callable[[], bool],
        is_closed: Callable[[], bool],
    ) -> None:
        """`write_ahead()` writes what has to be down before a request is sent; False: it is not sent."""
        self._runtime = runtime
        self._cluster = cluster
        self._sender = sender
        self._pump = pump
        self._config = config
        self._write_ahead = write_ahead
        self._is_closed = is_closed
        #: produce requests so far
        self.request_count = 0

    @property
    def carry_out(self) -> Mapping[type, Callable[[Any], None]]:
        """What the pump calls for each kind of effect."""
        return {
            SendBatches: self._send_batches,
            Connect: self._start_connecting,
            AskIdentity: self._start_asking,
            RefreshMetadata: lambda _: self._cluster.refresh(),
        }

    def _send_batches(self, effect: SendBatches) -> None:
        channel = self._cluster.channel(effect.broker_id)
        if channel is None:
            self._not_sent(effect, "the connection is gone")
            return
        if not self._write_ahead():
            return
        request = self._request(effect)
        self.request_count += 1
        if self._config.acks != 0:
            answer = channel.call_soon(request, self._config.request_timeout_ms + _ANSWER_GRACE_MS)
            answer.add_done_callback(partial(self._answered, effect))
            return
        try:
            channel.send(request)
        except Disconnected as error:
            self._not_sent(effect, str(error))
            return
        except CallRefused as error:
            self._refused(effect, error)
            return
        if channel.is_writable:  # no answer will come: what waits behind these batches goes now
            self._pump.post(lambda _: self._sender.written(effect.request_id))
        else:
            # A slow broker: these records keep their place in the buffer, so that `send` waits.
            channel.writable().add_done_callback(partial(self._written, effect))

    def _request(self, effect: SendBatches) -> ProduceRequest:
        rows = []
        for batch in effect.batches:
            view = self._cluster.cache.topic(batch.topic)
            topic_id = bytes(16) if view is None else view.topic_id
            assert batch.payload is not None
            rows.append(ProducePartition(topic_id, batch.partition, memoryview(batch.payload)))
        return ProduceRequest(self._config.acks, self._config.request_timeout_ms, tuple(rows))

    def _not_sent(self, effect: SendBatches, text: str) -> None:
        self._pump.post(partial(self._lose, effect, text, is_disconnected=True, was_sent=False))

    def _lose(
        self, effect: SendBatches, text: str, now_ms: int, *, is_disconnected: bool, was_sent: bool
    ) -> list[Effect]:
        if is_disconnected:
            self._sender.disconnected(effect.broker_id)
        return self._sender.request_failed(effect.request_id, now_ms, text, was_sent=was_sent)

    def _refused(self, effect: SendBatches, error: CallRefused) -> None:
        code, text = error.error_code, str(error)
        self._pump.post(lambda now_ms: self._sender.request_refused(effect.request_id, now_ms, code, text))

    def _answered(self, effect: SendBatches, answer: "asyncio.Future[ProduceResponse]") -> None:
        error = answer.exception()
        if self._is_closed():
            return
        if error is None:
            self._pump.post(partial(self._sender.answered, effect.request_id, answer.result()))
        elif isinstance(error, CallRefused):
            self._refused(effect, error)
        else:
            self._unanswered(effect, error)

    def _written(self, effect: SendBatches, writable: "asyncio.Future[None]") -> None:
        error = writable.exception()
        if self._is_closed():
            return
        if error is None:
            self._pump.post(lambda _: self._sender.written(effect.request_id))
        else:
            self._unanswered(effect, error)

    def _unanswered(self, effect: SendBatches, error: BaseException) -> None:
        assert isinstance(error, NetworkError), error
        self._cluster.suspect(effect.broker_id)
        is_disconnected = isinstance(error, Disconnected)
        self._pump.post(
            partial(self._lose, effect, str(error), is_disconnected=is_disconnected, was_sent=True)
        )

    def _start_connecting(self, effect: Connect) -> None:
        self._runtime.tasks.start("producer connect", self._connect(effect.broker_id))

    async def _connect(self, broker_id: int) -> None:
        try:
            await self._cluster.connect(broker_id)
        except (NetworkError, ClientError) as error:
            text = str(error)
            self._pump.post(lambda now_ms: self._sender.connect_failed(broker_id, now_ms, text))
        else:
            self._sender.connected(broker_id)
            self._pump.run()

    def _start_asking(self, effect: AskIdentity) -> None:
        self._runtime.tasks.start("producer identity", self._ask_identity(effect))

    async def _ask_identity(self, effect: AskIdentity) -> None:
        request = InitProducerIdRequest(effect.producer_id, effect.producer_epoch)
        try:
            answer, _ = await self._cluster.ask(
                request,
                _IDENTITY_TIMEOUT_MS,
                code_of_answer=_code_of_identity,
                what="InitProducerId",
                attempt_ms=_IDENTITY_ATTEMPT_MS,
            )
            found: InitProducerIdResponse = answer
            if found.error_code != ErrorCode.NONE:
                raise ClientError(found.error_message or "refused", code_of(found.error_code))
        except ClientError as error:
            code, text = error.code, str(error)
            self._pump.post(lambda now_ms: self._sender.identity_failed(now_ms, code, text))
        else:
            self._sender.identity_given(ProducerIdAndEpoch(found.producer_id, found.producer_epoch))
            self._pump.run()


def _code_of_identity(answer: InitProducerIdResponse) -> ErrorCode:
    return code_of(answer.error_code)
