"""The commands of the scenario files about a raft node: one table, an example above each command.

The file plays the node's disk, peers and clock. Output is every effect in order, one a line. Random delays
are drawn at their lower bound, persisted states are confirmed at once. Times are milliseconds since the
start. Decides nothing.
"""

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    QuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from holdfast.raft.core.effects import (
    Answered,
    Append,
    AppendFetched,
    Committed,
    Effect,
    Event,
    Flush,
    Flushed,
    LeaderChanged,
    Persist,
    Persisted,
    Propose,
    RaftRequest,
    RaftResponse,
    ReadPiece,
    Reply,
    RequestReceived,
    Resign,
    SavePiece,
    Send,
    SendFailed,
    Start,
    Tick,
    Truncate,
    Truncated,
    VotersWanted,
)
from holdfast.raft.core.node import RaftNode
from holdfast.raft.core.quorum import BadQuorumState, QuorumState
from holdfast.rpc.core.failures import CallFailure
from holdfast.runtime.stats import LogLine
from holdfast.scenario.grammar import Command, CommandTable, ParseError, parse_id, run_command
from holdfast.scenario.raft import (
    CLUSTER_ID,
    LowRandom,
    batches,
    fetch_request,
    fetch_response,
    make_config,
    shape_of,
)


class RaftScenario:
    """One node and everything around it."""

    #: a file about a raft node begins with one of these
    OPENINGS = frozenset({"node"})

    def __init__(self) -> None:
        self._running: RaftNode | None = None
        self._now_ms = 0
        self._tokens: dict[int, str] = {}
        #: voter -> its outstanding requests, oldest first; answers go to the newest
        self._sent: dict[int, list[Send]] = {}
        #: epoch and offset in `2@7`, runs of epochs in `1:3,2:2`
        self.commands: CommandTable = {
            # node 1 voters=(1,2,3) epoch=3 voted_for=2 leader=2 log=1:3,2:2 observer
            "node": self._start,
            # tick 500
            "tick": self._tick,
            # until-deadline
            "until-deadline": self._until_deadline,
            # vote from=2 epoch=4 last=3@7 pre
            "vote": self._vote,
            # begin from=2 epoch=4
            "begin": self._begin,
            # end from=2 epoch=4 successors=(3,1)
            "end": self._end,
            # fetch from=2 epoch=4 offset=7 last_epoch=3 wait=500
            "fetch": self._fetch,
            # describe
            "describe": lambda _: self._receive("describe", DescribeQuorumRequest()),
            # resign
            "resign": lambda _: self._give(Resign("told to")),
            # status
            "status": lambda _: [self._status()],
            # propose a b
            "propose": self._propose,
            # flushed 6
            "flushed": self._flushed,
            # truncated
            "truncated": lambda _: self._give(Truncated(self._node.log_end_offset)),
            # answer 2 granted epoch=4 leader=2 error=FENCED_LEADER_EPOCH
            "answer": self._answer,
            # data 2 records=4:2,5:1 high_watermark=6 diverging=3@5 epoch=4 leader=2 error=CORRUPT_MESSAGE
            "data": self._data,
            # fail 2 refused
            "fail": self._fail,
        }

    @property
    def _node(self) -> RaftNode:
        if self._running is None:
            raise ParseError("node comes first")
        return self._running

    def execute(self, command: Command) -> list[str]:
        """Run one command; returns its output."""
        return run_command(self.commands, command) or ["ok"]

    def _start(self, command: Command) -> list[str]:
        config = make_config(command.number(), command.ids("voters"), is_voter=not command.flag("observer"))
        voted_for, leader = command.integer("voted_for", -1), command.integer("leader", -1)
        state = QuorumState(
            command.integer("epoch", 0),
            None if voted_for < 0 else voted_for,
            None if leader < 0 else leader,
        )
        self._sent.clear()
        log = command.text("log", "")
        try:
            shape = shape_of(log)
        except ValueError:
            raise ParseError(f"{command.where}: expected a log as 1:3,2:2, got {log}") from None
        try:
            self._running = RaftNode(config, LowRandom(), state, shape)
        except BadQuorumState as refusal:
            raise ParseError(f"{command.where}: {refusal}") from None
        return self._give(Start())

    def _tick(self, command: Command) -> list[str]:
        self._now_ms += command.number()
        return self._give(Tick())

    def _until_deadline(self, command: Command) -> list[str]:
        deadline_ms = self._node.next_deadline_ms()
        if deadline_ms is None:
            raise ParseError(f"{command.where}: the node waits for nothing")
        self._now_ms = max(self._now_ms, deadline_ms)
        return [f"at {self._now_ms}", *self._give(Tick())]

    def _vote(self, command: Command) -> list[str]:
        last_epoch, last_offset = _epoch_and_offset(command, "last")
        candidate_id, is_pre_vote = command.integer("from"), command.flag("pre")
        request = VoteRequest(
            CLUSTER_ID,
            command.integer("epoch"),
            candidate_id,
            self._node.snapshot().node_id,
            last_epoch,
            last_offset,
            is_pre_vote,
        )
        return self._receive(f"{candidate_id}'s {'pre-vote' if is_pre_vote else 'vote'}", request)

    def _begin(self, command: Command) -> list[str]:
        leader_id, own_id = command.integer("from"), self._node.snapshot().node_id
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

    def _propose(self, command: Command) -> list[str]:
        command.word()
        return self._give(Propose(tuple(command.word(at).encode() for at in range(len(command.words)))))

    def _flushed(self, command: Command) -> list[str]:
        return self._give(Flushed(command.number() if command.words else self._node.log_end_offset))

    def _answer(self, command: Command) -> list[str]:
        voter_id, word = command.number(), command.word_of(("granted", "refused", "ok"), 1)
        send = self._take(command, voter_id, is_fetch=False)
        epoch = command.integer("epoch", self._node.raft_epoch)
        leader_id = command.integer("leader", -1)
        error = _error_code(command)
        text = None if error is ErrorCode.NONE else "do better"
        response: RaftResponse = QuorumEpochResponse(error, text, epoch, leader_id)
        if isinstance(send.request, VoteRequest):
            response = VoteResponse(error, text, epoch, leader_id, word == "granted")
        return self._give(Answered(send.request_id, response))

    def _data(self, command: Command) -> list[str]:
        voter_id = command.number()
        send = self._take(command, voter_id, is_fetch=True)
        records = command.text("records", "")
        try:
            encoded = batches(self._node.log_end_offset, records)
        except ValueError:
            raise ParseError(f"{command.where}: expected records as 4:2,5:1, got {records}") from None
        response = fetch_response(
            command.integer("leader", voter_id),
            command.integer("epoch", self._node.raft_epoch),
            error=_error_code(command),
            high_watermark=command.integer("high_watermark", 0),
            diverging=_epoch_and_offset(command, "diverging") if "diverging" in command.arguments else None,
            records=encoded,
        )
        return self._give(Answered(send.request_id, response))

    def _fail(self, command: Command) -> list[str]:
        voter_id = command.number()
        failure = CallFailure[command.word_of([one.name.lower() for one in CallFailure], 1).upper()]
        lines: list[str] = []
        for send in self._sent.pop(voter_id, []):
            lines += self._give(SendFailed(send.request_id, failure))
        return lines

    # --- inside ----------------------------------------------------------------------------------------

    def _give(self, event: Event) -> list[str]:
        """One event into the node."""
        return self._print(self._node.handle(event, self._now_ms))

    def _receive(self, name: str, request: RaftRequest) -> list[str]:
        token = len(self._tokens) + 1
        self._tokens[token] = name
        return self._give(RequestReceived(token, request, 1_000_000 + self._now_ms))

    def _take(self, command: Command, voter_id: int, *, is_fetch: bool) -> Send:
        for send in reversed(self._sent.get(voter_id, [])):
            if isinstance(send.request, FetchRequest) is is_fetch:
                self._sent[voter_id].remove(send)
                return send
        raise ParseError(f"{command.where}: nothing was asked of {voter_id}")

    def _print(self, effects: list[Effect]) -> list[str]:
        lines: list[str] = []
        for effect in effects:
            if isinstance(effect, Send):
                self._sent.setdefault(effect.voter_id, []).append(effect)
            lines.append(self._line(effect))
        for effect in effects:
            if isinstance(effect, Persist):
                lines += self._give(Persisted(effect.state))
        return lines

    def _status(self) -> str:
        now = self._node.snapshot()
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
            case Append(base_offset, epoch, values, control):
                what = control.value if control else " ".join(value.decode() for value in values)
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
                if isinstance(read, ReadPiece):
                    return f"{text} piece of the snapshot at {read.id.offset} from {read.position}"
                return text if read is None else f"{text} records from {read.fetch_offset}"
            case SavePiece(id, position, data):
                return f"save {len(data)} bytes of the snapshot at {id.offset} from {position}"
            case Committed(up_to_offset):
                return f"committed {up_to_offset}"
            case LeaderChanged(leader_id, epoch, start_offset):
                start = "" if start_offset is None else f" from {start_offset}"
                return f"leader {_id(leader_id)} epoch={epoch}{start}"
            case VotersWanted():
                return "voters wanted"
            case LogLine(_, text):
                return f"note: {text}"


def _error_code(command: Command) -> ErrorCode:
    return ErrorCode[command.choice("error", ErrorCode.__members__, "NONE")]


def _epoch_and_offset(command: Command, key: str) -> tuple[int, int]:
    epoch, _, offset = command.text(key).partition("@")
    return parse_id(epoch, command.where), parse_id(offset, command.where)


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
