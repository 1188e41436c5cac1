"""ElectLeaders beyond the scenario files (R17-R19)."""

import pytest

from holdfast.controller.core.operators.operations import ElectionType, ElectLeader
from holdfast.protocol.errors import ErrorCode
from tests.unit.controller.harness import Quorum, make_config
from tests.unit.controller.test_topics import create


@pytest.fixture
def quorum() -> Quorum:
    made = Quorum(make_config(min_insync_replicas="2", unclean_recovery_manager_enabled="false"))
    made.start_brokers(1, 2, 3)
    create(made, "t", -1, -1, (1, 2, 3))
    return made


def elect(quorum: Quorum, kind: ElectionType, leader: int | None = None, index: int = 0) -> ErrorCode:
    code: ErrorCode = quorum.request(ElectLeader(kind, "t", index, leader)).error_code
    return code


@pytest.mark.parametrize("kind", list(ElectionType))
def test_an_unknown_partition_is_told_before_anything_else(quorum: Quorum, kind: ElectionType) -> None:
    assert elect(quorum, kind, index=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_preferred_replica_is_elected_or_none(quorum: Quorum) -> None:
    """B15: in the ISR but fenced or out of it is not available."""
    quorum.vanish(1)
    assert elect(quorum, ElectionType.PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    quorum.heartbeat(1)
    assert elect(quorum, ElectionType.PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    quorum.alter("t", (1, 2, 3))
    assert elect(quorum, ElectionType.PREFERRED) is ErrorCode.NONE
    assert quorum.partition("t").leader == 1


def test_a_designation_without_a_name_is_refused(quorum: Quorum) -> None:
    """R18."""
    for broker_id in (3, 2, 1):
        quorum.vanish(broker_id)
    assert elect(quorum, ElectionType.DESIGNATED) is ErrorCode.INVALID_REQUEST
    assert elect(quorum, ElectionType.DESIGNATED, 9) is ErrorCode.INVALID_REQUEST
    assert elect(quorum, ElectionType.DESIGNATED, 3) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    quorum.heartbeat(3)
    assert elect(quorum, ElectionType.DESIGNATED, 3) is ErrorCode.NONE
    assert elect(quorum, ElectionType.DESIGNATED, 3) is ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.parametrize("kind", [ElectionType.LONGEST_LOG_AGGRESSIVE, ElectionType.LONGEST_LOG_BALANCED])
def test_logs_are_compared_by_the_recovery_manager_only(quorum: Quorum, kind: ElectionType) -> None:
    for broker_id in (3, 2, 1):
        quorum.vanish(broker_id)
    assert elect(quorum, kind) is ErrorCode.INVALID_REQUEST


def test_an_unclean_election_of_one_partition_elects_no_other(quorum: Quorum) -> None:
    """R17: it may lose records, and operators have allowed that for the named one alone."""
    create(quorum, "u", -1, -1, (1, 2, 3))
    for broker_id in (1, 2, 3):
        quorum.vanish(broker_id)
    quorum.heartbeat(1)
    assert elect(quorum, ElectionType.UNCLEAN) is ErrorCode.NONE
    assert (quorum.partition("t").leader, quorum.partition("u").leader) == (1, None)
