from collections.abc import Callable

import pytest

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.messages.quorum import BeginQuorumEpochRequest, QuorumEpochResponse
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.effects import Answered, Send, SendFailed
from holdfast.raft.peers import Peers
from holdfast.rpc.core.failures import CallFailure
from holdfast.rpc.server import Exchange, Server
from holdfast.runtime.memory.machine import MemoryWorld, memory_runtime, settle
from holdfast.scenario.raft import fetch_request

BEGIN = BeginQuorumEpochRequest("c", 1, 4, 2)


class Wire:
    """The peers of node 1 and a server that plays voter 2."""

    def __init__(self) -> None:
        self.outcomes: list[Answered | SendFailed] = []
        self.runtime, world = memory_runtime()
        self.world: MemoryWorld = world
        voters = {1: ("localhost", 9001), 2: ("localhost", 9002)}
        config = RaftConfig(1, "c", voters, "/m", True)
        #: where it was missed; true when another address is known
        self.missed: list[tuple[int, tuple[str, int]]] = []
        self.knows_another = False
        self.peers = Peers(self.runtime, config, self.outcomes.append, voters.get, self.note_missed)

        def accept(exchange: Exchange) -> None:
            exchange.respond(QuorumEpochResponse(0, None, 4, 1))

        def ignore(exchange: Exchange) -> None:
            """Park for ever."""

        handlers: dict[ApiKey, Callable[[Exchange], None]] = {
            ApiKey.BEGIN_QUORUM_EPOCH: accept,
            ApiKey.FETCH: ignore,
        }
        self.server = Server(self.runtime, 2, "CONTROLLER", handlers)

    def note_missed(self, voter_id: int, address: tuple[str, int]) -> bool:
        self.missed.append((voter_id, address))
        return self.knows_another

    def failure(self) -> CallFailure:
        (outcome,) = self.outcomes
        assert isinstance(outcome, SendFailed)
        return outcome.failure


async def test_answer_comes_back_with_the_id_of_its_request() -> None:
    wire = Wire()
    await wire.server.start("localhost", 9002)
    for request_id in (7, 8):
        wire.peers.send(Send(request_id, 2, BEGIN, 1_000))
        await settle()
    assert [outcome.request_id for outcome in wire.outcomes] == [7, 8]
    assert all(isinstance(outcome, Answered) for outcome in wire.outcomes)
    wire.peers.close()


async def test_dead_process_refuses() -> None:
    """D9: the strongest evidence."""
    wire = Wire()
    wire.peers.send(Send(7, 2, BEGIN, 1_000))
    await settle()
    assert wire.failure() is CallFailure.REFUSED


@pytest.mark.parametrize("listener", [None, 3])
async def test_an_address_where_the_voter_is_not_met_says_nothing_of_it_while_another_is_known(
    listener: int | None,
) -> None:
    """K30: no process, or another node, which has moved there."""
    wire = Wire()
    wire.knows_another = True
    if listener is not None:
        await Server(wire.runtime, listener, "CONTROLLER", {}).start("localhost", 9002)
    wire.peers.send(Send(7, 2, BEGIN, 1_000))
    await settle()
    assert wire.missed == [(2, ("localhost", 9002))]
    assert wire.failure() is CallFailure.UNREACHABLE
    wire.peers.close()


async def test_broken_connection_is_told_from_silence() -> None:
    wire = Wire()
    await wire.server.start("localhost", 9002)
    wire.peers.send(Send(7, 2, fetch_request(1, 4, 0, -1), 1_000))
    await settle()
    wire.world.network.reset_connections(9002)
    await settle()
    assert wire.failure() is CallFailure.DISCONNECTED


@pytest.mark.parametrize("is_cut_off", [True, False])
async def test_silence_is_no_evidence_and_ends_the_connection(is_cut_off: bool) -> None:
    """N-4: no late answer may come on it. D9: timeouts prove nothing."""
    wire = Wire()
    await wire.server.start("localhost", 9002)
    wire.peers.send(Send(6, 2, BEGIN, 1_000))
    await settle()
    wire.outcomes.clear()
    if is_cut_off:
        wire.world.network.cut_off(9002)
    wire.peers.send(Send(7, 2, fetch_request(1, 4, 0, -1), 1_000))
    await wire.world.clock.advance(500)
    if not is_cut_off:
        wire.peers.send(Send(8, 2, BEGIN, 1_000))  # the connection is not silent
        await settle()
        wire.outcomes.clear()
    await wire.world.clock.advance(600)
    assert wire.failure() is CallFailure.TIMED_OUT
    wire.world.network.mend(9002)
    await settle()
    assert wire.server.connection_count == 0


async def test_request_that_the_peer_does_not_serve_is_rejected() -> None:
    wire = Wire()
    server = Server(wire.runtime, 2, "CONTROLLER", {})
    await server.start("localhost", 9002)
    wire.peers.send(Send(7, 2, BEGIN, 1_000))
    await settle()
    assert wire.failure() is CallFailure.REJECTED
    wire.peers.close()


async def test_quiet_waits_for_outcomes_but_not_for_ever() -> None:
    wire = Wire()
    await wire.server.start("localhost", 9002)
    wire.peers.send(Send(7, 2, BEGIN, 1_000))
    await wire.peers.quiet(500)
    assert len(wire.outcomes) == 1
    wire.peers.send(Send(8, 2, fetch_request(1, 4, 0, -1), 10_000))
    task = wire.runtime.tasks.start("quiet", wire.peers.quiet(500))
    await wire.world.clock.advance(499)
    assert not task.is_done
    await wire.world.clock.advance(2)
    assert task.is_done
    wire.peers.close()
    await settle()
