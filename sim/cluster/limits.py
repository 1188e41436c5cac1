"""Limits of production code that only big clusters reach, made tiny for the time of a run.

Owns which they are, and how small they may be: sizes of chunks and windows, rows of a request, steps of a
turn. A cluster in which every log is one chunk and every request holds all partitions never shows what
happens at the border of two. A limit that is a promise is none of these: how many producers a log remembers,
or how many observers a leader of the quorum does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from holdfast.sim.machine.choices import Stream


@dataclass(frozen=True, slots=True)
class Limit:
    """A constant, by its name in the modules that look it up at each use."""

    module_names: tuple[str, ...]
    name: str
    #: what a run may set it to
    tiny: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.module_names[0]}.{self.name}"

    @property
    def modules(self) -> list[ModuleType]:
        return [import_module(f"holdfast.{name}") for name in self.module_names]

    def set(self, value: int) -> None:
        """In all of its modules."""
        for module in self.modules:
            setattr(module, self.name, value)


def _limit(module_name: str, name: str, *tiny: int) -> Limit:
    return Limit((module_name,), name, tiny)


#: the least is the header of a batch, which is read in one piece
_BYTES_OF_LOG = (61, 150, 1_000)

LIMITS = (
    # logs: recovery, the walk to an offset, indexes, what is rebuilt from headers
    _limit("storage.recovery", "SCAN_BYTES", *_BYTES_OF_LOG),
    _limit("storage.segment", "RECENT_BATCHES", 2, 3, 10),
    _limit("storage.segment", "WALK_BYTES", *_BYTES_OF_LOG),
    _limit("storage.index", "BLOCK_ENTRIES", 1, 2, 5),
    _limit("storage.epoch_file", "_HEADERS_PER_TURN", 1, 3),
    _limit("storage.snapshots", "HEADERS_PER_TURN", 1, 3),
    # the metadata log: what is handed over at once, and where a write is cut into batches
    _limit("raft.committed", "CHUNK_BYTES", 1, 200, 1_000),
    _limit("controller.core.quorum_controller", "APPEND_BYTES_MAX", 1, 150, 500),
    # requests of a connection
    _limit("rpc.server_connection", "STARTS_A_TURN", 1, 2),
    _limit("rpc.server_connection", "FLUSH_BYTES", 1, 200),
    # an answer that is made in steps
    _limit("metadata.answer_steps", "ROWS_A_STEP", 1, 3),
    # what a controller does in one turn
    _limit("controller.core.partitions.unclean_recovery", "STEPS_MAX", 1, 2),
    _limit("controller.core.partitions.leader_balance", "PASS_MAX", 1, 2),
    _limit("controller.core.partitions.replication_control", "UNCLEAN_PASS_MAX", 1, 2),
    _limit("controller.core.brokers.cluster_control", "CHECK_RECORDS_MAX", 1, 2),
    Limit(
        ("controller.core.brokers.departures", "controller.core.quorum_controller"),
        "SLICE_RECORDS_MAX",
        (1, 2),
    ),
    _limit("controller.core.operators.requests", "ELECTIONS_MAX", 1, 2),
    _limit("controller.core.draft", "NOTES_MAX", 1, 5),
    # more than a broker keeps back before it asks for the next block
    _limit("controller.core.producer_ids", "BLOCK_LENGTH", 11, 12),
    # a broker's requests and queues
    _limit("broker.core.replicas.alter_partition", "PARTITIONS_MAX", 1, 2),
    _limit("broker.core.replicas.fetcher", "ROWS_MAX", 1, 2),
    _limit("broker.core.requests.producer_ids", "WAITING_MAX", 1),
    _limit("broker.core.requests.fetch_path", "SIZES_KEPT", 1, 2),
    _limit("broker.core.broker", "PURGATORY_MAX", 2, 10),
    _limit("broker.log_manager", "CONCURRENCY", 1, 2),
    _limit("broker.server", "FORWARDED_MAX", 1, 2),
    # a client's
    _limit("client.core.wanted_topics", "NAMES_A_REQUEST", 1, 2),
    _limit("client.core.fetcher", "EPOCHS_KEPT", 2, 5),
    _limit("client.admin_partitions", "ELECTIONS_PER_REQUEST", 1, 2),
    _limit("client.ledger", "_PENDING_MAX", 1, 1_000),
    # of the protocol: a broker answers as many rows as may be asked for
    Limit(
        ("controller.core.partitions.log_questions", "broker.core.requests.log_info", "client.admin_logs"),
        "LOG_INFO_ROWS_MAX",
        (1, 2),
    ),
)


@contextmanager
def made_tiny(stream: Stream) -> Iterator[dict[str, int]]:
    """Draw for each limit the production value or, as often, a tiny one: {limit: its tiny value}. Afterwards
    they are as they were."""
    usual = [(limit, getattr(limit.modules[0], limit.name)) for limit in LIMITS]
    chosen: dict[str, int] = {}
    try:
        for limit in LIMITS:
            # zero, the simplest choice, is the production value
            number = stream.draw(2 * len(limit.tiny)) - len(limit.tiny)
            if number >= 0:
                chosen[str(limit)] = limit.tiny[number]
                limit.set(limit.tiny[number])
        yield chosen
    finally:
        for limit, value in usual:
            limit.set(value)
