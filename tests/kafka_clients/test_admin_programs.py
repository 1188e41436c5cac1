"""What further clients have for operators: each call of theirs does its work, or is refused at once."""

from pathlib import Path

import pytest

from holdfast.testing import HoldfastCluster
from tests.kafka_clients.judges import KafkaGo, KafkaJs, ProgramJudge, Sarama

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(900),  # the first compilation takes minutes
    pytest.mark.xdist_group("kafka tools"),
]

#: {client: (how it is run, what it prints)}
CLIENTS: dict[str, tuple[type[ProgramJudge], list[str]]] = {
    "sarama": (
        Sarama,
        [
            "listed 3 123456",
            "described 3 3",
            "retention.ms 123456",
            "begins at 4",
            "brokers 3",
            "log dirs 3",
            "group true Empty 7",
            "acls kafka server: The version of API is not supported",
            "scram kafka server: The version of API is not supported",
            "transactions kafka server: Transactional ID authorization failed",
        ],
    ),
    "kafka-go": (
        KafkaGo,
        [
            "described 3 3 3",
            "retention.ms 123456",
            "offsets 0 0",
            "group Empty 7 true",
            "transactions refused true",
            "acls refused true",
        ],
    ),
    "KafkaJS": (
        KafkaJs,
        [
            "listed true",
            "retention.ms 123456",
            "offsets 4 10 4",
            "brokers 3",
            "committed 7",
            "group Empty",
            "acls The Kafka server does not support the requested API version",
        ],
    ),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_topics_and_groups_are_administered(name: str, cluster: HoldfastCluster, tmp_path: Path) -> None:
    make, says = CLIENTS[name]
    cluster.restart()
    assert make(cluster.kafka_bootstrap, tmp_path).run(f"admin-{name}", "admin") == says
