"""Where other nodes of the quorum are reached: by the log, by what peers tell, by the configuration (K30).

Owns what peers have told, and where the last attempt at each configured node has failed. An address that was
learned and the configured one are tried in turn, so that a controller that has moved, or was added with a
wrong address, is found as long as one is right.
"""

from collections.abc import Mapping
from typing import TypeAlias

from holdfast.raft.core.voter_sets import VoterSets, parse_endpoint

#: host and port
Address: TypeAlias = tuple[str, int]
#: Leaders whose addresses are kept while the log does not name them.
_TOLD_MAX = 16


class VoterAddresses:
    """Of one member."""

    def __init__(self, node_id: int, configured: Mapping[int, Address]) -> None:
        """`configured`: {voter: address} of `controller.quorum.voters`."""
        self._node_id = node_id
        self._configured = configured
        #: of leaders that the log names not yet, or no more; the latest last
        self._told: dict[int, Address] = {}
        self._missed: dict[int, Address] = {}

    def told_of(self, leader_id: int, endpoint: str | None) -> None:
        """A peer says where the leader is reached. Peers whose log names no voters say nothing."""
        address = parse_endpoint(endpoint)
        if address is not None and leader_id >= 0 and leader_id != self._node_id:
            self.keep(leader_id, address)

    def keep(self, leader_id: int, address: Address) -> None:
        """Remember it for when the log does not name the leader."""
        self._told.pop(leader_id, None)
        self._told[leader_id] = address
        if len(self._told) > _TOLD_MAX:
            del self._told[next(iter(self._told))]

    def was_told(self, node_id: int) -> bool:
        """Where another node is reached was told or kept."""
        return node_id != self._node_id and node_id in self._told

    def choose(self, node_id: int, sets: VoterSets) -> Address | None:
        """Where to try the node next, None when that is not known. `sets`: those of the log."""
        learned, configured = self._learned(node_id, sets), self._configured.get(node_id)
        if learned is None or configured is None:
            return learned or configured
        return configured if self._missed.get(node_id) == learned else learned

    def missed(self, node_id: int, address: Address, sets: VoterSets) -> bool:
        """The node was not met at `address`. True when another one is tried next: then that says nothing of
        the node."""
        if node_id not in self._configured:
            return False
        self._missed[node_id] = address
        learned = self._learned(node_id, sets)
        return learned is not None and learned != self._configured[node_id]

    def _learned(self, node_id: int, sets: VoterSets) -> Address | None:
        row, told = sets.find(node_id), self._told.get(node_id)
        if row is None and told is None:
            row = sets.last_of(node_id)
        return told if row is None else (row.host, row.port)
