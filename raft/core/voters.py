"""Who votes, as one member sees it: by its log's end, or by the configuration while the log names none (K30).

Owns what the log says of the voters and where they are reached. A change counts from the moment it is in the
log, committed or not, and is undone when the log is cut.
"""

from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.control_records import Voter
from holdfast.raft.core.voter_addresses import Address, VoterAddresses
from holdfast.raft.core.voter_directories import VoterDirectories
from holdfast.raft.core.voter_sets import VoterSets


class Voters:
    """The voters, this node perhaps among them."""

    def __init__(self, config: RaftConfig, directories: VoterDirectories, sets: VoterSets) -> None:
        """`directories` and `sets`: what the recovered log says of them."""
        self._config = config
        self.directories = directories
        self.sets = sets
        self.addresses = VoterAddresses(config.node_id, config.voters)
        #: their ids, ascending
        self.ids = self._count()
        #: the same without this node
        self.others: tuple[int, ...] = ()
        #: this node, with its directory, is one of them: its vote and its log make a majority
        self.is_counted = False
        #: it may run and lead: it is one of them, or was before the last change, which may come to nothing
        self.is_voter = False

    @property
    def are_named(self) -> bool:
        """The log says which nodes are voters, committed or not; else the configuration does."""
        return bool(self.sets.latest)

    @property
    def is_alone(self) -> bool:
        """This node is the only one."""
        return self.ids == (self._config.node_id,)

    @property
    def to_ask(self) -> tuple[int, ...]:
        """The other nodes that may know the leader, ascending: those of the configuration, too, for a log
        that ends where all whom it names are gone."""
        return tuple(sorted({*self.others, *self._config.voters} - {self._config.node_id}))

    def read(self, directory_id: bytes | None, high_watermark: int) -> None:
        """The log's end has moved, or what is committed: count anew. `directory_id`: this node's."""
        config, sets = self._config, self.sets
        self.ids = self._count()
        self.others = tuple(id for id in self.ids if id != config.node_id)
        if self.are_named:
            own = config.node_id, directory_id
            self.is_counted = _is_in(own, sets.latest)
            # Who takes itself out, and alone has that on its disk, is needed to bring it to the others.
            is_open = sets.latest_offset >= high_watermark
            self.is_voter = self.is_counted or (is_open and _is_in(own, sets.below(sets.latest_offset)))
        else:
            self.is_voter = self.is_counted = config.is_voter and config.node_id in config.voters

    def _count(self) -> tuple[int, ...]:
        named = tuple(voter.voter_id for voter in self.sets.latest)
        return named or tuple(sorted(self._config.voters))

    def truncate_to(self, end_offset: int) -> None:
        """The log ends at `end_offset` now; `read` follows."""
        self.directories.truncate_to(end_offset)
        self.sets.truncate_to(end_offset)

    def forget(self) -> None:
        """The log is empty; `read` follows."""
        self.directories, self.sets = VoterDirectories(), VoterSets()

    def address_of(self, node_id: int) -> Address | None:
        """Where a voter is reached, or a leader that this log does not name yet, or no more; None when that
        is not known."""
        return self.addresses.choose(node_id, self.sets)

    def keep_address_of(self, leader_id: int) -> None:
        """A log that is cut, or names other voters, may name this leader no more, and it leads on."""
        address = self.address_of(leader_id)
        if self.are_named and address is not None:
            self.addresses.keep(leader_id, address)

    def may_lead(self, node_id: int) -> bool:
        """This node can follow that one: it is another voter, or where it is was told."""
        return node_id in self.others or self.addresses.was_told(node_id)


def _is_in(own: tuple[int, bytes | None], voters: tuple[Voter, ...]) -> bool:
    return any((voter.voter_id, voter.directory_id) == own for voter in voters)
