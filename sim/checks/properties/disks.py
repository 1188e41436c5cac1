"""Properties of what a broker does to its disk: when it may call something durable, or a stop clean."""

from collections.abc import Sequence

from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import MetadataRecord, RegisterBrokerRecord
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.durable_files import MARKERS, durable_size, has_ended_cleanly, is_marked
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Before, Property, ReplicaView
from holdfast.sim.cluster.nodes import SimBroker, State
from holdfast.sim.machine.loop import Process


class FlushedIsDurable(Property):
    """A-21: what a log calls flushed was written by a flush that began after it was there."""

    name = "A-21 FlushedIsDurable"
    is_about_loss = True

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        flushed = view.flushed_offset
        if flushed <= before.flushed_offset or view.broker.process.is_dead or view.history.start_offset:
            return
        wanted = view.history.bytes_below(flushed)
        size = durable_size(view.broker.machine.sim_disk, view.log.folder)
        if size < wanted:
            story = f"{view.broker.name} calls {flushed} flushed, {wanted} bytes; durable are {size}"
            seen.broken(self, view.index, story)


class FailStop(Property):
    """A-20: after a failed write or flush of a log nothing is appended in that process, and nothing is
    acknowledged that had not committed by then: the answer to a request of several partitions may wait for
    the others. That a failed flush is not just repeated is for A-21: the next one succeeds without the
    pages."""

    name = "A-20 FailStop"

    def __init__(self) -> None:
        #: {(process, partition): when its disk was first seen to have failed, its high watermark then}
        self._failed: dict[tuple[str, int], tuple[int, int]] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        if self._committed_at_failure(seen, view) is not None and appended:
            story = f"{view.broker.name} appended up to {view.end_offset} after its disk had failed"
            seen.broken(self, view.index, story)

    def acknowledged(self, seen: Observer, view: ReplicaView, base_offset: int, leader_epoch: int) -> None:
        committed = self._committed_at_failure(seen, view)
        if committed is not None and base_offset >= committed:
            story = f"{view.broker.name} acknowledged {base_offset} after its disk had failed at {committed}"
            seen.broken(self, view.index, story)

    def _committed_at_failure(self, seen: Observer, view: ReplicaView) -> int | None:
        """The high watermark with which the disk failed in an earlier step; None when it did not: what else
        happened in the same one may have come first."""
        if view.log.failure is None:
            return None
        now_ns = seen.world.loop.now_ns
        key = (view.process.name, view.index)
        failed_ns, committed = self._failed.setdefault(key, (now_ns, view.high_watermark))
        return committed if failed_ns < now_ns else None


class RecoveredLog(Property):
    """A-22: what a new process finds is what the last one left, as far as it survived, and nothing else."""

    name = "A-22 RecoveredLog"
    is_about_loss = True

    def replica_loaded(self, seen: Observer, view: ReplicaView, prior: ReplicaView | None) -> None:
        if prior is None or prior.survives is None or view.history.start_offset:
            return
        old, new = prior.history.batches, view.history.batches
        for position, batch in enumerate(old):
            if batch.last_offset >= prior.survives:
                break
            if position >= len(new) or new[position] != batch:
                found = new[position] if position < len(new) else f"the end at {view.end_offset}"
                story = f"{view.broker.name} had {batch}, durable up to {prior.survives}, and finds {found}"
                seen.broken(self, view.index, story)
                return
        if len(new) > len(old) and not prior.is_cut_under_way:
            story = f"{view.broker.name} ended at {prior.end_offset} and finds {new[len(old)]} behind it"
            seen.broken(self, view.index, story)


class CleanFileDiscipline(Property):
    """While a broker has roles no mark of a clean stop would survive; and a mark is only there when every
    log is durable (A-19)."""

    name = "I-17 CleanFileDiscipline"
    is_about_loss = True

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        broker = view.broker
        if broker.state in (State.RUNNING, State.PAUSED) and view.registration is not before.registration:
            sim_disk = broker.machine.sim_disk
            # in a dir that failed it is not to be deleted, and proves nothing without the others (R33)
            is_whole = broker.node is not None and broker.node.log_manager.is_whole
            if is_whole and any(sim_disk.durable_bytes(marker) is not None for marker in MARKERS):
                seen.broken(self, view.index, f"{broker.name} has a role while its mark is on the disk")

    def broker_stepped(self, seen: Observer, broker: SimBroker) -> None:
        self._check(seen, broker)

    def broker_ends(self, seen: Observer, broker: SimBroker) -> None:
        self._check(seen, broker)

    def _check(self, seen: Observer, broker: SimBroker) -> None:
        if not is_marked(broker):
            return  # of one that has not left yet it is an old mark, and the start deletes it
        for index, replicas in seen.replicas.items():
            view = replicas.get(broker.node_id)
            if view is None or view.process is not broker.process or view.history.start_offset:
                continue
            if view.history.is_behind:
                view.history.follow()  # what was asked of the log before the core's end is done after it
                view.end_offset = view.log.log_end_offset
            wanted = view.history.bytes_below(view.history.end_offset)
            size = durable_size(broker.machine.sim_disk, view.log.folder)
            if size < wanted:
                story = f"{broker.name} marks a clean stop with {size} of {wanted} bytes durable"
                seen.broken(self, index, story)


class CleanIsTruth(Property):
    """A-8, R32: a registration counts as clean only when the last process of that broker ended cleanly and
    its logs are all there."""

    name = "A-8 CleanIsTruth"
    is_about_loss = True

    def __init__(self) -> None:
        #: {broker id: its last registered process}, where that ended in order; its logs may be unseen
        self._unseen: dict[int, Process] = {}

    def broker_ends(self, seen: Observer, broker: SimBroker) -> None:
        node = broker.node
        if node is None or not hasattr(node, "core") or not node.core.lifecycle.is_registered:
            return  # its end says nothing of the process before it
        if _keeps_all(broker):
            self._unseen[broker.node_id] = broker.process
        else:
            self._unseen.pop(broker.node_id, None)

    def record_committed(
        self, seen: Observer, offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        if type(record) is not RegisterBrokerRecord:
            return
        unseen = self._unseen.pop(record.broker_id, None)
        if record.broker_id not in before.brokers:
            return
        if not record.clean_shutdown:
            # Before the registration it was taken out of everything that means completeness.
            for topic, index, row in before.partitions_of(record.broker_id):
                if before.elr_enabled and record.broker_id in (*row.isr, *row.elr):
                    story = f"broker {record.broker_id} registers uncleanly and is in {row}"
                    seen.broken(self, seen.place(topic.topic_id, index), story)
            return
        for index, replicas in seen.replicas.items():
            view = replicas.get(record.broker_id)
            if view is None or (unseen is not None and view.process is not unseen):
                continue  # what that one had lost was told by the registration of the next
            against = _unclean_story(view, record.incarnation_id)
            if against is not None:
                seen.broken(self, index, f"broker {record.broker_id} registers cleanly, {against}")


def _keeps_all(broker: SimBroker) -> bool:
    """It ended in order, and all its logs are on the disk."""
    node = broker.node
    if node is None or not has_ended_cleanly(broker):
        return False
    logs = node.log_manager.logs.values()
    return all(durable_size(broker.machine.sim_disk, log.folder) >= log.size_bytes for log in logs)


def _unclean_story(view: ReplicaView, incarnation_id: bytes) -> str | None:
    """What speaks against a clean stop of the process before this incarnation; None for nothing."""
    if view.incarnation_id == incarnation_id:
        return None if view.follows_clean_stop else "the process before it did not end cleanly"
    if view.survives is None:
        return None  # of a process that the observer saw, and the registration of an older one
    if not view.ended_cleanly:
        return "its last process did not end cleanly"
    if view.survives < view.end_offset:
        return f"its log of {view.end_offset} survived up to {view.survives}"
    return None


class CleanStopsCount(Property):
    """R33, R36: a broker that was stopped in order, all its log dirs well, keeps what it had when it
    registers again; one that was stopped before it had registered passes on the proof of the one before."""

    name = "R33 CleanStopsCount"

    def __init__(self) -> None:
        #: {broker id: epoch that its last process has proven a clean stop in}
        self._proven: dict[int, int] = {}

    def broker_ends(self, seen: Observer, broker: SimBroker) -> None:
        proven = self._proven.pop(broker.node_id, -1)
        node = broker.node
        if broker.exit_code != 0 or node is None or not node.log_manager.is_whole:
            return
        lifecycle = node.core.lifecycle
        # After an unclean stop the broker cannot vouch for logs that have not been looked at yet.
        has_seen_all = lifecycle.is_ready or lifecycle.identity.previous_broker_epoch >= 0
        if lifecycle.is_registered and has_seen_all:
            self._proven[broker.node_id] = lifecycle.broker_epoch
        elif lifecycle.was_clean is None and not node.log_manager.is_clean_shutdown_disproved:
            self._proven[broker.node_id] = proven

    def record_committed(
        self, seen: Observer, offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        if type(record) is not RegisterBrokerRecord or record.clean_shutdown:
            return
        old = before.brokers.get(record.broker_id)
        if old is None or old.broker_epoch != self._proven.get(record.broker_id):
            return  # unregistered meanwhile, or registered by a process that has not heard of it
        broker = next(one for one in seen.world.brokers if one.node_id == record.broker_id)
        node = broker.node
        is_ours = (
            broker.state is not State.DOWN
            and node is not None
            and hasattr(node, "core")
            and node.core.lifecycle.identity.incarnation_id == record.incarnation_id
        )
        if (
            not is_ours
            or node is None
            or not node.log_manager.is_whole
            or node.log_manager.is_clean_shutdown_disproved
        ):
            return
        if not broker.machine.sim_disk.broken:
            story = f"{broker.name} stopped in order in epoch {old.broker_epoch}, and that counts for nothing"
            seen.broken(self, None, story)
