"""The command table of the raft scenarios: one node; the file plays its disk, peers and clock.

Output is every effect in order, one a line. Random delays are drawn at their lower bound, persisted states
are confirmed at once. Times are milliseconds since the start.

node 1 voters=(1,2,3) [observer] [epoch=3] [voted_for=2] [leader=2] [log=1:3,2:2]      log: epoch:records
tick 500                        let 500 ms pass
until-deadline                  let time pass up to the node's next deadline
vote from=2 epoch=4 last=3@7 [pre]                  | begin from=2 epoch=4
end from=2 epoch=4 successors=(3,1)
fetch from=2 epoch=4 offset=7 last_epoch=3 [wait=500]
describe                        | resign            | status
propose a b                     one batch, as leader
flushed [6]                     everything (or up to 6) is durable
truncated
answer 2 granted|refused|ok [epoch=4] [leader=2] [error=CODE]           to the outstanding vote, begin, end
data 2 [epoch=4] [records=4:2,5:1] [high_watermark=6] [diverging=3@5] [error=CODE] [leader=2]   to the fetch
fail 2 refused|disconnected|timed_out               every outstanding request to voter 2
"""

from collections.abc import Callable, Iterator

from cli.datadriven import Command
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    METADATA_TOPIC_ID,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    QuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from protocol.record_batch import Record, encode_batch
from raft.config import RaftConfig
from raft.effects import (
    Answered,
    Append,
    AppendFetched,
    Committed,
    Effect,
    Event,
    Flush,
    Flushed,
    LeaderChanged,
    Note,
    Persist,
    Persisted,
    Propose,
    RaftRequest,
    RaftResponse,
    Received,
    Reply,
    Resign,
    Send,
    SendFailed,
    SendFailure,
    Tick,
    Truncate,
    Truncated,
)
from raft.log_shape import LogShape
from raft.node import RaftNode
from raft.quorum import QuorumState

CLUSTER_ID = "test"


class LowRandom:
    """`runtime.api.Random` whose draws are always the lowest: delays become predictable."""

    def randint(self, low: int, high: int) -> int:
        return low

    def random(self) -> float:
        return 0.0

    def uuid(self) -> bytes:
        return bytes(16)


def make_config(node_id: int, voter_ids: tuple[int, ...], *, is_voter: bool = True) -> RaftConfig:
    """A member with the default timeouts."""
    return RaftConfig(node_id, CLUSTER_ID, {id: ("voter", 9000 + id) for id in voter_ids}, "m", is_voter)


def shape_of(log: str) -> LogShape:
    """The shape of a log given as `epoch:records,epoch:records`."""
    starts: list[tuple[int, int]] = []
    end_offset = 0
    for epoch, count in runs(log):
        starts.append((epoch, end_offset))
        end_offset += count
    return LogShape(starts, end_offset)


def runs(log: str) -> Iterator[tuple[int, int]]:
    """(epoch, number of records) of each run in `1:3,2:2`."""
    for part in log.split(",") if log else ():
        epoch, _, count = part.partition(":")
        yield int(epoch), int(count)


def batches(base_offset: int, log: str) -> bytes:
    """Batches of one record each, from `base_offset` on."""
    encoded = b""
    for epoch, count in runs(log):
        for _ in range(count):
            record = Record(base_offset, 0, None, b"value")
            encoded += encode_batch([record], base_offset=base_offset, leader_epoch=epoch)
            base_offset += 1
    return encoded


def fetch_request(from_id: int, epoch: int, offset: int, last_epoch: int, wait_ms: int = 500) -> FetchRequest:
    """The fetch of a quorum member."""
    row = FetchPartition(METADATA_TOPIC_ID, 0, epoch, offset, last_epoch, offset, 1 << 20)
    return FetchRequest(CLUSTER_ID, from_id, -1, wait_ms, 1, 1 << 20, (row,))


def fetch_response(
    leader_id: int,
    epoch: int,
    *,
    error: ErrorCode = ErrorCode.NONE,
    high_watermark: int = 0,
    diverging: tuple[int, int] | None = None,
    records: bytes = b"",
) -> FetchResponse:
    """An answer to a fetch."""
    row = FetchPartitionResponse(
        METADATA_TOPIC_ID,
        0,
        error,
        high_watermark,
        0,
        -1,
        EpochEndOffset(*diverging) if diverging else None,
        leader_id,
        epoch,
        memoryview(records),
    )
    return FetchResponse(ErrorCode.NONE, None, (row,))


class Harness:
    """One node and everything around it."""

    def __init__(self) -> None:
        self.node: RaftNode = None  # type: ignore[assignment]  # the first command makes it
        self.now_ms = 0
        self._tokens: dict[int, str] = {}
        #: voter -> its outstanding requests, oldest first; answers go to the newest
        self._sent: dict[int, list[Send]] = {}

    def execute(self, command: Command) -> list[str]:
        """Run one command; returns the lines that it prints."""
        table: dict[str, Callable[[Command], list[str]]] = {
            "node": self._node,
            "tick": self._tick,
            "until-deadline": self._until_deadline,
            "vote": self._vote,
            "begin": self._begin,
            "end": self._end,
            "fetch": self._fetch,
            "describe": lambda _: self._receive("describe", DescribeQuorumRequest()),
            "resign": lambda _: self.give(Resign("told to")),
            "status": lambda _: [self._status()],
            "propose": lambda c: self.give(Propose(tuple(word.encode() for word in c.words))),
            "flushed": lambda c: self.give(Flushed(int(c.words[0]) if c.words else self.node.log_end_offset)),
            "truncated": lambda _: self.give(Truncated(self.node.log_end_offset)),
            "answer": self._answer,
            "data": self._data,
            "fail": self._fail,
        }
        return table[command.name](command) or ["ok"]

    # --- commands --------------------------------------------------------------------------------------

    def _node(self, command: Command) -> list[str]:
        node_id = int(command.words[0])
        config = make_config(node_id, command.ids("voters"), is_voter="observer" not in command.words)
        voted_for, leader = command.integer("voted_for", -1), command.integer("leader", -1)
        state = QuorumState(
            command.integer("epoch", 0),
            None if voted_for < 0 else voted_for,
            None if leader < 0 else leader,
        )
        self._sent.clear()
        self.node = RaftNode(config, LowRandom(), state, shape_of(command.text("log", "")))
        return self._print(self.node.start(self.now_ms))

    def _tick(self, command: Command) -> list[str]:
        self.now_ms += int(command.words[0])
        return self.give(Tick())

    def _until_deadline(self, command: Command) -> list[str]:
        deadline_ms = self.node.next_deadline_ms()
        assert deadline_ms is not None
        self.now_ms = max(self.now_ms, deadline_ms)
        return [f"at {self.now_ms}", *self.give(Tick())]

    def _vote(self, command: Command) -> list[str]:
        last_epoch, last_offset = command.text("last").split("@")
        candidate_id, is_pre_vote = command.integer("from"), "pre" in command.words
        request = VoteRequest(
            CLUSTER_ID,
            command.integer("epoch"),
            candidate_id,
            self.node.snapshot().node_id,
            int(last_epoch),
            int(last_offset),
            is_pre_vote,
        )
        return self._receive(f"{candidate_id}'s {'pre-vote' if is_pre_vote else 'vote'}", request)

    def _begin(self, command: Command) -> list[str]:
        leader_id, own_id = command.integer("from"), self.node.snapshot().node_id
        request = BeginQuorumEpochRequest(CLUSTER_ID, leader_id, command.integer("epoch"), own_id)
        return self._receive(f"{leader_id}'s begin", request)

    def _end(self, command: Command) -> list[str]:
        leader_id = command.integer("from")
        request = EndQuorumEpochRequest(
            CLUSTER_ID, leader_id, command.integer("epoch"), command.ids("successors", ())
        )
        return self._receive(f"{leader_id}'s end", request)

    def _fetch(self, command: Command) -> list[str]:
        from_id = command.integer("from")
        request = fetch_request(
            from_id,
            command.integer("epoch"),
            command.integer("offset"),
            command.integer("last_epoch"),
            command.integer("wait", 500),
        )
        return self._receive(f"{from_id}'s fetch", request)

    def _answer(self, command: Command) -> list[str]:
        voter_id, word = int(command.words[0]), command.words[1]
        send = self._take(voter_id, is_fetch=False)
        epoch = command.integer("epoch", self.node.raft_epoch)
        leader_id = command.integer("leader", -1)
        error = ErrorCode[command.text("error", "NONE")]
        text = None if error is ErrorCode.NONE else "do better"
        response: RaftResponse = QuorumEpochResponse(error, text, epoch, leader_id)
        if isinstance(send.request, VoteRequest):
            response = VoteResponse(error, text, epoch, leader_id, word == "granted")
        return self.give(Answered(send.request_id, response))

    def _data(self, command: Command) -> list[str]:
        voter_id = int(command.words[0])
        send = self._take(voter_id, is_fetch=True)
        diverging = command.text("diverging", "")
        response = fetch_response(
            command.integer("leader", voter_id),
            command.integer("epoch", self.node.raft_epoch),
            error=ErrorCode[command.text("error", "NONE")],
            high_watermark=command.integer("high_watermark", 0),
            diverging=(int(diverging.split("@")[0]), int(diverging.split("@")[1])) if diverging else None,
            records=batches(self.node.log_end_offset, command.text("records", "")),
        )
        return self.give(Answered(send.request_id, response))

    def _fail(self, command: Command) -> list[str]:
        voter_id, failure = int(command.words[0]), SendFailure[command.words[1].upper()]
        lines: list[str] = []
        for send in self._sent.pop(voter_id):
            lines += self.give(SendFailed(send.request_id, failure))
        return lines

    # --- inside ----------------------------------------------------------------------------------------

    def give(self, event: Event) -> list[str]:
        """One event into the node."""
        return self._print(self.node.handle(event, self.now_ms))

    def _receive(self, name: str, request: RaftRequest) -> list[str]:
        token = len(self._tokens) + 1
        self._tokens[token] = name
        return self.give(Received(token, request, 1_000_000 + self.now_ms))

    def _take(self, voter_id: int, *, is_fetch: bool) -> Send:
        for send in reversed(self._sent[voter_id]):
            if isinstance(send.request, FetchRequest) is is_fetch:
                self._sent[voter_id].remove(send)
                return send
        raise AssertionError(f"nothing was asked of {voter_id}")

    def _print(self, effects: list[Effect]) -> list[str]:
        lines: list[str] = []
        for effect in effects:
            if isinstance(effect, Send):
                self._sent.setdefault(effect.voter_id, []).append(effect)
            lines.append(self._line(effect))
        for effect in effects:
            if isinstance(effect, Persist):
                lines += self.give(Persisted(effect.state))
        return lines

    def _status(self) -> str:
        now = self.node.snapshot()
        return (
            f"{now.node_id} {now.role} epoch={now.raft_epoch} leader={_id(now.leader_id)} "
            f"voted_for={_id(now.voted_for)} log_end={now.log_end_offset}@{now.last_epoch} "
            f"flushed={now.flushed_offset} high_watermark={now.high_watermark}"
        )

    def _line(self, effect: Effect) -> str:
        match effect:
            case Persist(state):
                return (
                    f"persist epoch={state.raft_epoch} voted_for={_id(state.voted_for)} "
                    f"leader={_id(state.leader_id)}"
                )
            case Append(base_offset, epoch, values, is_control):
                what = "LeaderChange" if is_control else " ".join(value.decode() for value in values)
                return f"append {base_offset} epoch={epoch} {what}"
            case AppendFetched(base_offset, end_offset):
                return f"append-fetched {base_offset} to {end_offset}"
            case Truncate(end_offset):
                return f"truncate to {end_offset}"
            case Flush():
                return "flush"
            case Send(_, voter_id, request):
                return f"send {voter_id} {_request(request)}"
            case Reply(token, response, read):
                text = f"reply to {self._tokens[token]}: {_response(response)}"
                return text if read is None else f"{text} records from {read.fetch_offset}"
            case Committed(up_to_offset):
                return f"committed {up_to_offset}"
            case LeaderChanged(leader_id, epoch, start_offset):
                start = "" if start_offset is None else f" from {start_offset}"
                return f"leader {_id(leader_id)} epoch={epoch}{start}"
            case Note(text):
                return f"note: {text}"


def _id(node_id: int | None) -> str:
    return "none" if node_id is None or node_id < 0 else str(node_id)


def _request(request: RaftRequest) -> str:
    match request:
        case VoteRequest():
            kind = "pre-vote" if request.pre_vote else "vote"
            return (
                f"{kind} epoch={request.raft_epoch} last={request.last_epoch}@{request.last_epoch_end_offset}"
            )
        case BeginQuorumEpochRequest():
            return f"begin epoch={request.raft_epoch}"
        case EndQuorumEpochRequest():
            successors = ",".join(map(str, request.preferred_successors))
            return f"end epoch={request.raft_epoch} successors=({successors})"
        case FetchRequest(partitions=(row,), max_wait_ms=wait_ms):
            return (
                f"fetch epoch={row.current_leader_epoch} offset={row.fetch_offset} "
                f"last_epoch={row.last_fetched_epoch} wait={wait_ms}"
            )
    raise AssertionError(f"a node never sends {request}")


def _response(response: RaftResponse) -> str:
    match response:
        case VoteResponse():
            word = "granted" if response.vote_granted else "refused"
            leader = f"epoch={response.raft_epoch} leader={_id(response.leader_id)}"
            return f"{_error(response.error_code)}{word} {leader}"
        case QuorumEpochResponse():
            return (
                f"{_error(response.error_code)}epoch={response.raft_epoch} leader={_id(response.leader_id)}"
            )
        case FetchResponse(partitions=()):
            return _error(response.error_code).rstrip()
        case FetchResponse(partitions=(row,)):
            leader = f"epoch={row.leader_epoch} leader={_id(row.leader_id)}"
            if row.error_code != ErrorCode.NONE:
                return f"{_error(row.error_code)}{leader}"
            if row.diverging_epoch is not None:
                return f"{leader} diverging={row.diverging_epoch.epoch}@{row.diverging_epoch.end_offset}"
            return f"{leader} high_watermark={row.high_watermark}"
        case DescribeQuorumResponse():
            rows = [
                f" {row.replica_id}:{row.log_end_offset}"
                f":{row.last_fetch_timestamp_ms}:{row.last_caught_up_timestamp_ms}"
                for row in (*response.voters, *response.observers)
            ]
            return (
                f"{_error(response.error_code)}epoch={response.raft_epoch} leader={_id(response.leader_id)} "
                f"high_watermark={response.high_watermark}{''.join(rows)}"
            )
    raise AssertionError(f"unknown response {response}")


def _error(code: int) -> str:
    return "" if code == ErrorCode.NONE else f"error={ErrorCode(code).name} "
