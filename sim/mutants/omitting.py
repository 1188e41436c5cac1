"""Mutants of what controllers and voters leave out, or say and do not do: nothing of it shows in a record.

Owns wrong functions only; each docstring says which rule is gone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from holdfast.controller.core.brokers import cluster_control
from holdfast.controller.core.brokers.cluster_control import ClusterControl
from holdfast.controller.core.operators import config_control
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.metadata import describe
from holdfast.metadata.image import MetadataImage
from holdfast.raft.core import following
from holdfast.sim.mutants.mutant import Changes, Patch, Setting, mutant, replacing
from holdfast.sim.mutants.source_patch import patch

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
#: each controller is asked, while ISRs and ELRs change
ASKED = Setting(faults={"kill_broker": 4, "isolate_broker": 3, "crumble": 2}, shape={"asks_alone": True})
#: connections between voters end, and controllers with them
VOTERS_FALL = Setting(
    faults={"kill_active": 3, "isolate_active": 3, "pause_active": 2, "reset": 5, "split": 2, "cut_pair": 2},
    gap_ms=400,
)


@mutant(breaks="R27, B24", by="R27", setting=ELIGIBLE_DIRS_FAIL, killed_by="R27@12")
def failed_dirs_stay_eligible() -> Changes:
    """A member of the ELR whose log dir has failed stays there."""
    return patch(cluster_control, "take_offline", "partition.isr + partition.elr", "partition.isr")


_FLIPPED: set[bytes] = set()


def _flip(incarnation_id: bytes) -> bytes:
    return bytes(255 - one for one in incarnation_id)


def _record_of_the_same(original: Any, request: Any, broker_epoch: int, is_clean: bool) -> Any:
    if request.incarnation_id in _FLIPPED:
        request = replace(request, incarnation_id=_flip(request.incarnation_id))
    return original(request, broker_epoch, is_clean)


@replacing(
    ClusterControl,
    "register",
    breaks="R31",
    by="R32",
    setting=ANSWERS_LOST,
    more=(Patch(cluster_control, "_register_record", _record_of_the_same),),
    killed_by="R32@3",
)
def who_asks_again_is_another(
    original: Any, self: Any, draft: Any, request: Any, now_ms: int, voter_ids: Any = ()
) -> Any:
    """A process that registers again since the answer was lost counts as the next one, without a proof."""
    old = draft.image.brokers.get(request.broker_id)
    if old is not None and old.is_fenced and old.incarnation_id == request.incarnation_id:
        request = replace(request, incarnation_id=_flip(request.incarnation_id))
        _FLIPPED.add(request.incarnation_id)
    return original(self, draft, request, now_ms, voter_ids)


@mutant(breaks="F50, R114", by="R113", setting=ASKED, killed_by="R113@1")
def describes_seats_as_eligible() -> Changes:
    """Operators are told of an empty ELR."""
    return patch(describe, "_described_topic", "partition.elr if elr_enabled", "() if elr_enabled")


@mutant(breaks="D9, K4", by="K4", setting=VOTERS_FALL, killed_by="K4@1")
def any_failure_is_evidence() -> Changes:
    """A connection that ends counts as a process that has ended."""
    return patch(
        following, "fetch_failed", "failure is CallFailure.REFUSED", "failure is not CallFailure.TIMED_OUT"
    )


#: what the whole cluster is configured to changes, and topics come back to it
RECONFIGURED = Setting(
    faults={"change_min_isr": 1}, shape={"more_acts": True, "every_write": True}, gap_ms=300
)


@mutant(breaks="R109, N-5", by="R109", setting=RECONFIGURED, killed_by="R109@1")
def the_clusters_min_isr_is_for_new_topics() -> Changes:
    """Another min ISR of the cluster reaches no partition that is there."""
    return patch(
        config_control.ConfigControl,
        "alter",
        "request.name == MIN_ISR",
        "request.name == MIN_ISR and not is_cluster",
    )


@mutant(breaks="R109", by="R109", setting=RECONFIGURED, killed_by="R109@1")
def a_min_isr_that_is_taken_away_stays() -> Changes:
    """Partitions keep the min ISR of their topic when that is taken away."""
    return patch(
        config_control.ConfigControl,
        "alter",
        "request.name == MIN_ISR",
        "request.name == MIN_ISR and request.value is not None",
    )


@mutant(breaks="R69, R109", by="R109", setting=RECONFIGURED, killed_by="R109@1")
def what_the_cluster_has_counts_for_nothing() -> Changes:
    """What is configured of the cluster counts for no topic: its file does."""
    return patch(
        MetadataImage, "topic_config", "self.configs.get(CLUSTER_RESOURCE, _NOTHING).get(key.synonym)", "None"
    )


@contextmanager
def _refreshing_nothing() -> Iterator[None]:
    refresh = ReplicationControl.refresh
    ReplicationControl.refresh = lambda self, *given: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        ReplicationControl.refresh = refresh  # type: ignore[method-assign]
