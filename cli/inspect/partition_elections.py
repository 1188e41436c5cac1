"""What a verdict wants to know of the past, from the cluster's metadata log: the leader epochs of partitions,
for the stories of lost records, and which topics were compacted."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from holdfast.cli.inspect.metadata_log import UnreadableLog, fetch_log
from holdfast.cli.inspect.partition_story import ReadLog, Step, Story, story_of
from holdfast.cli.inspect.past_policies import was_compacted
from holdfast.client.core.errors import ClientError
from holdfast.controller.core.decisions import Decision
from holdfast.durability.loss_story import Election
from holdfast.protocol.record_batch import CorruptBatch
from holdfast.protocol.schema.fields import SchemaError
from holdfast.runtime.real.machine import new_event_loop, real_runtime


class PartitionElections:
    """Called with topic and partition. A metadata log that cannot be read costs the stories, no verdict."""

    def __init__(self, servers: str, timeout_ms: int) -> None:
        self._servers = servers
        self._timeout_ms = timeout_ms
        self._log: ReadLog | None = None
        self._known: dict[tuple[str, int], Sequence[Election]] = {}

    def __call__(self, topic: str, partition: int) -> Sequence[Election]:
        """All leader epochs in their order, of the topic's present life; () when they cannot be read."""
        place = (topic, partition)
        if place not in self._known:
            log = self._read()
            self._known[place] = elections_of(story_of(log.records, topic, partition, log.base))
        return self._known[place]

    def was_compacted(self, topic: str) -> bool | None:
        """In its present life; None when it is not known."""
        return was_compacted(self._read(), topic)

    def _read(self) -> ReadLog:
        if self._log is None:
            try:
                self._log = self._fetch()
            except (ClientError, UnreadableLog, CorruptBatch, SchemaError):
                self._log = ReadLog([])
        return self._log

    def _fetch(self) -> ReadLog:
        runtime = real_runtime()
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            try:
                return runner.run(fetch_log(runtime, self._servers, self._timeout_ms))
            finally:
                runner.run(runtime.tasks.cancel_all())


def elections_of(story: Story) -> Sequence[Election]:
    """The leader epochs of a partition's last life, each with its ISR at first and at last."""
    found: dict[int, Election] = {}
    steps = [step for step in story.steps if step.after is not None]
    topic_id = steps[-1].topic_id if steps else b""
    for step in steps:
        if step.after is None or step.topic_id != topic_id:
            continue
        begun = found.get(step.after.leader_epoch)
        found[step.after.leader_epoch] = replace(
            _begun_by(step) if begun is None else begun,
            last_isr=step.after.isr,
            last_elr=step.after.elr,
            last_known_elr=step.after.last_known_elr,
        )
    return tuple(found[epoch] for epoch in sorted(found))


def _begun_by(step: Step) -> Election:
    after, decision = step.after, step.decision
    assert after is not None, "a partition that there is"
    return Election(
        leader_epoch=after.leader_epoch,
        leader=after.leader,
        first_isr=after.isr,
        last_isr=after.isr,
        is_unclean=decision is not None and decision.reason is not None and decision.reason.is_unclean,
        timestamp_ms=step.logged.timestamp_ms,
        cause="no cause is known" if decision is None else str(decision.cause),
        log_end=None if decision is None else _log_end(decision, after.leader),
    )


def _log_end(decision: Decision, leader: int | None) -> int | None:
    ends = (log.end_offset for log in decision.cause.logs if log.replica == leader and log.is_compared)
    return next(ends, None)
