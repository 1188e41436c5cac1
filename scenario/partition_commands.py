"""The commands of the scenario files about the broker's partition: one table, an example above each command.

The core under test is broker 1 of `scenario.partition`; the file plays followers, clients, metadata and the
clock. Every command that may change the partition prints its state, then the ISR that it proposes, if any.
Decides nothing.
"""

from holdfast.broker.core.replicas.partition import Role
from holdfast.metadata.partition import ids_text
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchPartition
from holdfast.scenario.grammar import Command, CommandTable, ParseError, parse_id, run_command
from holdfast.scenario.partition import TOPIC_ID, LonePartition, registration


class PartitionScenario:
    """The commands of the partition's scenario files on a `LonePartition`."""

    #: a file about the partition begins with one of these
    OPENINGS = frozenset({"brokers", "every_write_is_flushed", "registration"})

    def __init__(self) -> None:
        self._alone = LonePartition()
        self._partition = self._alone.partition
        self.commands: CommandTable = {
            # brokers 2 3 epoch=20
            "brokers": self._brokers,
            # fence 2
            "fence": self._fence,
            # leave 2
            "leave": self._fence,
            # every_write_is_flushed
            "every_write_is_flushed": self._every_write_is_flushed,
            # registration leader=1 isr=(1,2,3) min_isr=2 le=0 pe=0 replicas=(1,2,3)
            "registration": self._registration,
            # start
            "start": self._start,
            # append 5 epoch=3
            "append": self._append,
            # flush
            "flush": self._flush,
            # fetch replica=2 offset=5 le=0 last_epoch=0 flushed=5 broker_epoch=20
            "fetch": self._fetch,
            # tick 500
            "tick": self._tick,
            # answer isr=(1,2) pe=1 le=0 min_isr=2 error=INELIGIBLE_REPLICA
            "answer": self._answer,
            # produce acks=-1
            "produce": self._produce,
            # read offset=5 last_epoch=0 le=0
            "read": self._read,
            # waiting le=0 acks=-1
            "waiting": self._waiting,
            # latest
            "latest": self._latest,
            # diverging epoch=1 end=7 start=0
            "diverging": self._diverging,
            # leader_hwm 12
            "leader_hwm": self._leader_hwm,
            # drop_role
            "drop_role": self._drop_role,
        }

    def execute(self, command: Command) -> list[str]:
        """Run one command; returns its output."""
        before = self._alone.proposal
        lines = run_command(self.commands, command)
        proposal = self._alone.proposal
        if proposal is not None and proposal is not before:
            lines.append(f"propose isr={ids_text(proposal.isr)}")
        return lines

    def _state(self) -> list[str]:
        partition, log = self._partition, self._alone.log
        text = f"{partition.role.value}@{partition.leader_epoch} end={log.log_end_offset}"
        if partition.counts_flushed:
            text += f" flushed={log.flushed_offset}"
        text += f" hwm={partition.high_watermark}"
        if partition.role is Role.LEADER:
            assert partition.leadership is not None
            assert partition.registration is not None
            text += f" isr={ids_text(partition.registration.isr)}"
            text += f" maximal={ids_text(partition.leadership.maximal_isr)}"
        return [text]

    def _brokers(self, command: Command) -> list[str]:
        alone, epoch = self._alone, command.integer("epoch", 0)
        for broker_id in command.numbers():
            alone.brokers.epochs[broker_id] = epoch or 10 * broker_id
            alone.brokers.acceptable[broker_id] = epoch or 10 * broker_id
        alone.proposal = self._partition.retry_expand(alone.now_ms) or alone.proposal
        return self._state()

    def _fence(self, command: Command) -> list[str]:
        for broker_id in command.numbers():
            self._alone.brokers.acceptable.pop(broker_id, None)
        return self._state()

    def _every_write_is_flushed(self, command: Command) -> list[str]:
        self._partition.counts_flushed = True
        return self._state()

    def _registration(self, command: Command) -> list[str]:
        leader = command.text("leader")
        value = registration(
            None if leader == "none" else parse_id(leader, command.where),
            command.ids("isr"),
            min_isr=command.integer("min_isr", 2),
            leader_epoch=command.integer("le", 0),
            partition_epoch=command.integer("pe", 0),
            replicas=command.ids("replicas", (1, 2, 3)),
        )
        self._alone.register(value, start=False)
        self._alone.advance()
        return self._state()

    def _start(self, command: Command) -> list[str]:
        if self._partition.role is not Role.LEADER:
            raise ParseError(f"{command.where}: only a leader's epoch starts")
        self._alone.start()
        return self._state()

    def _append(self, command: Command) -> list[str]:
        epoch = command.integer("epoch", self._partition.leader_epoch)
        self._alone.log.append(command.number(), epoch)
        self._alone.advance()
        return self._state()

    def _flush(self, command: Command) -> list[str]:
        self._alone.flush()
        return self._state()

    def _fetch(self, command: Command) -> list[str]:
        offset = command.integer("offset")
        answer = self._alone.fetch(
            command.integer("replica"),
            offset,
            leader_epoch=command.integer("le", self._partition.leader_epoch),
            last_epoch=command.integer("last_epoch") if "last_epoch" in command.arguments else None,
            flushed=command.integer("flushed", offset),
            broker_epoch=command.integer("broker_epoch") if "broker_epoch" in command.arguments else None,
        )
        if isinstance(answer, tuple):
            return [f"diverging epoch={answer[0]} end={answer[1]}", *self._state()]
        return self._state() if answer is ErrorCode.NONE else [f"error={answer.name}"]

    def _tick(self, command: Command) -> list[str]:
        self._alone.tick(command.number())
        return self._state()

    def _answer(self, command: Command) -> list[str]:
        if self._alone.proposal is None:
            raise ParseError(f"{command.where}: nothing was proposed")
        verdict = self._alone.answer(
            command.ids("isr", ()),
            partition_epoch=command.integer("pe", 0),
            leader_epoch=command.integer("le", self._partition.leader_epoch),
            min_isr=command.integer("min_isr", 2),
            error=ErrorCode[command.choice("error", ErrorCode.__members__, "NONE")],
        )
        return [verdict.value, *self._state()]

    def _produce(self, command: Command) -> list[str]:
        return [self._partition.check_produce(command.integer("acks")).name]

    def _read(self, command: Command) -> list[str]:
        row = FetchPartition(
            TOPIC_ID,
            0,
            current_leader_epoch=command.integer("le", -1),
            fetch_offset=command.integer("offset", self._partition.high_watermark),
            last_fetched_epoch=command.integer("last_epoch", -1),
            flushed_offset=-1,
            max_bytes=1,
        )
        refusal = self._partition.check_reader(row)
        if refusal is None:
            return [ErrorCode.NONE.name]
        if refusal.diverging is not None:
            return [f"diverging epoch={refusal.diverging[0]} end={refusal.diverging[1]}"]
        return [refusal.error_code.name]

    def _waiting(self, command: Command) -> list[str]:
        return [self._partition.check_waiting(command.integer("le"), command.integer("acks", -1)).name]

    def _latest(self, command: Command) -> list[str]:
        offset = self._partition.visible_high_watermark
        return [ErrorCode.OFFSET_NOT_AVAILABLE.name if offset < 0 else str(offset)]

    def _diverging(self, command: Command) -> list[str]:
        end_offset = self._partition.truncation_offset(command.integer("epoch"), command.integer("end"))
        if end_offset is None:
            self._alone.log.reset_to(command.integer("start", 0))
        else:
            self._alone.log.truncate_to(end_offset)
        self._partition.log_was_cut()
        done = "begin anew" if end_offset is None else f"truncate to {end_offset}"
        return [done, *self._state()]

    def _leader_hwm(self, command: Command) -> list[str]:
        if self._partition.role is Role.LEADER:
            raise ParseError(f"{command.where}: a leader has no leader")
        self._partition.leader_answered(command.number(), -1)
        return self._state()

    def _drop_role(self, command: Command) -> list[str]:
        self._partition.drop_role()
        return self._state()
