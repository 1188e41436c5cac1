"""The listener for Kafka clients: an rpc server with Kafka's frames, in front of a broker's own handlers.

Requests of a connection start at once, and their answers leave in the order of the requests, as Kafka's
clients expect. Limits are those of `rpc.server`, connections and back pressure those of
`rpc.server_connection`. A translation that fails is a fault of this adapter: it costs the connection and not
the broker.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from holdfast.kafka_listener.core.api_table import KafkaApi
from holdfast.kafka_listener.core.apis.cluster import versions_fields
from holdfast.kafka_listener.core.envelope import (
    ITEMS_AT_ONCE,
    MalformedRequest,
    Request,
    RequestHead,
    TooManyElements,
    read_head,
    read_request,
    write_response,
)
from holdfast.kafka_listener.core.frames import KafkaFrameDecoder, bytes_of
from holdfast.kafka_listener.core.produce_in_parts import ProduceInParts
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.kafka_listener.core.translation import Ask, ClusterView, HangUp, Outcome
from holdfast.kafka_listener.core.translations import TRANSLATIONS
from holdfast.kafka_listener.core.turns_aside import TurnsAside
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import Frame, FrameDecoder
from holdfast.protocol.messages import API_OF_REQUEST
from holdfast.protocol.messages.fetch import FetchResponse
from holdfast.protocol.schema.fields import Buffer
from holdfast.rpc.core.memory import Charge
from holdfast.rpc.core.request_stats import RequestStats
from holdfast.rpc.exchange import OfConnection
from holdfast.rpc.server import Server, ServerLimits
from holdfast.rpc.server_connection import ServerConnection
from holdfast.rpc.shares import NodeShares
from holdfast.runtime.api import Runtime
from holdfast.runtime.stats import MetricFamily, MetricKind, Sample

T = TypeVar("T")

_log = logging.getLogger("holdfast.kafka")

#: How long a broker that starts may take before a request that no response can refuse ends the connection;
#: meanwhile it is asked again that often.
STARTING_PATIENCE_MS, ASKED_AGAIN_MS = 5_000, 50

#: Their translation looks at what changes while it looks.
_OF_LIVE_LOGS = (KafkaApi.DESCRIBE_LOG_DIRS,)

#: What serves a request of ours: it is given an object with the methods of `rpc.server.Exchange`.
Handler = Callable[[Any], None]


class KafkaExchange(OfConnection):
    """One Kafka request. Towards the broker's handlers it is an `rpc.server.Exchange` of the request that it
    was translated to; each question is answered exactly once by `respond`, `fail`, `drop` or `hang_up`."""

    _connection: "KafkaConnection"

    __slots__ = (
        "_arrived_ns",
        "_answer_with",
        "_charge",
        "_handled_ns",
        "_is_done",
        "_refuse_with",
        "_started_ns",
        "_unanswered",
        "answer",
        "answered_ns",
        "api_key",
        "is_large",
        "is_ordered",
        "message",
        "request",
        "throttle_time_ms",
    )

    def __init__(
        self,
        connection: "KafkaConnection",
        request: Request,
        arrived_ns: int,
        started_ns: int,
        charge: Charge,
    ) -> None:
        super().__init__(connection)
        self.request = request
        #: it gets an answer, which must wait for those of earlier requests
        self.is_ordered = request.api is not KafkaApi.PRODUCE or bool(request.message.acks)
        #: it is translated and answered beside the event loop
        self.is_large = False
        #: room that the request takes until it is answered or its bytes are let go
        self._charge: Charge | None = charge
        self._arrived_ns = arrived_ns
        self._started_ns = started_ns
        self._handled_ns = 0
        #: what becomes of the broker's answer to the open question, or of its refusal
        self._answer_with: Callable[[Any], Outcome] | None = None
        self._refuse_with: Callable[[int, str], Outcome] | None = None
        self._unanswered: HangUp | None = None
        self._is_done = False
        #: the question to the broker that is open now
        self.message: Any = None
        self.api_key: ApiKey | None = None
        #: for how long the connection rests, as the answer tells
        self.throttle_time_ms = 0
        #: the frame of the answer, None before
        self.answer: list[Buffer] | None = None
        self.answered_ns = 0

    # --- for handlers -------------------------------------------------------------------------------------

    @property
    def client_id(self) -> str:
        """What the peer calls itself; proves nothing."""
        return self.request.client_id

    @property
    def is_answered(self) -> bool:
        """No answer is due any more."""
        return self._is_done

    @property
    def is_open(self) -> bool:
        """True while an answer is still due and could still arrive."""
        return not self._is_done and self._connection.is_open

    def let_go(self) -> None:
        """The request's bytes are not needed any more, although its answer is still due."""
        self.message = None
        self.request = self.request._replace(message=None)
        self._release()

    def throttle(self, rest_ms: int) -> None:
        """See `OfConnection`; the answer tells it."""
        self.throttle_time_ms = rest_ms
        super().throttle(rest_ms)

    def respond(self, message: Any) -> None:
        """The broker's answer to the open question."""
        answer_with, _ = self._take()
        self._translated(lambda: answer_with(message), _records_bytes(message) if self.is_large else 0)

    async def respond_aside(self, message: Any) -> None:
        """The same with a large message, which is translated beside the event loop."""
        answer_with, _ = self._take()
        await self._translate_aside(lambda: answer_with(message))

    def fail(self, error_code: ErrorCode, text: str) -> None:
        """The broker refuses the open question as a whole.

        One that starts is asked again for a while where only the end of the connection could tell the client:
        librdkafka gives up what it wants to know at the third end, and a consumer then waits for minutes.
        """
        answer_with, refuse_with = self._take()
        if error_code == ErrorCode.BROKER_NOT_AVAILABLE and self.is_open and self._is_patient():
            outcome = refuse_with(error_code, text)
            if isinstance(outcome, HangUp):
                self._answer_with, self._refuse_with = answer_with, refuse_with
                self._connection.ask_later(self)
                return
        self._translated(lambda: refuse_with(error_code, text))

    def _is_patient(self) -> bool:
        return self._connection.now_ns() - self._started_ns < STARTING_PATIENCE_MS * 1_000_000

    def drop(self) -> None:
        """Finish without any answer (acks 0)."""
        self._take()
        if self._unanswered is None:
            self._done(ErrorCode.NONE)
        else:
            self._end_connection(self._unanswered.reason)

    def hang_up(self, reason: str) -> None:
        """Finish without any answer and end the connection."""
        self._take()
        self._end_connection(reason)

    def handled(self, now_ns: int) -> None:
        """The handler has returned: from here on others are waited for."""
        self._handled_ns = now_ns

    # --- for the connection -------------------------------------------------------------------------------

    def begin(self, cluster: ClusterView) -> None:
        """Translate the request and go on with what comes of it."""
        self._translated(lambda: TRANSLATIONS[self.request.api](self.request, cluster))

    async def begin_aside(self, cluster: ClusterView) -> None:
        """The same with a large request, beside the event loop; so are its answers."""
        self.is_large = True
        await self._translate_aside(lambda: TRANSLATIONS[self.request.api](self.request, cluster))

    def finish(self, fields: Fields) -> None:
        """Answer with these fields."""
        self._write(fields)
        self._done(fields["error_code"])

    @property
    def answer_bytes(self) -> int:
        """Size of the answer, 0 before it is there."""
        return 0 if self.answer is None else sum(map(len, self.answer))

    @property
    def times(self) -> tuple[int, int]:
        """(when the request arrived, when it was answered), ns."""
        return self._arrived_ns, self.answered_ns

    # --- inside -------------------------------------------------------------------------------------------

    def _write(self, fields: Fields) -> None:
        request = self.request
        if self.throttle_time_ms:
            fields = {**fields, "throttle_time": self.throttle_time_ms}
        self.answer = write_response(request.api, request.version, request.correlation_id, fields)

    def _take(self) -> tuple[Callable[[Any], Outcome], Callable[[int, str], Outcome]]:
        assert self._answer_with is not None, f"{self.request.api.name} was answered twice"
        assert self._refuse_with is not None
        taken = self._answer_with, self._refuse_with
        self._answer_with = self._refuse_with = None
        return taken

    def _translated(self, translate: Callable[[], Outcome], records_bytes: int = 0) -> None:
        if not self.is_open:  # the peer has gone: nothing reads an answer, and no further question is asked
            self._done(ErrorCode.NONE)
        elif self.is_large:
            tasks = self._connection.server.runtime.tasks
            self._connection.hold(records_bytes)
            tasks.start(f"answer {self.request.api.title}", self._translate_aside(translate, records_bytes))
        else:
            self._go_on(self._outcome(translate))

    async def _translate_aside(self, translate: Callable[[], Outcome], records_bytes: int = 0) -> None:
        server = self._connection.server
        outcome = await server.compute(self.connection_id, lambda: self._outcome(translate))
        self._connection.let_go(records_bytes)
        if self.is_open:
            self._go_on(outcome)
        else:  # the peer has gone meanwhile: no further question is asked
            self._done(ErrorCode.NONE)

    def _outcome(self, translate: Callable[[], Outcome]) -> Outcome:
        """The outcome, with its answer written. May run beside the event loop."""
        try:
            outcome = translate()
            if isinstance(outcome, Mapping):
                self._write(outcome)
        except Exception:  # noqa: BLE001  the adapter's own fault: the broker's state is untouched
            _log.exception("%s v%d of %s", self.request.api.title, self.request.version, self.peer)
            return HangUp("its request could not be translated")
        return outcome

    def _go_on(self, outcome: Outcome) -> None:
        if isinstance(outcome, Mapping):
            self._done(outcome.get("error_code", 0))
        elif isinstance(outcome, Ask):
            self._answer_with, self._refuse_with = outcome.answer, outcome.refused
            self._unanswered = outcome.unanswered
            self.message = outcome.message
            self.api_key = API_OF_REQUEST[type(outcome.message)].key
            self._connection.ask(self)
        elif isinstance(outcome, HangUp):
            self._end_connection(outcome.reason)
        else:
            self._done(ErrorCode.NONE)

    def _end_connection(self, reason: str) -> None:
        self._done(ErrorCode.NONE)
        if self._connection.is_open:
            self._connection.hang_up(reason)

    def _release(self) -> None:
        charge, self._charge = self._charge, None
        if charge is not None:
            self._connection.release(charge)

    def _done(self, error_code: int) -> None:
        assert not self._is_done, f"{self.request.api.name} was answered twice"
        self._is_done = True
        self._release()
        self.answered_ns = self._connection.now_ns()
        self._connection.server.request_stats[self.request.api].answered(
            error_code, self._arrived_ns, self._started_ns, self._handled_ns, self.answered_ns
        )
        self._connection.done(self)


def _records_bytes(message: Any) -> int:
    """Of the broker's answer."""
    if type(message) is FetchResponse:
        return sum(len(row.records) for row in message.partitions)
    return 0


class KafkaServer(Server):
    """One listener for Kafka clients."""

    def __init__(
        self,
        runtime: Runtime,
        node_id: int,
        listener_name: str,
        handlers: Mapping[ApiKey, Handler],
        view: Callable[[], ClusterView],
        limits: ServerLimits,
        shares: NodeShares | None = None,
    ) -> None:
        """`handlers` are the broker's own; `view()` is what it knows of the cluster now."""
        super().__init__(runtime, node_id, listener_name, handlers, limits, shares)
        self.handlers = handlers
        self._view = view
        self.request_stats = {api: RequestStats() for api in KafkaApi}
        #: {(API, version): requests}, the newest version also before it is used
        self.versions = Counter({(api, api.max_version): 0 for api in KafkaApi})
        self._turns: TurnsAside[asyncio.Future[bool]] = TurnsAside()

    def new_connection(self) -> ServerConnection:
        return KafkaConnection(self)

    def view(self) -> ClusterView:
        """What the broker knows now."""
        return self._view()

    async def compute(self, connection_id: int, work: Callable[[], T]) -> T | None:
        """`work` beside the event loop, when the connection has its turn; None when it has ended before."""
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._turns.enter(connection_id, turn):
            turn.set_result(True)
        try:
            return await self.runtime.tasks.compute(work) if await turn else None
        finally:
            if turn.done() and not turn.cancelled() and turn.result():
                self._next_turn()

    def _next_turn(self) -> None:
        following = self._turns.leave()
        while following is not None and following.cancelled():
            following = self._turns.leave()
        if following is not None:
            following.set_result(True)

    def lost(self, connection_id: int) -> None:
        """The connection has ended: what it waits for is let go at once."""
        super().lost(connection_id)
        for turn in self._turns.forget(connection_id):
            if not turn.cancelled():
                turn.set_result(False)

    def stats(self) -> list[MetricFamily]:
        """As every listener; and which versions are spoken."""
        samples = [
            Sample(
                count,
                (
                    ("request", api.name.lower()),
                    ("version", str(version)),
                    ("listener", self.listener_name),
                ),
            )
            for (api, version), count in sorted(self.versions.items())
        ]
        help_text = "Requests of Kafka clients, by the version that they spoke."
        name = "kafka_server_request_versions_total"
        return [*super().stats(), MetricFamily(name, MetricKind.COUNTER, help_text, samples)]


class KafkaConnection(ServerConnection):
    """One connection of a Kafka client."""

    server: KafkaServer

    def __init__(self, server: KafkaServer) -> None:
        super().__init__(server)
        #: requests that get an answer, in order of arrival, up to the last one that was started
        self._order: deque[KafkaExchange] = deque()
        #: bytes of answers that wait for an earlier one
        self._held_back_bytes = 0
        #: a large request has not been given whole to the broker; those behind it are not started before
        self._is_beginning = False
        #: the parts of it, if it is a write
        self._in_parts: ProduceInParts | None = None
        #: the node ends for an error: the broker is given nothing more
        self._is_silent = False
        #: bytes of records whose answers are written beside the event loop
        self._records_aside_bytes = 0

    def new_decoder(self) -> FrameDecoder:
        return KafkaFrameDecoder(self.server.limits.frame_max_bytes)

    def now_ns(self) -> int:
        """Monotonic, for measurements."""
        return self._clock.now_ns()

    # --- requests -----------------------------------------------------------------------------------------

    def _parse(self, frame: Frame) -> RequestHead | None:
        head = read_head(bytes_of(frame))
        api = head.api
        if api is None:
            self.hang_up(f"api key {head.api_key} is not served here")
        elif api is KafkaApi.API_VERSIONS or api.min_version <= head.api_version <= api.max_version:
            return head
        else:
            self.hang_up(
                f"{api.title} is served in versions {api.min_version} to {api.max_version}, "
                f"not {head.api_version}"
            )
        return None

    def _start(self, parts: RequestHead, frame: Frame, arrived_ns: int, charge: Charge) -> bool:
        api = parts.api
        assert api is not None
        if parts.api_version > api.max_version or parts.api_version < api.min_version:
            # Kafka's rule: the answer has the form of version 0, and the client asks again in one that it
            # lists.
            request = Request(api, 0, parts.correlation_id, "", None)
            self._enter(request, arrived_ns, charge).finish(versions_fields(ErrorCode.UNSUPPORTED_VERSION))
            return True
        try:
            request = read_request(bytes_of(frame), parts, ITEMS_AT_ONCE)
        except TooManyElements:
            self._is_beginning = True
            tasks = self.server.runtime.tasks
            tasks.start(f"read {api.title}", self._start_aside(parts, frame, arrived_ns, charge))
            return True
        except MalformedRequest as error:
            self._hang_up_for(parts, error)
            return False
        exchange = self._enter(request, arrived_ns, charge)
        exchange.begin(self.server.view())
        if not exchange.is_answered:
            exchange.handled(self.now_ns())
        return True

    async def _start_aside(self, parts: RequestHead, frame: Frame, arrived_ns: int, charge: Charge) -> None:
        """Start a request that takes too long for one turn of the event loop."""
        try:
            request = await self.server.compute(
                self.connection_id, lambda: read_request(bytes_of(frame), parts)
            )
        except MalformedRequest as error:
            self.release(charge)
            if self.is_open:
                self._hang_up_for(parts, error)
            return
        if request is None or not self.is_open:  # the peer has gone meanwhile
            self.release(charge)
            return
        exchange = self._enter(request, arrived_ns, charge)
        if request.api in _OF_LIVE_LOGS:
            exchange.begin(self.server.view())
        else:
            await exchange.begin_aside(self.server.view())
        if not exchange.is_answered:
            exchange.handled(self.now_ns())
        write, self._in_parts = self._in_parts, None
        while write is not None and not self._is_silent and write.begin_next(self._give):
            await self._clock.sleep(0)
        self._is_beginning = False
        self.go_on_soon()

    def _may_start(self) -> bool:
        return not self._is_beginning and super()._may_start()

    def _hang_up_for(self, parts: RequestHead, error: MalformedRequest) -> None:
        assert parts.api is not None
        self.hang_up(f"{parts.api.title} v{parts.api_version}: {error}")

    def _enter(self, request: Request, arrived_ns: int, charge: Charge) -> KafkaExchange:
        self.in_flight += 1
        self.server.versions[request.api, request.version] += 1
        exchange = KafkaExchange(self, request, arrived_ns, self.now_ns(), charge)
        if exchange.is_ordered:
            self._order.append(exchange)
        return exchange

    def ask(self, exchange: KafkaExchange) -> None:
        """Give the open question to the broker, or a large write to `_start_aside`."""
        if exchange.is_large and exchange.api_key is ApiKey.PRODUCE:
            self._in_parts = ProduceInParts(exchange)
        else:
            self._give(exchange)

    def _give(self, exchange: Any) -> None:
        assert exchange.api_key is not None
        try:
            self.server.handlers[exchange.api_key](exchange)
        except Exception as error:  # noqa: BLE001  not swallowed: it ends the node, with its own traceback
            self.server.stop_node(exchange.api_key.name, error)
            self._is_silent = True
            self.abort()

    def fall_silent(self) -> None:
        self._is_silent = True
        super().fall_silent()

    def ask_later(self, exchange: KafkaExchange) -> None:
        """Give the open question to the broker once more, in a while."""

        def again() -> None:
            if exchange.is_open:
                self.ask(exchange)
            else:  # the peer has gone meanwhile
                exchange.drop()

        self._clock.call_later(ASKED_AGAIN_MS, again)

    # --- answers, in order --------------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        """Those too that are written now: the next answer gets the room that they leave."""
        return super().unsent_bytes + self._records_aside_bytes

    def hold(self, records_bytes: int) -> None:
        """So many bytes of records are in an answer that is written beside the event loop."""
        if records_bytes:
            self._records_aside_bytes += records_bytes
            self._shares.note_unread(self.account, self.unsent_bytes)

    def let_go(self, records_bytes: int) -> None:
        """That answer is written: it counts once it is sent."""
        if records_bytes:
            self._records_aside_bytes -= records_bytes
            if self.is_open:
                self._shares.note_unread(self.account, self.unsent_bytes)

    def done(self, exchange: KafkaExchange) -> None:
        """Send what no earlier request holds back any more."""
        if not exchange.is_ordered:
            self.finished()
            self.go_on_soon()
            return
        self._held_back_bytes += exchange.answer_bytes
        order = self._order
        while order and order[0].is_answered:
            first = order.popleft()
            self._held_back_bytes -= first.answer_bytes
            self.finished()
            if first.answer is not None and self.is_open:
                self.send(first.answer, first.request.api, *first.times)
        if self._held_back_bytes > self.server.limits.unread_max_bytes and self.is_open:
            self.cut_off(f"{self._held_back_bytes} bytes of answers wait for one that it asked for earlier")
