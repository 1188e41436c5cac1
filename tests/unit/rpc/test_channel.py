"""The asking side: matching, deadlines, loss, versions; and the pool's single flight and back-off (D9)."""

import asyncio
import dataclasses
from typing import Any

import pytest

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import encode_refusal, encode_response, parse_request
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import FrameDecoder, encode_frame
from holdfast.protocol.messages import APIS
from holdfast.protocol.messages.api_versions import ApiVersionRange, ApiVersionsResponse
from holdfast.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from holdfast.protocol.messages.topics import DeleteTopicsRequest
from holdfast.rpc.channel import (
    CallRefused,
    CallTimedOut,
    Channel,
    Disconnected,
    NotConnected,
    Pool,
    common_versions,
    was_surely_not_done,
)
from holdfast.runtime.api import Connection, ConnectionRefused, ConnectTimeout, NetworkError
from holdfast.runtime.memory.machine import memory_runtime, settle

SERVED = (ApiVersionRange(ApiKey.INIT_PRODUCER_ID, 0, 0), ApiVersionRange(ApiKey.API_VERSIONS, 0, 0))


def ask(producer_id: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(producer_id=producer_id, producer_epoch=0)


class Peer:
    """A hand-played server: answers ApiVersions, keeps the ids of all else. `ConnectionHandler`."""

    def __init__(self, *, is_mute: bool = False) -> None:
        self.connection: Connection | None = None
        self.is_mute = is_mute
        self.is_lost = False
        self.asked: list[tuple[int, Any]] = []
        self._decoder = FrameDecoder()

    def connection_made(self, connection: Connection) -> None:
        self.connection = connection

    def bytes_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            parts = parse_request(frame.body)
            if parts.api_key != ApiKey.API_VERSIONS:
                self.asked.append((parts.correlation_id, parts.message))
            elif not self.is_mute:
                self.write(encode_response(0, parts.correlation_id, ApiVersionsResponse(0, None, 7, SERVED)))

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: NetworkError | None) -> None:
        self.is_lost = True

    def write(self, buffers: Any) -> None:
        assert self.connection is not None
        self.connection.write(buffers)

    async def answer(self, index: int) -> None:
        correlation_id, message = self.asked[index]
        self.write(encode_response(0, correlation_id, InitProducerIdResponse(0, None, message[0], 0)))
        await settle()


class Town:
    """A network with one hand-played server that makes a new `Peer` for every connection."""

    def __init__(self, *, is_mute: bool = False) -> None:
        self.runtime, self.world = memory_runtime()
        self.is_mute = is_mute
        self.peers: list[Peer] = []
        self.port = 9_092

    async def open(self) -> None:
        def accept() -> Peer:
            self.peers.append(Peer(is_mute=self.is_mute))
            return self.peers[-1]

        await self.runtime.network.listen("127.0.0.1", self.port, accept)

    async def channel(self, silence_max_ms: int | None = None) -> tuple[Channel, Peer]:
        await self.open()
        channel = Channel(self.runtime, "127.0.0.1", self.port, "test", silence_max_ms=silence_max_ms)
        await channel.connect(1_000)
        return channel, self.peers[-1]

    async def advance(self, duration_ms: float) -> None:
        await self.world.clock.advance(duration_ms)
        await settle()


async def test_calls_are_written_in_order_and_answered_in_any() -> None:
    town = Town()
    channel, peer = await town.channel()
    calls = [channel.call_soon(ask(n), 1_000) for n in range(3)]
    await settle()
    assert [message[0] for _, message in peer.asked] == [0, 1, 2]
    await peer.answer(2)
    await peer.answer(0)
    assert [call.done() for call in calls] == [True, False, True]
    assert (await calls[2]).producer_id == 2
    await peer.answer(1)
    assert channel.in_flight_count == 0
    assert channel.node_id == 7


async def test_a_call_times_out_and_its_late_answer_is_dropped() -> None:
    town = Town()
    channel, peer = await town.channel()
    slow, patient = channel.call_soon(ask(1), 100), channel.call_soon(ask(2), 1_000)
    await town.advance(50)
    quick = channel.call_soon(ask(3), 1_000)
    await settle()
    await peer.answer(2)  # the peer is alive
    assert quick.done()
    await town.advance(49)
    assert not slow.done()
    await town.advance(1)
    with pytest.raises(CallTimedOut, match="INIT_PRODUCER_ID within 100 ms"):
        await slow
    await peer.answer(0)
    await peer.answer(1)
    assert (await patient).producer_id == 2
    assert channel.is_connected


async def test_every_call_has_its_own_deadline() -> None:
    town = Town()
    channel, peer = await town.channel()
    calls = [channel.call_soon(ask(n), 100 * (3 - n)) for n in range(3)]
    await settle()
    peer.write(encode_refusal(1, ErrorCode.NONE, "late"))  # alive
    await settle()
    for expected in ([2], [1, 2], [0, 1, 2]):
        await town.advance(100)
        assert [n for n, call in enumerate(calls) if call.done()] == expected
    for call in calls:
        with pytest.raises(CallTimedOut):
            await call
    assert channel.is_connected


async def test_a_peer_silent_since_the_call_is_given_up_with_all_that_waits() -> None:
    town = Town()
    channel, peer = await town.channel()
    timed_out, patient = channel.call_soon(ask(1), 100), channel.call_soon(ask(2), 60_000)
    await town.advance(100)
    with pytest.raises(CallTimedOut):
        await timed_out
    with pytest.raises(Disconnected, match="is silent"):
        await patient
    assert not channel.is_connected
    assert peer.is_lost


async def test_a_silent_peer_is_given_up_before_the_time_of_its_call_and_a_slow_one_is_not() -> None:
    """A long answer may take the whole time of its call, as long as some of it comes."""
    town = Town()
    channel, peer = await town.channel(silence_max_ms=200)
    await town.advance(1_000)
    assert channel.is_connected, "nothing is asked, so no answer is missed"
    call = channel.call_soon(ask(1), 60_000)
    await settle()
    frame = b"".join(encode_response(0, peer.asked[0][0], InitProducerIdResponse(0, None, 1, 0)))
    for byte in frame[:5]:
        await town.advance(199)
        peer.write([bytes([byte])])
        await settle()
    assert channel.is_connected
    await town.advance(200)
    with pytest.raises(Disconnected, match="is silent"):
        await call


async def test_loss_fails_all_pending_calls_and_later_ones() -> None:
    town = Town()
    channel, _ = await town.channel()
    calls = [channel.call_soon(ask(n), 1_000) for n in range(3)]
    await settle()
    town.world.network.kill(town.port)
    await settle()
    for call in calls:
        with pytest.raises(Disconnected):
            await call
    with pytest.raises(Disconnected):
        await channel.call(ask(4), 1_000)
    with pytest.raises(Disconnected):
        channel.send(ask(5))
    assert not channel.is_connected


async def test_close_fails_pending_calls_at_once() -> None:
    town = Town()
    channel, peer = await town.channel()
    call = channel.call_soon(ask(1), 1_000)
    channel.close()
    with pytest.raises(Disconnected, match="closed on this side"):
        await call
    await settle()
    assert peer.is_lost
    assert len(peer.asked) == 1  # what was queued was still sent


async def test_a_refusal_raises_with_its_code_and_sentence() -> None:
    town = Town()
    channel, peer = await town.channel()
    first, second = channel.call_soon(ask(1), 1_000), channel.call_soon(ask(2), 1_000)
    await settle()
    peer.write(encode_refusal(peer.asked[0][0], ErrorCode.NOT_CONTROLLER, "ask node 3"))
    peer.write(encode_frame([peer.asked[1][0], None, [31_000, "from a newer peer"]]))
    with pytest.raises(CallRefused, match="ask node 3") as caught:
        await first
    assert caught.value.error_code == ErrorCode.NOT_CONTROLLER
    with pytest.raises(CallRefused, match="from a newer peer") as caught:
        await second
    assert caught.value.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    "body", [[1_000_000, []], [1], "x", [2, ["no number"]], [2, None, ["x", 1]], [2, 5, [1, "x"]]]
)
async def test_an_answer_that_cannot_be_understood_ends_the_channel(body: Any) -> None:
    town = Town()
    channel, peer = await town.channel()
    call = channel.call_soon(ask(1), 1_000)
    await settle()
    assert [correlation_id for correlation_id, _ in peer.asked] == [2]
    peer.write(encode_frame(body))
    with pytest.raises(Disconnected, match="cannot be understood"):
        await call
    await settle()
    assert peer.is_lost


async def test_a_cancelled_call_disturbs_no_other() -> None:
    town = Town()
    channel, peer = await town.channel()
    cancelled, other = channel.call_soon(ask(1), 1_000), channel.call_soon(ask(2), 1_000)
    await settle()
    cancelled.cancel()
    await peer.answer(0)
    await peer.answer(1)
    assert (await other).producer_id == 2


async def test_send_expects_no_answer() -> None:
    town = Town()
    channel, peer = await town.channel()
    channel.send(ask(1))
    await settle()
    assert channel.in_flight_count == 0
    await peer.answer(0)  # a peer that answers nevertheless is not taken for broken
    assert channel.is_connected


async def test_who_only_sends_hears_when_too_much_is_queued_and_when_there_is_room_again() -> None:
    town = Town()
    channel, _ = await town.channel()
    await channel.writable()
    channel.pause_writing()
    assert not channel.is_writable
    room = channel.writable()
    await settle()
    assert not room.done()
    channel.resume_writing()
    assert channel.is_writable
    await room


async def test_who_waits_for_room_hears_of_the_loss() -> None:
    town = Town()
    channel, peer = await town.channel()
    channel.pause_writing()
    room = channel.writable()
    assert peer.connection is not None
    peer.connection.abort()
    for waiter in (room, channel.writable()):
        with pytest.raises(Disconnected):
            await waiter
    assert not channel.is_writable


async def test_more_calls_than_the_limit_are_refused_here() -> None:
    town = Town()
    channel, _ = await town.channel()
    calls = [channel.call_soon(ask(n), 1_000) for n in range(Channel.IN_FLIGHT_MAX + 1)]
    with pytest.raises(CallRefused) as caught:
        await calls[-1]
    assert caught.value.error_code == ErrorCode.REQUEST_LIMIT_REACHED
    for call in calls:
        call.cancel()


async def test_a_request_larger_than_a_frame_is_refused_here() -> None:
    town = Town()
    channel, peer = await town.channel()
    channel._versions[ApiKey.DELETE_TOPICS] = 0
    with pytest.raises(CallRefused) as caught:
        await channel.call(DeleteTopicsRequest(timeout_ms=1, names=("x" * 30_000,) * 300), 1_000)
    assert caught.value.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (channel.in_flight_count, peer.asked) == (0, [])


async def test_a_request_that_cannot_be_written_leaves_nothing_behind() -> None:
    town = Town()
    channel, _ = await town.channel()
    channel._versions[ApiKey.DELETE_TOPICS] = 0
    with pytest.raises(UnicodeEncodeError):
        await channel.call(DeleteTopicsRequest(timeout_ms=1, names=("caf\udce9",)), 100)
    assert channel.in_flight_count == 0
    await town.advance(200)
    assert channel.is_connected


# --- connecting -------------------------------------------------------------------------------------------


async def test_an_api_that_the_peer_does_not_serve_is_refused_here_with_its_name() -> None:
    town = Town()
    channel, peer = await town.channel()
    with pytest.raises(CallRefused, match="no version of DELETE_TOPICS in common") as caught:
        await channel.call(DeleteTopicsRequest(timeout_ms=1, names=()), 1_000)
    assert caught.value.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert peer.asked == []


@pytest.mark.parametrize(
    ("ours", "theirs", "common"),
    [
        ((0, 3), (0, 5), 3),
        ((0, 3), (2, 2), 2),
        ((2, 3), (0, 1), None),
        ((0, 0), (1, 4), None),
        ((1, 4), (0, 1), 1),
    ],
)
def test_the_highest_common_version_is_taken(
    ours: tuple[int, int], theirs: tuple[int, int], common: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = dataclasses.replace(APIS[ApiKey.FETCH], min_version=ours[0], max_version=ours[1])
    monkeypatch.setitem(APIS, ApiKey.FETCH, api)
    response = ApiVersionsResponse(0, None, 1, (ApiVersionRange(1, *theirs), ApiVersionRange(30_000, 0, 9)))
    assert common_versions(response) == ({} if common is None else {ApiKey.FETCH: common})


async def test_connecting_where_no_process_listens_is_refused() -> None:
    runtime, _ = memory_runtime()
    with pytest.raises(ConnectionRefused):
        await Channel(runtime, "127.0.0.1", 1, "test").connect(1_000)


async def test_a_peer_that_accepts_and_says_nothing_is_a_connect_timeout() -> None:
    town = Town(is_mute=True)
    await town.open()
    channel = Channel(town.runtime, "127.0.0.1", town.port, "test")
    outcome: list[BaseException | None] = []
    town.runtime.tasks.start("connect", collect(channel.connect(300), outcome))
    await town.advance(299)
    assert outcome == []
    await town.advance(1)
    assert isinstance(outcome[0], ConnectTimeout)
    assert town.peers[0].is_lost


async def test_a_peer_that_hangs_up_right_behind_its_versions_leaves_no_channel() -> None:
    """The answer is there, and the loss is heard of before the caller that waits for it goes on."""
    town = Town()
    await town.open()
    channel = Channel(town.runtime, "localhost", town.port, "test")
    heard = channel.bytes_received

    def heard_and_lost(data: bytes) -> None:
        heard(data)
        channel.connection_lost(None)

    channel.bytes_received = heard_and_lost  # type: ignore[method-assign]
    with pytest.raises(NotConnected):
        await channel.connect(1_000)
    assert not channel.is_connected


async def test_a_peer_that_hangs_up_while_versions_are_agreed_was_asked_nothing() -> None:
    town = Town(is_mute=True)
    await town.open()
    outcome: list[BaseException | None] = []
    channel = Channel(town.runtime, "127.0.0.1", town.port, "test")
    town.runtime.tasks.start("connect", collect(channel.connect(300), outcome))
    await settle()
    town.world.network.reset_connections(town.port)
    await settle()
    assert isinstance(outcome[0], NotConnected)
    assert was_surely_not_done(outcome[0])


async def test_only_what_fails_before_the_request_is_sent_was_surely_not_done() -> None:
    """A host name that is not known, a peer that hangs up at once: the request never left."""
    town = Town(is_mute=True)
    await town.open()
    outcome = start_calls(Pool(town.runtime, "test"), town, 1)
    await settle()
    town.world.network.reset_connections(town.port)
    await settle()
    assert isinstance(outcome[0], NotConnected)
    assert was_surely_not_done(outcome[0])
    assert not was_surely_not_done(Disconnected("h:1 hung up while the answer was waited for"))
    assert not was_surely_not_done(CallTimedOut("h:1 did not answer"))


async def collect(work: Any, outcome: list[BaseException | None]) -> None:
    try:
        await work
    except (NetworkError, CallRefused) as error:
        outcome.append(error)
    else:
        outcome.append(None)


# --- pool -------------------------------------------------------------------------------------------------


async def pool_call(pool: Pool, town: Town, timeout_ms: float = 60_000) -> Any:
    return await pool.call("127.0.0.1", town.port, ask(1), timeout_ms)


def start_calls(pool: Pool, town: Town, count: int, timeout_ms: float = 60_000) -> list[BaseException | None]:
    outcome: list[BaseException | None] = []
    for number in range(count):
        town.runtime.tasks.start(f"call {number}", collect(pool_call(pool, town, timeout_ms), outcome))
    return outcome


async def test_concurrent_callers_share_one_connection() -> None:
    town = Town()
    await town.open()
    pool = Pool(town.runtime, "test")
    outcome = start_calls(pool, town, 3)
    await settle()
    assert len(town.peers) == 1
    assert len(town.peers[0].asked) == 3
    for index in range(3):
        await town.peers[0].answer(index)
    assert outcome == [None] * 3


async def test_a_lost_connection_is_made_anew_at_once() -> None:
    town = Town()
    await town.open()
    pool = Pool(town.runtime, "test")
    outcome = start_calls(pool, town, 1)
    await settle()
    town.world.network.reset_connections(town.port)
    await settle()
    assert isinstance(outcome[0], Disconnected)
    again = start_calls(pool, town, 1)
    await settle()  # no time has passed
    await town.peers[1].answer(0)
    assert again == [None]


async def test_only_repeated_failure_backs_off_doubling_up_to_a_limit_with_jitter() -> None:
    town = Town()
    pool = Pool(town.runtime, "test")
    waits: list[int] = []
    for _ in range(10):
        began_ms = town.runtime.clock.now_ms()
        outcome = start_calls(pool, town, 1)
        await settle()
        while not outcome:
            await town.advance(1)
        assert isinstance(outcome[0], ConnectionRefused)
        waits.append(town.runtime.clock.now_ms() - began_ms)
    assert waits[:2] == [0, 0]
    for wait_ms, bound_ms in zip(waits[2:], [20, 40, 80, 160, 320, 640, 1_000, 1_000], strict=True):
        assert bound_ms // 2 <= wait_ms <= bound_ms
    assert waits[2:8] != [20, 40, 80, 160, 320, 640]

    await town.open()
    served = start_calls(pool, town, 1)
    await town.advance(1_000)
    await town.peers[0].answer(0)
    assert served == [None]
    town.world.network.kill(town.port)
    await settle()
    began_ms = town.runtime.clock.now_ms()
    for _ in range(2):
        outcome = start_calls(pool, town, 1)
        await settle()
        assert isinstance(outcome[0], ConnectionRefused)  # success has forgotten the failures
    assert town.runtime.clock.now_ms() == began_ms


async def test_who_cannot_wait_for_the_next_attempt_hears_of_the_last_one() -> None:
    town = Town()
    pool = Pool(town.runtime, "test")
    for _ in range(8):
        start_calls(pool, town, 1)
        await town.advance(2_000)
    outcome = start_calls(pool, town, 1, timeout_ms=50)
    await town.advance(50)
    assert isinstance(outcome[0], ConnectionRefused)


async def test_who_waits_for_a_host_that_does_not_answer_times_out_alone() -> None:
    town = Town()
    await town.open()
    town.world.network.cut_off(town.port)
    pool = Pool(town.runtime, "test", connect_timeout_ms=3_000)
    hasty, patient = start_calls(pool, town, 1, timeout_ms=100), start_calls(pool, town, 1)
    await town.advance(100)
    assert isinstance(hasty[0], ConnectTimeout)
    assert patient == []
    await town.advance(2_900)
    assert isinstance(patient[0], ConnectTimeout)


async def test_after_disconnect_no_late_answer_can_come() -> None:
    town = Town()
    await town.open()
    pool = Pool(town.runtime, "test")
    outcome = start_calls(pool, town, 1)
    await settle()
    pool.disconnect("127.0.0.1", town.port)
    await settle()
    assert isinstance(outcome[0], Disconnected)
    assert town.peers[0].is_lost
    again = start_calls(pool, town, 1)
    await settle()
    await town.peers[1].answer(0)
    assert again == [None]


async def test_a_closed_pool_makes_no_further_attempt() -> None:
    town = Town()
    pool = Pool(town.runtime, "test")
    for _ in range(3):
        start_calls(pool, town, 1)
        await town.advance(5)
    outcome = start_calls(pool, town, 1)
    await town.advance(5)
    assert outcome == []  # backs off
    pool.close()
    await town.open()
    await town.advance(2_000)
    assert isinstance(outcome[0], NotConnected)
    assert town.peers == []


async def test_closing_the_pool_ends_calls_and_attempts() -> None:
    town = Town()
    await town.open()
    pool = Pool(town.runtime, "test")
    connected = start_calls(pool, town, 1)
    await settle()
    town.port = 9_093
    connecting = start_calls(pool, town, 1)
    town.world.network.cut_off(9_093)
    await asyncio.sleep(0)
    pool.close()
    await settle()
    assert isinstance(connected[0], Disconnected)
    assert isinstance(connecting[0], NotConnected)
    with pytest.raises(NotConnected, match="pool is closed"):
        await pool_call(pool, town)
    assert town.peers[0].is_lost
