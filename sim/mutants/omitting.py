"""Mutants of what controllers and voters leave out, or say and do not do: nothing of it shows in a record.

Owns wrong functions only; each docstring says which rule is gone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from holdfast.controller.core import quorum_controller
from holdfast.controller.core.answers import refusal
from holdfast.controller.core.brokers import cluster_control
from holdfast.controller.core.brokers.cluster_control import ClusterControl
from holdfast.controller.core.decisions import CauseKind
from holdfast.controller.core.events import Respond
from holdfast.controller.core.operators import config_control, topics
from holdfast.controller.core.partitions import placement
from holdfast.controller.core.partitions.log_questions import LogQuestions
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.controller.core.partitions.unclean_recovery import AnswerValidity, UncleanRecovery
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata import describe
from holdfast.metadata.image import CLUSTER_RESOURCE, MetadataImage
from holdfast.metadata.records import ELR_FEATURE, FeatureLevelRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.raft.core import following
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.leadership import Leader
from holdfast.rpc.core.failures import CallFailure
from holdfast.sim.mutants.control import ACTIVE_MOVES
from holdfast.sim.mutants.mutant import Patch, Setting, mutant
from holdfast.sim.mutants.shutdown import STOPPED

#: log dirs of brokers fail that are not in sync any more, and eligible
ELIGIBLE_DIRS_FAIL = Setting(
    faults={"fail_dir": 5, "kill_broker": 2, "isolate_broker": 5, "cut_followers": 3},
    shape={"log_dirs": 2},
    gap_ms=400,
)
#: answers to registrations are lost
ANSWERS_LOST = Setting(
    faults={"kill_broker": 4, "restart_broker": 4, "reset": 5, "isolate_active": 2, "one_way": 3, "clog": 2},
    gap_ms=300,
)
#: ELR goes on and off while brokers come and go
SWITCHED = Setting(
    band="switched-elr", faults={"switch_elr": 4, "kill_broker": 3, "kill_active": 3, "isolate_broker": 2}
)
#: all brokers fall, and operators elect
BY_HAND = Setting(
    band="over-budget",
    faults={"elect_unclean": 5, "crumble": 3, "kill_all_brokers": 3, "power_broker": 3},
    shape={"recovery_manager": True},
    seconds=25,
)
BY_HAND_WITHOUT = replace(BY_HAND, shape={"recovery_manager": False})
#: logs are compared while who leads changes, and some tell of what was
COMPARED = Setting(
    band="over-budget",
    faults={"stale_answer": 6, "crumble": 3, "late_metadata": 3, "kill_all_brokers": 2},
    shape={"recovery_manager": True},
    seconds=25,
)
#: partitions are added while the first one moves
ADDED = Setting(faults={"add_partition": 4, "move_partition": 6, "isolate_broker": 3}, gap_ms=250)
#: topics are made while brokers are away
TOPICS_MADE = Setting(
    faults={"make_topic": 6, "drop_topic": 4, "add_partition": 2, "kill_broker": 4, "isolate_broker": 3},
    shape={"brokers": 5},
    gap_ms=350,
)
#: each controller is asked, while ISRs and ELRs change
ASKED = Setting(faults={"kill_broker": 4, "isolate_broker": 3, "crumble": 2}, shape={"asks_alone": True})
#: a deposed controller is asked
ASKED_APART = Setting(
    faults={"isolate_active": 5, "split": 3, "pause_active": 3, "bridge": 2},
    shape={"asks_alone": True},
    seconds=25,
)
#: connections between voters end, and controllers with them
VOTERS_FALL = Setting(
    faults={"kill_active": 3, "isolate_active": 3, "pause_active": 2, "reset": 5, "split": 2, "cut_pair": 2},
    gap_ms=400,
)


class _OnlyIsr:
    """A replication control that takes no broker out that is in no ISR."""

    def __init__(self, replication: Any, broker_id: int) -> None:
        self._replication, self._broker_id = replication, broker_id

    def context(self, *given: Any) -> Any:
        return self._replication.context(*given)

    def change(self, draft: Any, topic: Any, index: int, partition: Any, *more: Any) -> None:
        if self._broker_id in partition.isr:
            self._replication.change(draft, topic, index, partition, *more)


@mutant(
    cluster_control,
    "take_offline",
    breaks="R27, B24",
    by="R27",
    setting=ELIGIBLE_DIRS_FAIL,
    killed_by="R27@12",
)
def failed_dirs_stay_eligible(
    original: Any, draft: Any, replication: Any, broker: Any, reported: Any
) -> None:
    """A member of the ELR whose log dir has failed stays there."""
    original(draft, _OnlyIsr(replication, broker.broker_id), broker, reported)


_FLIPPED: set[bytes] = set()


def _flip(incarnation_id: bytes) -> bytes:
    return bytes(255 - one for one in incarnation_id)


def _record_of_the_same(original: Any, request: Any, broker_epoch: int, is_clean: bool) -> Any:
    if request.incarnation_id in _FLIPPED:
        request = replace(request, incarnation_id=_flip(request.incarnation_id))
    return original(request, broker_epoch, is_clean)


@mutant(
    ClusterControl,
    "register",
    breaks="R31",
    by="R32",
    setting=ANSWERS_LOST,
    more=(Patch(cluster_control, "_register_record", _record_of_the_same),),
    killed_by="R32@3",
)
def who_asks_again_is_another(original: Any, self: Any, draft: Any, request: Any, now_ms: int) -> Any:
    """A process that registers again since the answer was lost counts as the next one, without a proof."""
    old = draft.image.brokers.get(request.broker_id)
    if old is not None and old.is_fenced and old.incarnation_id == request.incarnation_id:
        request = replace(request, incarnation_id=_flip(request.incarnation_id))
        _FLIPPED.add(request.incarnation_id)
    return original(self, draft, request, now_ms)


@mutant(ReplicationControl, "refresh", breaks="B8, R108", by="R108", setting=SWITCHED, killed_by="R108@1")
def elr_goes_off_and_leaves_its_sets(
    original: Any, self: Any, draft: Any, cause: Any, topic_name: Any = None
) -> None:
    """Who is eligible, and known, stays so while ELR is off."""
    if cause.kind is not CauseKind.ELR_SWITCHED_OFF:
        original(self, draft, cause, topic_name)


@mutant(
    config_control, "_partition_without_isr", breaks="B8", by="R108", setting=SWITCHED, killed_by="R108@3"
)
def elr_goes_off_while_it_is_needed(original: Any, image: Any) -> Any:
    """ELR is switched off also while the ISR of a partition is empty."""
    return None


@mutant(QuorumController, "_bootstrap", breaks="F63, R108", by="R108", setting=SWITCHED, killed_by="R108@2")
def each_controller_switches_elr_on(original: Any, self: Any, draft: Any) -> None:
    """A controller that becomes active takes back that operators have switched ELR off."""
    original(self, draft)
    if not draft.image.elr_enabled and self._config.elr_enabled:
        draft.write(FeatureLevelRecord(ELR_FEATURE, 1))


@mutant(UncleanRecovery, "observe", breaks="R60, R69", by="R60", setting=BY_HAND, killed_by="R60@2")
def wishes_outlive_leaders(original: Any, self: Any, before: Any, after: Any, changed: Any) -> None:
    """What an operator has asked of a partition once holds the next time, too."""
    forced = dict(self._forced)
    original(self, before, after, changed)
    self._forced |= forced


@mutant(
    LogQuestions,
    "answered",
    breaks="R62",
    by="R60",
    setting=COMPARED,
    gap="who is unfenced has mostly heard of the last leader epoch; a fault that holds back only metadata",
)
def asks_nobody_who_is_behind_again(original: Any, self: Any, event: Any, now_ms: int, judge: Any) -> None:
    """Who answers for an old leader epoch is not asked again."""

    def lenient(arrived: Any) -> Any:
        verdict = judge(arrived)
        return AnswerValidity.SUPERSEDED if verdict is AnswerValidity.STALE_LEADER_EPOCH else verdict

    original(self, event, now_ms, lenient)


@mutant(UncleanRecovery, "force", breaks="R17, R69", by="R60", setting=BY_HAND, killed_by="R60@2")
def wishes_are_not_carried_out(
    original: Any, self: Any, image: Any, topic: Any, index: int, strategy: Any
) -> None:
    """Who asks for a comparison of logs hears of success, and nothing is compared."""


@mutant(ClusterControl, "heartbeat", breaks="R23", by="R25", setting=STOPPED, killed_by="R25@1")
def tells_nobody_that_it_may_go(
    original: Any, self: Any, draft: Any, request: Any, connection_id: int, now_ms: int
) -> Any:
    """A broker that may go is not told so."""
    return replace(original(self, draft, request, connection_id, now_ms), should_shut_down=False)


@mutant(describe, "_described_topic", breaks="F50, R114", by="R113", setting=ASKED, killed_by="R113@1")
def describes_seats_as_eligible(original: Any, image: Any, topic: Any, partitions: Any) -> Any:
    """Operators are told of an empty ELR."""
    described = original(image, topic, partitions)
    rows = tuple(replace(row, eligible_leader_replicas=()) for row in described.partitions)
    return replace(described, partitions=rows)


@mutant(topics, "_more_replica_lists", breaks="R106, B7", by="R106", setting=ADDED, killed_by="R106@7")
def counts_those_that_leave(original: Any, image: Any, topic: Any, asked: Any, room: int) -> Any:
    """A new partition has as many replicas as the first one while it is moved, old and new ones."""
    first = replace(topic.partitions[0], removing_replicas=(), adding_replicas=(), original_replicas=None)
    topic = replace(topic, partitions=topic.partitions.set(0, first))
    return original(image, topic, asked, room)


@mutant(topics, "place_replicas", breaks="R106", by="R106", setting=TOPICS_MADE, killed_by="R106@1")
def fenced_brokers_get_replicas_too(
    original: Any, active: Any, fenced: Any, *, partition_count: int, replication_factor: int, start: int
) -> Any:
    """Any registered broker gets replicas of a new topic, though enough others are ready: it begins with few
    in sync."""
    more = {"partition_count": partition_count, "replication_factor": replication_factor, "start": start}
    placed = original([*active, *fenced], [], **more)
    ready = {broker_id for broker_id, _ in active}
    # some of its partitions would have no leader otherwise
    return placed if all(ready & {*replicas} for replicas in placed) else original(active, fenced, **more)


@mutant(topics, "place_replicas", breaks="R106", by="R106", setting=TOPICS_MADE, killed_by="R106@1")
def one_broker_leads_all_of_a_topic(
    original: Any, active: Any, fenced: Any, *, partition_count: int, replication_factor: int, start: int
) -> Any:
    """All partitions of a new topic have the same replicas, and the same one leads."""
    one = original(active, fenced, partition_count=1, replication_factor=replication_factor, start=start)
    return one * partition_count


@mutant(
    placement,
    "_spread",
    breaks="R106",
    by="R106",
    setting=replace(TOPICS_MADE, shape={"brokers": 5, "racks": 2}),
    killed_by="R106@1",
)
def racks_count_for_nothing(original: Any, order: Any, count: int, active_count: int) -> Any:
    """Both copies may be in one rack."""
    return tuple(broker_id for broker_id, _ in order[:count])


@mutant(
    QuorumController,
    "_answer",
    breaks="K20",
    by="R113",
    setting=ASKED_APART,
    gap="two controllers must be asked for the same topic within the half second in which both may lead",
)
def it_is_so_already_needs_no_commit(original: Any, self: Any, draft: Any, event: Any, now_ms: int) -> Any:
    """That a thing is so already is said without asking whether this controller still leads."""
    return self._decide(draft, event, now_ms)


#: the active controller falls while operators work
BUSY_OPERATORS = Setting(
    faults={
        "kill_active": 6,
        "isolate_active": 4,
        "pause_active": 2,
        "make_topic": 5,
        "drop_topic": 4,
        "move_partition": 3,
        "elect_preferred": 3,
        "change_min_isr": 2,
    },
    shape={"more_acts": True},
    gap_ms=350,
    seconds=20,
)


@mutant(QuorumController, "_on_committed", breaks="K20", by="K20", setting=ACTIVE_MOVES, killed_by="K20@1")
def waiting_slots_leak(original: Any, self: Any, event: Any, now_ms: int) -> Any:
    """Requests that were answered still count as waiting: once queued.max.requests of them were, the active
    controller refuses every write until it is deposed."""
    waiting = self._waiting_answers
    effects = original(self, event, now_ms)
    self._waiting_answers = max(waiting, self._waiting_answers)
    return effects


@mutant(QuorumController, "_renounce", breaks="K23", by="K20", setting=ACTIVE_MOVES, killed_by="K20@6")
def renounces_without_a_word(original: Any, self: Any) -> Any:
    """A controller that is deposed forgets the requests that wait for their commit, and answers none."""
    return [one for one in original(self) if type(one) is not Respond]


@mutant(
    quorum_controller, "undecided", breaks="K20, K23", by="K20", setting=BUSY_OPERATORS, killed_by="K20@1"
)
def undecided_is_nothing_done(original: Any, request: Any) -> Any:
    """What may yet be committed is refused as if nothing had been done: the broker between asks again."""
    return refusal(request, ErrorCode.NOT_CONTROLLER, "not the active controller any more; ask the next one")


@mutant(QuorumController, "_write", breaks="K20", by="K20", setting=ACTIVE_MOVES, killed_by="K20@1")
def no_change_needs_no_commit(original: Any, self: Any, decide: Any, now_ms: int, request: Any = None) -> Any:
    """An answer without records of its own is given at once, though it was judged by what may be lost."""
    end_offset = self._next_offset
    effects = original(self, decide, now_ms, request)
    answers = self._pending[-1].answers if self._pending and self._next_offset == end_offset else []
    if request is not None and answers and answers[-1][0] is request:
        self._waiting_answers -= 1
        effects.append(Respond(request.request_id, answers.pop()[1]))
    return effects


@mutant(RaftConfig, "check_quorum_timeout_ms", breaks="K7", by="K7", setting=VOTERS_FALL, killed_by="K7@1")
def leads_alone_for_long(original: Any, self: Any) -> int:
    """A leader whose followers are silent resigns after ten times as long."""
    timeout_ms: int = original(self) * 10
    return timeout_ms


@mutant(following, "fetch_failed", breaks="D9, K4", by="K4", setting=VOTERS_FALL, killed_by="K4@1")
def any_failure_is_evidence(original: Any, member: Any, failure: Any) -> None:
    """A connection that ends counts as a process that has ended."""
    is_silence = failure is CallFailure.TIMED_OUT
    original(member, failure if is_silence else CallFailure.REFUSED)


@mutant(Leader, "take_parked", breaks="K10", by="K7", killed_by="K7@1")
def commits_wake_nobody(
    original: Any, self: Any, log_end_offset: int, high_watermark: int, now_ms: int
) -> Any:
    """That more is committed is told with the next record, or at the end of the wait."""
    told = {id(one): one.told_high_watermark for one in self.replicas()}
    for one in self.replicas():
        one.told_high_watermark = high_watermark
    taken = original(self, log_end_offset, high_watermark, now_ms)
    for one in self.replicas():
        if one.parked is not None:
            one.told_high_watermark = told[id(one)]
    return taken


@mutant(Leader, "take_all_parked", breaks="K10, K3", by="K7", setting=VOTERS_FALL, killed_by="K7@1")
def leaves_fetches_unanswered(original: Any, self: Any) -> Any:
    """A leader that resigns lets those wait who have asked it for news."""
    return []


#: what the whole cluster is configured to changes, and topics come back to it
RECONFIGURED = Setting(
    faults={"change_min_isr": 1}, shape={"more_acts": True, "every_write": True}, gap_ms=300
)


@mutant(
    config_control.ConfigControl,
    "alter",
    breaks="R109, N-5",
    by="R109",
    setting=RECONFIGURED,
    killed_by="R109@1",
)
def the_clusters_min_isr_is_for_new_topics(original: Any, self: Any, draft: Any, request: Any) -> Any:
    """Another min ISR of the cluster reaches no partition that is there."""
    if request.resource != CLUSTER_RESOURCE:
        return original(self, draft, request)
    with _refreshing_nothing():
        return original(self, draft, request)


@mutant(
    config_control.ConfigControl, "alter", breaks="R109", by="R109", setting=RECONFIGURED, killed_by="R109@1"
)
def a_min_isr_that_is_taken_away_stays(original: Any, self: Any, draft: Any, request: Any) -> Any:
    """Partitions keep the min ISR of their topic when that is taken away."""
    if request.value is not None:
        return original(self, draft, request)
    with _refreshing_nothing():
        return original(self, draft, request)


@mutant(
    MetadataImage, "topic_config", breaks="R69, R109", by="R109", setting=RECONFIGURED, killed_by="R109@1"
)
def what_the_cluster_has_counts_for_nothing(
    original: Any, self: Any, topic_name: str, name: str, static: Any = None
) -> Any:
    """What is configured of the cluster counts for no topic: its file does."""
    configs = self.configs
    without = configs.delete(CLUSTER_RESOURCE) if CLUSTER_RESOURCE in configs else configs
    return original(replace(self, configs=without), topic_name, name, static)


@contextmanager
def _refreshing_nothing() -> Iterator[None]:
    refresh = ReplicationControl.refresh
    ReplicationControl.refresh = lambda self, *given: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        ReplicationControl.refresh = refresh  # type: ignore[method-assign]
