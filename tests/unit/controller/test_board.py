"""What a controller alone can show: who leads next, and why partitions changed."""

from holdfast.controller.core.board import decision_bodies, next_leader_body
from holdfast.metadata.ids import PartitionId
from tests.unit.controller.harness import Quorum, make_config
from tests.unit.controller.test_topics import create


def cluster() -> Quorum:
    made = Quorum(make_config(min_insync_replicas="2"))
    made.start_brokers(1, 2, 3)
    create(made, "t", -1, -1, (1, 2, 3))
    return made


def next_of(made: Quorum) -> dict[str, object]:
    key = PartitionId(made.topic("t").topic_id, 0)
    return next_leader_body(made.core, "t", key, made.partition("t", 0))


def test_who_leads_next_is_what_the_controller_would_elect() -> None:
    made = cluster()
    assert next_of(made) == {"leader": 2, "reason": "isr", "waits_for": []}
    made.vanish(2)
    assert next_of(made) == {"leader": 3, "reason": "isr", "waits_for": []}
    made.vanish(3)
    # 3 left an ISR below min ISR, so it is eligible, and it is away
    assert next_of(made) == {"leader": None, "reason": None, "waits_for": [3]}


def test_decisions_come_newest_first_with_their_causes() -> None:
    made = cluster()
    made.vanish(2)
    made.vanish(1)
    newest, before = decision_bodies(made.core, 2)
    assert (newest["leader"], newest["elected_by"], newest["elr"]) == ([1, 3], "isr", [[], [1]])
    assert (before["leader"], before["elected_by"], before["isr"]) == ([1, 1], None, [[1, 2, 3], [1, 3]])
    assert "broker 1" in newest["cause"]
    assert newest["metadata_offset"] > before["metadata_offset"]
    assert len(decision_bodies(made.core, 1)) == 1
