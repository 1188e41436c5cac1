"""Carries out what a consumer's `client.core.fetcher` decides: fetches, connections and lookups.

What comes of them is posted to the consumer's pump. Decides nothing.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from holdfast.client.ask_leaders import ask_leader
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.effects import Call, Connect, RefreshMetadata
from holdfast.client.core.errors import ClientError
from holdfast.client.core.fetcher import Fetcher
from holdfast.client.core.fetcher_effects import Effect, LookupOffsets, SendFetch
from holdfast.client.list_offsets import OFFSETS
from holdfast.protocol.messages.fetch import FetchResponse
from holdfast.rpc.channel import CallRefused, Disconnected
from holdfast.runtime.api import NetworkError, Runtime
from holdfast.runtime.pump import Pump

_LOOKUP_TIMEOUT_MS = 10_000


class FetchWork:
    """Of one consumer."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: ClusterClient,
        fetcher: Fetcher,
        pump: Pump[Call[Effect], Effect],
        request_timeout_ms: float,
        is_closed: Callable[[], bool],
    ) -> None:
        self._runtime = runtime
        self._cluster = cluster
        self._fetcher = fetcher
        self._pump = pump
        self._request_timeout_ms = request_timeout_ms
        self._is_closed = is_closed
        #: fetches so far
        self.request_count = 0

    @property
    def carry_out(self) -> Mapping[type, Callable[[Any], None]]:
        """What the pump calls for each kind of effect."""
        return {
            SendFetch: self._send_fetch,
            LookupOffsets: partial(self._start, self._look_up),
            Connect: partial(self._start, self._connect),
            RefreshMetadata: lambda _: self._cluster.refresh(),
        }

    def _send_fetch(self, effect: SendFetch) -> None:
        self.request_count += 1
        channel = self._cluster.channel(effect.broker_id)
        if channel is None:
            self._lost(effect, is_disconnected=True)
            return
        answer = channel.call_soon(effect.request, self._request_timeout_ms)
        answer.add_done_callback(partial(self._answered, effect))

    def _lost(self, effect: SendFetch, *, is_disconnected: bool) -> None:
        def lose(now_ms: int) -> list[Effect]:
            if is_disconnected:
                self._fetcher.disconnected(effect.broker_id)
            return self._fetcher.failed(effect.request_id, now_ms)

        self._pump.post(lose)

    def _answered(self, effect: SendFetch, answer: "asyncio.Future[FetchResponse]") -> None:
        error = answer.exception()
        if self._is_closed():
            return
        if error is None:
            self._pump.post(partial(self._fetcher.answered, effect.request_id, answer.result()))
        else:
            assert isinstance(error, (NetworkError, CallRefused)), error
            self._cluster.suspect(effect.broker_id)
            self._lost(effect, is_disconnected=isinstance(error, Disconnected))

    def _start(self, work: Callable[[Any], Coroutine[Any, Any, None]], effect: Effect) -> None:
        self._runtime.tasks.start("consumer", work(effect))

    async def _connect(self, effect: Connect) -> None:
        try:
            await self._cluster.connect(effect.broker_id)
        except (NetworkError, ClientError):
            self._pump.post(partial(self._fetcher.connect_failed, effect.broker_id))
        else:
            self._fetcher.connected(effect.broker_id)
            self._pump.run()

    async def _look_up(self, effect: LookupOffsets) -> None:
        wanted = dict(effect.timestamps)
        deadline_ms = self._runtime.clock.now_ms() + _LOOKUP_TIMEOUT_MS
        found, errors = await ask_leader(
            self._cluster, self._runtime.clock, OFFSETS, effect.broker_id, wanted, deadline_ms
        )
        if self._is_closed():
            return
        offsets = {partition: answer.offset for partition, answer in found.items()}
        self._fetcher.found(effect.request_id, offsets)
        self._pump.post(partial(self._fetcher.not_found, effect.request_id, errors))
