"""The commands of the text files about `holdfast unclean-recovery`: one table, an example above each command.

The file plays the cluster, its brokers, the controller and the clock; every command that the mind hears of
prints what it wants done. Grammar: `scenario.grammar`.
"""

from dataclasses import replace

from holdfast.cli.recovery.core import Goal, RecoveryLimits, RecoveryPlanner
from holdfast.cli.recovery.events import (
    AskForLogs,
    CommittedTold,
    Describe,
    Described,
    Effect,
    Elect,
    ElectionsAnswered,
    ElectionsFailed,
    Event,
    FindCommitted,
    LogsNotTold,
    LogsTold,
    NotDescribed,
    Tick,
)
from holdfast.cli.recovery.view import elected_lines, election_file, errors, name, table, warnings
from holdfast.client.core.errors import RowError
from holdfast.client.core.replica_log import ReplicaLog
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import DescribeClusterBroker
from holdfast.protocol.messages.topics import DescribedPartition, DescribedTopic
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.stats import LogLine
from holdfast.scenario.grammar import Command, CommandTable, ParseError, run_command
from tests.unit.cli import rows


def partition_of(text: str, where: str) -> TopicPartition:
    """`t-0`."""
    topic, dash, index = text.rpartition("-")
    if not dash or not index.isdigit():
        raise ParseError(f"{where}: expected a partition like t-0, got {text}")
    return TopicPartition(topic, int(index))


class RecoveryScenario:
    """A mind, and the world that a file makes for it."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.planner: RecoveryPlanner | None = None
        self.metadata_offset = 50
        self.brokers: dict[int, DescribeClusterBroker] = {}
        self.rows: dict[TopicPartition, DescribedPartition] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.logs: dict[tuple[int, TopicPartition], ReplicaLog | RowError] = {}
        self.description: Describe | None = None
        self.questions: dict[int, AskForLogs] = {}
        self.elections: Elect | None = None
        self.commands: CommandTable = {
            # run elect t-0 t-1 duration=30000 attempts=3; without partitions all that have no leader
            "run": self._run,
            # committed 50; committed none: no controller answers
            "committed": self._committed,
            # broker 1 epoch=11 fenced
            "broker": self._broker,
            # forget 1
            "forget": self._forget,
            # partition t-0 replicas=(1,2,3) isr=() elr=(3) lk=(1,2) leader=-1 le=7 offline=()
            "partition": self._partition,
            # partitions t 1500: as many as t-0
            "partitions": self._partitions,
            # delete t
            "delete": self._delete,
            # metadata 60: how far the node that is asked has come
            "metadata": self._metadata,
            # described
            "described": self._described,
            # not_described NETWORK_EXCEPTION
            "not_described": self._not_described,
            # log 1 t-0 epoch=3 end=100 hwm=90 flushed=80 le=7 broker_epoch=11
            "log": self._log,
            # log_error 1 t-0 REPLICA_NOT_AVAILABLE
            "log_error": self._log_error,
            # answer 1 2: these brokers answer what they were asked last
            "answer": self._answer,
            # silent 1 NETWORK_EXCEPTION
            "silent": self._silent,
            # tick 500
            "tick": self._tick,
            # elected t-0=ELECTION_NOT_NEEDED: all others are
            "elected": self._elected,
            # elect_failed REQUEST_TIMED_OUT
            "elect_failed": self._elect_failed,
            # table
            "table": self._table,
            # told: what is printed in the end; told interrupted: after a signal
            "told": self._told,
            # file
            "file": self._file,
        }

    def execute(self, command: Command) -> list[str]:
        """Run one command; returns what it prints."""
        return run_command(self.commands, command)

    def _hear(self, event: Event) -> list[str]:
        assert self.planner is not None
        return self._carry_out(self.planner.handle(event, self.now_ms))

    def _carry_out(self, effects: list[Effect]) -> list[str]:
        lines: list[str] = []
        for effect in effects:
            match effect:
                case FindCommitted():
                    lines.append(f"find_committed timeout={effect.timeout_ms}")
                case Describe():
                    self.description = effect
                    names = "all" if effect.names is None else ",".join(effect.names)
                    lines.append(f"describe {names} timeout={effect.timeout_ms}")
                case AskForLogs():
                    self.questions[effect.broker_id] = effect
                    asked = _short([name(one) for one in effect.partitions])
                    lines.append(f"ask {effect.broker_id} {asked} timeout={effect.timeout_ms}")
                case Elect():
                    self.elections = effect
                    leaders = [f"{name(one)}={leader}" for one, leader in effect.leaders.items()]
                    lines.append(f"elect {_short(leaders)}")
                case LogLine():
                    lines.append(f"say {effect.text}")
        assert self.planner is not None
        return [*lines, "done"] if self.planner.is_done else lines

    # --- the world ---------------------------------------------------------------------------------------

    def _run(self, command: Command) -> list[str]:
        goal = Goal(command.word_of([goal.value for goal in Goal]))
        wanted = [partition_of(command.word(i), command.where) for i in range(1, len(command.words))]
        limits = RecoveryLimits(command.integer("duration", 30_000), command.integer("attempts", 3), 10_000)
        self.planner = RecoveryPlanner(wanted or None, goal, limits)
        return self._carry_out(self.planner.start(self.now_ms))

    def _broker(self, command: Command) -> list[str]:
        broker_id = command.number()
        self.brokers[broker_id] = replace(
            rows.cluster(1).brokers[0],
            broker_id=broker_id,
            broker_epoch=command.integer("epoch", 10 + broker_id),
            is_fenced=command.flag("fenced"),
            in_controlled_shutdown=command.flag("stopping"),
        )
        return []

    def _forget(self, command: Command) -> list[str]:
        del self.brokers[command.number()]
        return []

    def _partition(self, command: Command) -> list[str]:
        partition = partition_of(command.word(), command.where)
        self.topic_ids.setdefault(partition.topic, bytes([len(self.topic_ids)]) * 16)
        self.rows[partition] = rows.partition(
            partition_index=partition.partition,
            replicas=command.ids("replicas", (1, 2, 3)),
            isr=command.ids("isr", ()),
            eligible_leader_replicas=command.ids("elr", ()),
            last_known_elr=command.ids("lk", ()),
            leader_id=command.integer("leader", -1),
            leader_epoch=command.integer("le", 7),
            offline_replicas=command.ids("offline", ()),
            last_known_leader=-1,
        )
        return []

    def _partitions(self, command: Command) -> list[str]:
        topic = command.word(0)
        first = self.rows[TopicPartition(topic, 0)]
        for index in range(command.number(1)):
            self.rows[TopicPartition(topic, index)] = replace(first, partition_index=index)
            for replica in first.replicas:
                self.logs[replica, TopicPartition(topic, index)] = self.logs[
                    replica, TopicPartition(topic, 0)
                ]
        return []

    def _delete(self, command: Command) -> list[str]:
        topic = command.word()
        self.rows = {one: row for one, row in self.rows.items() if one.topic != topic}
        self.topic_ids[topic] = b"another topic   "
        return []

    def _metadata(self, command: Command) -> list[str]:
        self.metadata_offset = command.number()
        return []

    def _log(self, command: Command) -> list[str]:
        broker_id, partition = command.number(0), partition_of(command.word(1), command.where)
        end = command.integer("end")
        self.logs[broker_id, partition] = ReplicaLog(
            broker_epoch=command.integer("broker_epoch", 10 + broker_id),
            last_epoch=command.integer("epoch"),
            leader_epoch=command.integer("le", 7),
            end_offset=end,
            flushed_offset=command.integer("flushed", end),
            high_watermark=command.integer("hwm", -1),
        )
        return []

    def _log_error(self, command: Command) -> list[str]:
        broker_id, partition = command.number(0), partition_of(command.word(1), command.where)
        self.logs[broker_id, partition] = RowError(ErrorCode[command.word(2)], "not now")
        return []

    # --- what the mind hears -----------------------------------------------------------------------------

    def _committed(self, command: Command) -> list[str]:
        offset = None if command.word() == "none" else command.number()
        return self._hear(CommittedTold(offset))

    def _described(self, command: Command) -> list[str]:
        asked = self.description
        assert asked is not None, f"{command.where}: no description was asked for"
        topics: list[DescribedTopic] = []
        for topic in sorted({one.topic for one in self.rows} if asked.names is None else asked.names):
            found = tuple(row for one, row in sorted(self.rows.items()) if one.topic == topic)
            code = ErrorCode.NONE if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(DescribedTopic(code, topic, self.topic_ids.get(topic, bytes(16)), False, (), found))
        cluster = replace(
            rows.cluster(), metadata_offset=self.metadata_offset, brokers=tuple(self.brokers.values())
        )
        return self._hear(Described(asked.question_id, cluster, topics))

    def _not_described(self, command: Command) -> list[str]:
        assert self.description is not None
        error = RowError(ErrorCode[command.word()], "no broker describes the cluster")
        return self._hear(NotDescribed(self.description.question_id, error))

    def _answer(self, command: Command) -> list[str]:
        lines: list[str] = []
        for broker_id in command.numbers():
            asked = self.questions.pop(broker_id)
            logs = {one: self.logs[broker_id, one] for one in asked.partitions}
            lines += self._hear(LogsTold(asked.question_id, logs))
        return lines

    def _silent(self, command: Command) -> list[str]:
        asked = self.questions.pop(command.number())
        error = RowError(ErrorCode[command.word(1)], "no process listens there")
        return self._hear(LogsNotTold(asked.question_id, error))

    def _tick(self, command: Command) -> list[str]:
        assert self.planner is not None
        end_ms = self.now_ms + command.number()
        lines: list[str] = []
        while (due_ms := self.planner.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            lines += self._hear(Tick())
        self.now_ms = end_ms
        return lines

    def _elected(self, command: Command) -> list[str]:
        assert self.elections is not None
        refused: dict[TopicPartition, RowError] = {}
        for key in list(command.arguments):
            code = ErrorCode[command.text(key)]
            refused[partition_of(key, command.where)] = RowError(code, "the controller says so")
        return self._hear(ElectionsAnswered({one: refused.get(one) for one in self.elections.leaders}))

    def _elect_failed(self, command: Command) -> list[str]:
        return self._hear(
            ElectionsFailed(RowError(ErrorCode[command.word()], "the controller does not answer"))
        )

    # --- looking -----------------------------------------------------------------------------------------

    def _table(self, _: Command) -> list[str]:
        assert self.planner is not None
        return table(self.planner)

    def _told(self, command: Command) -> list[str]:
        planner = self.planner
        assert planner is not None
        found = errors(planner, is_interrupted=command.flag("interrupted"))
        return [
            *elected_lines(planner),
            *(f"warning: {text}" for text in warnings(planner)),
            *(f"error: {_where(row)}{row['code']}: {row['message']}" for row in found),
        ]

    def _file(self, _: Command) -> list[str]:
        assert self.planner is not None
        return (election_file(self.planner, is_kip1275=False) or "none").splitlines()


def _where(row: object) -> str:
    assert isinstance(row, dict)
    return f"{row['topic']}-{row['partition']}: " if "topic" in row else ""


def _short(words: list[str]) -> str:
    return ",".join(words) if len(words) <= 6 else f"{words[0]}...{words[-1]} ({len(words)})"
