"""What an answer is worth, whom the answers make leader, and what that may cost."""

import pytest

from holdfast.cli.recovery.choice import (
    Loss,
    RecoveryCandidate,
    Worth,
    candidates,
    chosen,
    estimated_loss,
    longest,
    unseen,
)
from holdfast.client.core.errors import RowError
from holdfast.client.core.replica_log import ReplicaLog
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import DescribeClusterBroker
from holdfast.protocol.messages.topics import DescribedPartition
from tests.unit.cli import rows

SILENT = RowError(ErrorCode.NETWORK_EXCEPTION, "no process listens there")


def log(
    broker_id: int,
    last_epoch: int,
    end_offset: int,
    high_watermark: int = -1,
    *,
    broker_epoch: int | None = None,
    leader_epoch: int = 7,
) -> ReplicaLog:
    """What that broker of `rows.cluster` says of its log in leader epoch 7."""
    epoch = 10 + broker_id if broker_epoch is None else broker_epoch
    return ReplicaLog(epoch, last_epoch, leader_epoch, end_offset, end_offset, high_watermark)


def row(elr: tuple[int, ...] = (), known: tuple[int, ...] = (), **changes: object) -> DescribedPartition:
    return rows.partition(eligible_leader_replicas=elr, last_known_elr=known, **changes)


def found_of(
    partition: DescribedPartition,
    *told: ReplicaLog | RowError | None,
    fenced: tuple[int, ...] = (),
    stopping: tuple[int, ...] = (),
    count: int = 3,
) -> tuple[RecoveryCandidate, ...]:
    """The candidates when brokers 1, 2, 3 told this."""
    brokers = {one.broker_id: one for one in rows.cluster(count, fenced=fenced, stopping=stopping).brokers}

    def broker_of(broker_id: int) -> DescribeClusterBroker | None:
        return brokers.get(broker_id)

    heard = {number: one for number, one in enumerate(told, start=1) if one is not None}
    return candidates(partition, broker_of, heard)


@pytest.mark.parametrize(
    ("told", "around", "worth"),
    [
        pytest.param(log(1, 7, 90), {}, Worth.GOOD, id="of now"),
        pytest.param(SILENT, {}, Worth.NONE, id="an error"),
        pytest.param(None, {}, Worth.NONE, id="nothing heard"),
        pytest.param(log(1, 7, 90, broker_epoch=5), {}, Worth.VOID, id="a former incarnation (R63)"),
        pytest.param(log(1, 7, 90, broker_epoch=99), {}, Worth.VOID, id="a later incarnation"),
        pytest.param(log(1, 7, 90, broker_epoch=-1), {}, Worth.VOID, id="restarted, not noticed yet"),
        pytest.param(
            log(1, 7, 90, broker_epoch=-1), {"fenced": (1,)}, Worth.NOT_READY, id="about to register"
        ),
        pytest.param(
            log(1, 7, 90, broker_epoch=5), {"fenced": (1,)}, Worth.VOID, id="fenced and of long ago"
        ),
        pytest.param(log(1, 7, 90), {"fenced": (1,)}, Worth.NOT_READY, id="fenced (R76)"),
        pytest.param(log(1, 7, 90), {"stopping": (1,)}, Worth.NOT_READY, id="stopping"),
        pytest.param(log(1, 7, 90), {"count": 0}, Worth.NOT_READY, id="not registered"),
        pytest.param(log(1, 7, 90, leader_epoch=6), {}, Worth.BEHIND, id="old metadata (R62)"),
        pytest.param(log(1, 7, 90, leader_epoch=8), {}, Worth.AHEAD, id="newer metadata (R62)"),
    ],
)
def test_an_answer_is_worth_what_the_cluster_says_of_its_broker(
    told: ReplicaLog | RowError | None, around: dict[str, tuple[int, ...]], worth: Worth
) -> None:
    found = found_of(row(), told, **around)  # type: ignore[arg-type]
    assert found[0].worth is worth
    assert (found[0].log is None) == (found[0].problem is not None) == (not worth.is_told)


@pytest.mark.parametrize(
    ("partition", "told", "fenced", "best", "best_of_all"),
    [
        pytest.param(row(), (log(1, 3, 90), log(2, 7, 80)), (), 2, 2, id="the epoch before the length (B22)"),
        pytest.param(row(), (log(1, 7, 80), log(2, 7, 90)), (), 2, 2, id="the length within an epoch (R72)"),
        pytest.param(row(), (log(1, 7, 90), log(2, 7, 90)), (), 1, 1, id="equal: the order of assignment"),
        pytest.param(row(known=(2, 3)), (log(1, 7, 90), log(2, 7, 90)), (), 2, 2, id="equal: once eligible"),
        pytest.param(row(), (log(1, 7, 90), log(2, 7, 80)), (1,), 2, 1, id="unfenced first (R76)"),
        pytest.param(row(), (log(1, 7, 90), log(2, 7, 80)), (1, 2), 1, 1, id="fenced before none (R76)"),
        pytest.param(row(), (SILENT, None), (), None, None, id="no replica answered"),
        pytest.param(
            row(), (log(1, 7, 90, leader_epoch=8), log(2, 7, 80)), (), None, 1, id="the partition has changed"
        ),
        pytest.param(
            row(known=(1, 2)),
            (log(1, 4, 9), log(2, 4, 8), log(3, 5, 7)),
            (),
            1,
            1,
            id="an epoch never committed",
        ),
        pytest.param(
            row(known=(1, 2)), (log(1, 4, 9), SILENT, log(3, 5, 7)), (), 3, 3, id="no proof, one is silent"
        ),
        pytest.param(
            row(known=(1,)),
            (log(1, 4, 9), log(2, 5, 9)),
            (1,),
            2,
            1,
            id="no ready replica ends in the proven epoch",
        ),
        pytest.param(row(elr=(2,)), (log(1, 8, 99), log(2, 7, 80)), (), 2, 2, id="the ELR is complete (R67)"),
        pytest.param(
            row(elr=(3,), known=(1, 2)), (log(1, 4, 9), log(2, 4, 8)), (), 1, 1, id="the ELR is silent"
        ),
    ],
)
def test_the_best_log_leads(
    partition: DescribedPartition,
    told: tuple[ReplicaLog | RowError | None, ...],
    fenced: tuple[int, ...],
    best: int | None,
    best_of_all: int | None,
) -> None:
    found = found_of(partition, *told, fenced=fenced)
    assert (chosen(partition, found), longest(partition, found)) == (best, best_of_all)


@pytest.mark.parametrize(
    ("partition", "told", "losses"),
    [
        pytest.param(
            row(known=(1, 2)), (log(1, 7, 90, 85), log(2, 7, 80, 80)), ["0", "5", "-"], id="what is committed"
        ),
        pytest.param(row(known=(1, 3)), (log(1, 7, 90, 95), log(2, 7, 90)), [">=5", ">=5", "-"], id="unseen"),
        pytest.param(row(), (log(1, 7, 90, 85), log(2, 7, 80)), [">=0", ">=5", "-"], id="anybody unseen"),
        pytest.param(
            row(known=(1,)),
            (log(1, 7, 90, 85), log(2, 6, 95)),
            ["0", ">=0", "-"],
            id="parts in an older epoch",
        ),
        pytest.param(row(known=(1,)), (log(1, 7, 90), SILENT), ["-", "-", "-"], id="nothing known committed"),
    ],
)
def test_a_loss_is_estimated_by_what_others_know_to_be_committed(
    partition: DescribedPartition, told: tuple[ReplicaLog | RowError | None, ...], losses: list[str]
) -> None:
    found = found_of(partition, *told)
    estimates = [estimated_loss(found, one.replica) for one in found]
    assert ["-" if loss is None else str(loss) for loss in estimates] == losses
    assert estimates[2] is None


def test_those_who_held_everything_once_are_missed_first() -> None:
    """R78: where nothing is known of that, every replica may have."""
    assert [one.replica for one in unseen(found_of(row(elr=(2,), known=(1,)), log(1, 7, 9)))] == [2]
    assert [one.replica for one in unseen(found_of(row(), log(1, 7, 9)))] == [2, 3]
    assert str(Loss(3, is_at_least=True)) == ">=3"
