"""Properties of the metadata quorum, and of the copies of its log that nodes act upon."""

from holdfast.metadata.image import MetadataImage
from holdfast.raft.core.member import Snapshot
from holdfast.sim.checks.observe.batches import marks
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property, Support
from holdfast.sim.cluster.nodes import SimController, SimNode


class ElectionSafety(Property):
    """One leader for each epoch of the quorum."""

    name = "Q-1 ElectionSafety"

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}

    def voter_changed(self, seen: Observer, node: SimController, voter: Snapshot) -> None:
        if voter.role == "Leader":
            first = self._leaders.setdefault(voter.raft_epoch, node.node_id)
            if first != node.node_id:
                seen.broken(self, None, f"{node.name} and {first} lead epoch {voter.raft_epoch}")


class QuorumLogMatching(Property):
    """What two voters know to be committed is the same, batch by batch."""

    name = "Q-2 LogMatching"

    def __init__(self) -> None:
        #: {process: offset up to which it was compared}
        self._compared: dict[str, int] = {}

    def voter_changed(self, seen: Observer, node: SimController, voter: Snapshot) -> None:
        if node.log is None:
            return
        key = node.process.name
        # What is below the log's start is in a snapshot; its image is compared.
        start = max(self._compared.get(key, 0), node.log.log_start_offset)
        end = min(voter.high_watermark, node.log.log_end_offset, seen.quorum.end_offset)
        for batch in marks(node.log, start, end):
            first = seen.quorum.by_offset.get(batch.base_offset)
            if first != batch:
                seen.broken(self, None, f"{node.name} has {batch}, another had {first}")
            start = batch.last_offset + 1
        self._compared[key] = start


class QuorumLeaderCompleteness(Property):
    """Q-3: the leader of the quorum has all that was committed before."""

    name = "Q-3 LeaderCompleteness"

    def voter_changed(self, seen: Observer, node: SimController, voter: Snapshot) -> None:
        truth = seen.quorum
        if voter.role != "Leader" or node.log is None or not truth.batches:
            return
        last = truth.batches[-1]
        if last.leader_epoch > voter.raft_epoch:
            return  # deposed, and has not heard of it
        if voter.log_end_offset <= last.last_offset:
            story = f"{node.name} leads epoch {voter.raft_epoch} and ends at {voter.log_end_offset}"
            seen.broken(self, None, f"{story}, committed is up to {truth.end_offset}")
        elif last.leader_epoch < voter.raft_epoch and last.base_offset >= node.log.log_start_offset:
            found = marks(node.log, last.base_offset, last.last_offset + 1)
            if found and found[0] != last:
                seen.broken(self, None, f"{node.name} leads with {found[0]}, committed is {last}")


class LegalRoles(Property):
    """Q-5: a role goes with what the voter believes of leader and vote."""

    name = "Q-5 LegalRoles"

    def voter_changed(self, seen: Observer, node: SimController, voter: Snapshot) -> None:
        is_legal = {
            "Leader": voter.leader_id == voter.node_id,
            "Candidate": voter.voted_for == voter.node_id,
            "Follower": voter.leader_id != voter.node_id,
        }.get(voter.role, voter.leader_id is None)
        if not is_legal:
            seen.broken(self, None, f"{node.name}: {voter}")


class QuorumEpochs(Property):
    """Q-6 and Q-9: a voter's durable epoch never falls and its durable vote never changes, from one process
    to the next on one disk; within one neither falls what it believes, nor what it knows to be committed."""

    name = "Q-6 EpochsRise"

    def __init__(self) -> None:
        #: {process: (epoch, committed offset)}
        self._newest: dict[str, tuple[int, int]] = {}
        #: {disk of a voter: durable epoch}
        self._durable: dict[tuple[int, int], int] = {}
        #: {(disk of a voter, epoch): for whom}
        self._votes: dict[tuple[tuple[int, int], int], int] = {}

    def voter_changed(self, seen: Observer, node: SimController, voter: Snapshot) -> None:
        epoch, committed = self._newest.get(node.process.name, (0, 0))
        if voter.raft_epoch < epoch or voter.high_watermark < committed:
            story = f"{node.name}: epoch {voter.raft_epoch} after {epoch}, committed"
            seen.broken(self, None, f"{story} {voter.high_watermark} after {committed}")
        self._newest[node.process.name] = voter.raft_epoch, voter.high_watermark
        assert node.server is not None
        state = node.server.driver.durable_state
        assert state is not None
        voters = {None, *(one.node_id for one in seen.world.controllers)}
        if not {state.voted_for, state.leader_id} <= voters:
            seen.broken(self, None, f"{node.name} knows of no such voter: {state}")
        disk = node.node_id, node.machine.sim_disk.replacements
        durable = self._durable.get(disk, 0)
        if state.raft_epoch < durable:
            seen.broken(self, None, f"{node.name}: durable epoch {state.raft_epoch} after {durable}")
        self._durable[disk] = state.raft_epoch
        if state.voted_for is not None:
            first = self._votes.setdefault((disk, state.raft_epoch), state.voted_for)
            if first != state.voted_for:
                story = f"{node.name} voted for {first} and {state.voted_for} in {state.raft_epoch}"
                seen.broken(self, None, f"{story} (Q-9)")
        elif (disk, state.raft_epoch) in self._votes:
            seen.broken(self, None, f"{node.name} has forgotten its vote in {state.raft_epoch} (Q-9)")


class SupportIsEarned(Property):
    """K4, K5: no voter supports a candidate whose log ends before its own. A leader grants no pre-vote, and
    neither does a voter whose fetch its leader has just answered: a voter back from behind a cut disturbs no
    other. Epochs are not made by asking: the candidate is in the one it asks in, or further."""

    name = "K4 SupportIsEarned"

    def support_given(self, seen: Observer, node: SimController, support: Support) -> None:
        what = f"{node.name} supports {support.candidate_id} and"
        if support.is_log_shorter:
            seen.broken(self, None, f"{what} has a longer log")
        if support.is_pre_vote and support.is_leader:
            seen.broken(self, None, f"{what} leads itself")
        silent_ms = support.silent_ms
        if support.is_pre_vote and silent_ms is not None and silent_ms < support.fetch_timeout_ms:
            seen.broken(self, None, f"{what} has heard its leader {silent_ms} ms ago")
        candidate = next(one for one in seen.world.controllers if one.node_id == support.candidate_id)
        own = None if candidate.server is None else candidate.server.driver.snapshot()
        if own is not None and own.raft_epoch < support.raft_epoch:
            seen.broken(
                self, None, f"{what} is asked in epoch {support.raft_epoch}, its own is {own.raft_epoch}"
            )


class VotesAreDurable(Property):
    """Q-9: who leads was voted for by a majority that has its epoch on disk."""

    name = "Q-9 VotesAreDurable"

    def __init__(self) -> None:
        #: epochs whose election was looked at
        self._elected: set[int] = set()

    def voter_changed(self, seen: Observer, node: SimController, voter: Snapshot) -> None:
        if voter.role != "Leader" or voter.raft_epoch in self._elected:
            return
        self._elected.add(voter.raft_epoch)
        voters = seen.world.controllers
        behind = [one.name for one in voters if self._is_behind(one, voter.raft_epoch)]
        if len(voters) > 1 and len(voters) - len(behind) <= len(voters) // 2:
            story = f"{node.name} leads epoch {voter.raft_epoch}, which is not on the disks of"
            seen.broken(self, None, f"{story} {', '.join(behind)}")

    @staticmethod
    def _is_behind(node: SimController, raft_epoch: int) -> bool:
        """False also where that is not known: its process has ended, or just begins."""
        driver = None if node.server is None else node.server.driver
        state = None if driver is None else driver.durable_state
        return state is not None and state.raft_epoch < raft_epoch


class CommitsOwnEpoch(Property):
    """K12: a leader commits what former epochs left only together with a record of its own."""

    name = "K12 CommitsOwnEpoch"

    def __init__(self) -> None:
        #: {process: committed offset}
        self._committed: dict[str, int] = {}

    def voter_changed(self, seen: Observer, node: SimController, voter: Snapshot) -> None:
        before = self._committed.get(node.process.name, 0)
        self._committed[node.process.name] = voter.high_watermark
        if voter.role != "Leader" or voter.high_watermark <= before:
            return
        assert node.server is not None
        start_offset = node.server.driver.epoch_start_offset
        if start_offset is not None and voter.high_watermark <= start_offset:
            story = f"{node.name} commits {voter.high_watermark} in epoch {voter.raft_epoch}"
            seen.broken(self, None, f"{story}, which began at {start_offset}")


class CommittedByMajority(Property):
    """Q-7 and Q-4: what is committed is in the logs of a majority of voters, durably."""

    name = "Q-7 CommittedByMajority"

    def metadata_committed(self, seen: Observer) -> None:
        end, voters = seen.quorum.end_offset, seen.world.controllers
        holders = sum(node.log is not None and node.log.flushed_offset >= end for node in voters)
        unknown = sum(node.log is None for node in voters)
        if holders + unknown <= len(voters) // 2:
            seen.broken(self, None, f"{end} is committed, durable on {holders} of {len(voters)}")


class MetadataLogMatching(Property):
    """I-11, Q-8, Q-10: what any node has replayed is committed, and is what the quorum has committed."""

    name = "I-11 MetadataLogMatching"

    def image_followed(self, seen: Observer, node: SimNode, image: MetadataImage) -> None:
        truth = seen.quorum.images.get(image.offset)
        if image.offset > seen.quorum.end_offset:
            story = f"{node.name} acts upon {image.offset}, committed is up to {seen.quorum.end_offset}"
            seen.broken(self, None, f"{story} (Q-10)")
        elif truth is None:
            seen.broken(self, None, f"{node.name} has replayed up to {image.offset}, inside of a batch")
        elif (image.topics, image.brokers, image.configs, image.features, image.next_producer_id) != (
            truth.topics,
            truth.brokers,
            truth.configs,
            truth.features,
            truth.next_producer_id,
        ):
            seen.broken(self, None, f"{node.name} differs from the quorum at {image.offset} (Q-8)")
