"""The groups of a `FakeCluster`: the coordinator's own core, at one of the brokers."""

from typing import Any

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from holdfast.rpc.server import Exchange
from tests.unit.broker.groups.play import Play


class FakeGroups:
    """Topic t must have the id T. Time passes for the coordinator when it is asked something."""

    def __init__(self, coordinator_id: int = 1) -> None:
        self.coordinator_id = coordinator_id
        self.play = Play()
        #: {kind of request: what each of it is answered} instead of what the coordinator says
        self.scripted: dict[type, Any] = {}
        self._waiting: list[tuple[str, Exchange]] = []

    def handle(self, broker: Any, exchange: Exchange, now_ms: int) -> None:
        """A request about groups, to that broker."""
        message = exchange.message
        if isinstance(message, FindCoordinatorRequest):
            port = broker.cluster.brokers[self.coordinator_id].port
            row = Coordinator(
                message.group_ids[0], ErrorCode.NONE, None, self.coordinator_id, "127.0.0.1", port
            )
            exchange.respond(FindCoordinatorResponse(ErrorCode.NONE, None, (row,)))
            return
        if type(message) in self.scripted:
            exchange.respond(self.scripted[type(message)])
            return
        self.play.pass_ms(max(0, now_ms - self.play.now_ms))
        self._waiting.append((self.play.request(message), exchange))
        self._answer()

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for name, exchange in waiting:
            if name not in self.play.answers:
                self._waiting.append((name, exchange))
            elif exchange.is_open:
                exchange.respond(self.play.answers[name])
