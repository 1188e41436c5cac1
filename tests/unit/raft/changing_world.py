"""A world of raft nodes whose voters an operator changes, one at a time, while everything else goes wrong.

Owns the operator, and the checks that differ when the log names the voters: what a majority is, and of whom.
"""

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.quorum import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UpgradeQuorumRequest,
)
from holdfast.protocol.record_batch import parse_header
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.effects import RequestReceived, Send
from holdfast.raft.core.quorum import majority_count
from tests.unit.raft.simulation import CLUSTER_ID, Batch, Disk, Machine, World

_OPERATOR_PAUSE_MS = 300
_VOTERS_MAX = 5


class ChangingWorld(World):
    """`voter_count` voters as configured, further controllers that may be made voters, by themselves, too,
    where the seed is odd, and an observer."""

    def __init__(self, seed: int, voter_count: int, standby_count: int, *, calm: bool = False) -> None:
        super().__init__(seed, voter_count, observer_count=1, calm=calm)
        configured = self.machines[1].config.voters
        for id in range(voter_count + 1, voter_count + standby_count + 1):
            joins_as = self.endpoint(id) if seed % 2 else None
            config = RaftConfig(id, CLUSTER_ID, configured, "m", is_voter=True, joins=True, joins_as=joins_as)
            self.machines[id] = Machine(id, config, self._new_disk())
        self.controller_ids = tuple(range(1, voter_count + standby_count + 1))
        #: the answers to the operator: (request, error code)
        self.answers: list[tuple[object, int]] = []
        self.is_upgraded = False
        #: no voter is asked for or taken away any more
        self.is_settled = False
        self._committing: Machine | None = None
        self.later(1_000, self._operate)

    # --- the operator ----------------------------------------------------------------------------------

    def leaders(self) -> list[int]:
        """Controllers that believe to lead: there may be several."""
        return [id for id in self.controller_ids if self.role(id) == "Leader"]

    def ask(
        self, id: int, request: AddRaftVoterRequest | RemoveRaftVoterRequest | UpgradeQuorumRequest
    ) -> None:
        """Send a controller the wish of an operator, and keep what it answers."""
        machine = self.machines[id]
        self._tokens_given += 1

        def keep(response: object) -> None:
            code = response.error_code  # type: ignore[attr-defined]
            self.answers.append((request, code))
            if isinstance(request, UpgradeQuorumRequest) and code == ErrorCode.NONE:
                self.is_upgraded = True

        self._tokens[id, machine.life, self._tokens_given] = keep
        self.step(machine, machine.life, RequestReceived(self._tokens_given, request))

    def endpoint(self, id: int) -> str:
        return f"controller:{id}"

    def _operate(self) -> None:
        if self.is_settled:
            return
        self.later(self.random.randint(50, 2 * _OPERATOR_PAUSE_MS), self._operate)
        for id in self.leaders():
            node = self.machines[id].node
            assert node is not None
            voters = set(node.voter_ids)
            if not self.is_upgraded:
                self.ask(id, UpgradeQuorumRequest(1))
                continue
            lost = [other for other in sorted(voters) if self._is_lost(other)]
            others = [other for other in self.controller_ids if other not in voters]
            if lost:
                self.ask(id, RemoveRaftVoterRequest(lost[0], None))
            elif others and (len(voters) < 2 or (self.random.random() < 0.6 and len(voters) < _VOTERS_MAX)):
                other = others[self.random.randint(0, len(others) - 1)]
                self.ask(id, AddRaftVoterRequest(other, None, self.endpoint(other)))
            else:
                other = sorted(voters)[self.random.randint(0, len(voters) - 1)]
                self.ask(id, RemoveRaftVoterRequest(other, None))

    # --- lost disks ------------------------------------------------------------------------------------

    def _is_lost(self, id: int) -> bool:
        """The disk that the latest set names is gone."""
        return any(
            voter.voter_id == id and voter.directory_id != self.machines[id].disk.state.directory_id
            for machine in self.machines.values()
            for voter in machine.disk.sets().latest
        )

    def wipe(self, id: int) -> None:
        """A controller that is down gets a new disk, where all logs name one committed set of three or more,
        of which no other has lost its disk."""
        machine = self.machines[id]
        if self.keeps_disks or machine.node is not None or id not in self.controller_ids:
            return
        sets = [m.disk.sets() for m in self.machines.values() if not self._is_fresh(m.disk)]
        latest = {found.latest for found in sets}
        if len(latest) != 1 or len(*latest) < 3 or any(self._is_lost(other) for other in self.controller_ids):
            return
        if any(found.latest_offset >= len(self.committed) for found in sets):
            return
        self._tell(f"{id} has a new disk")
        machine.disk = self._new_disk()

    @staticmethod
    def _is_fresh(disk: Disk) -> bool:
        return not disk.batches

    # --- checks ----------------------------------------------------------------------------------------

    def propose_everywhere(self) -> None:
        for id in self.controller_ids:
            self.propose(id)

    def _send(self, machine: Machine, send: Send) -> None:
        assert machine.node is not None
        assert machine.node.address_of(send.voter_id) is not None, "asks only whom it can reach"
        super()._send(machine, send)

    def _append(self, machine: Machine, batch: Batch) -> None:
        super()._append(machine, batch)
        if not parse_header(batch.data).is_control:
            return
        sets = machine.disk.sets()
        uncommitted = {found for at, found in sets._history if at >= len(self.committed)}
        known = {sets.below(len(self.committed))}
        assert len(uncommitted - known) <= 1, "one change of the voters is under way at a time"

    def _committed(self, machine: Machine, up_to_offset: int) -> None:
        self._committing = machine
        super()._committed(machine, up_to_offset)

    def _check_majority(self, batch: Batch) -> None:
        """Q-4, Q-7: what is committed lies durably on a majority of those whom its leader's log names."""
        leader = self._committing
        assert leader is not None
        assert leader.node is not None
        # One that its own set leaves out resigns with the commit.
        assert self.role(leader.id) in ("Leader", "Resigned"), "a leader commits first"
        voters = leader.node._member.voters.sets.latest
        if not voters:
            super()._check_majority(batch)
            return
        holders = [
            voter.voter_id
            for voter in voters
            if (disk := self.machines[voter.voter_id].disk).state.directory_id != voter.directory_id
            or (disk.flushed_offset >= batch.end_offset and batch in disk.batches)
        ]
        assert len(holders) >= majority_count(len(voters)), (
            f"Q-7: offset {batch.base_offset} committed with {holders} of {voters}"
        )
