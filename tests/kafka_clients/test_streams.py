"""Kafka Streams: state in changelogs, compacted and by time, repartition topics, members of a group.

Each run begins with an empty folder: its stores come from what the runs before it left in the cluster.
"""

from pathlib import Path

import pytest

from holdfast.testing import HoldfastCluster
from tests.kafka_clients.kills import kills_in_turn
from tests.kafka_clients.programs import Done, ended, java_source

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("kafka streams"),
]

NUMBERS = 300
#: How long all brokers live between two kills. The run before has not left the group, and each coordinator
#: waits for its members a session (3 s) before a generation begins. On a quick machine replicas are in sync
#: again after 0.7 s: without a rest no coordinator would live that long.
REST_S = 5.0


class Application:
    """Runs of streams/Numbers.java, which write some numbers more each."""

    def __init__(self, name: str, cluster: HoldfastCluster, folder: Path) -> None:
        cluster.restart()
        for topic in (name, f"{name}-out"):
            cluster.create_topic(topic, partitions=3)
        self._name = name
        self._bootstrap = cluster.kafka_bootstrap
        self._folder = folder
        self._runs = 0

    def run(self, guarantee: str = "at_least_once") -> Done:
        first, end = self._runs * NUMBERS, (self._runs + 1) * NUMBERS
        state = self._folder / f"state-{self._runs}"
        self._runs += 1
        words = (self._bootstrap, self._name, str(state), str(first), str(end), guarantee)
        return ended(java_source("streams", "Numbers.java", *words), timeout_s=180)

    def runs_well(self) -> None:
        done = self.run()
        assert (done.code, done.lines[-1:]) == (0, [f"{self._runs * NUMBERS} {self._runs * NUMBERS}"]), done


def test_stores_come_back_from_their_changelogs_while_brokers_are_killed(
    cluster: HoldfastCluster, tmp_path: Path
) -> None:
    application = Application("streams", cluster, tmp_path)
    application.runs_well()
    application.runs_well()
    with kills_in_turn(cluster, REST_S) as kills:
        for _ in kills.rounds():
            application.runs_well()


def test_exactly_once_is_refused_at_once(cluster: HoldfastCluster, tmp_path: Path) -> None:
    done = Application("streams-exactly-once", cluster, tmp_path).run("exactly_once_v2")
    assert done.code == 1, done
    assert "TransactionalIdAuthorizationException" in done.out
