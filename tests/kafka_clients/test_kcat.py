"""kcat, unchanged: lines in, lines out, alone and as members of a group."""

import json

import pytest

from holdfast.testing import HoldfastCluster
from tests.kafka_clients.programs import Done, program, run

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]

LINES = [f"key{number}:value {number}" for number in range(1_000)]


def kcat(cluster: HoldfastCluster, *words: str, stdin: str = "") -> Done:
    """Run it to its end; it must succeed."""
    found = program("kcat", "apt-get install kcat")
    done = run([found, "-b", cluster.kafka_bootstrap, *words], stdin)
    assert done.code == 0, done
    return done


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_are_written_and_read_in_every_compression(cluster: HoldfastCluster, codec: str) -> None:
    cluster.restart()
    topic = cluster.create_topic(f"kcat-{codec}", partitions=3)
    words = ("-X", "enable.idempotence=true", "-z", codec, "-H", "header=h")
    kcat(cluster, "-P", "-t", topic, "-K:", *words, stdin="\n".join(LINES) + "\n")
    read = kcat(cluster, "-C", "-t", topic, "-o", "beginning", "-e", "-f", "%h|%p|%o|%k:%s\n").lines
    rows = [line.split("|", 3) for line in read]
    assert sorted(row[3] for row in rows) == sorted(LINES)
    assert {row[0] for row in rows} == {"header=h"}
    assert len({(row[1], row[2]) for row in rows}) == len(LINES)


def test_a_group_goes_on_where_it_ended(cluster: HoldfastCluster) -> None:
    cluster.restart()
    topic = cluster.create_topic("kcat-group", partitions=3)
    words = ("-X", "auto.offset.reset=earliest", "-f", "%k:%s\n", "-G", "kcat-group", "-c")
    for half in (LINES[:500], LINES[500:]):
        kcat(cluster, "-P", "-t", topic, "-K:", stdin="\n".join(half) + "\n")
        read = kcat(cluster, *words, str(len(half)), topic).lines
        assert sorted(read) == sorted(half)


def test_metadata_and_offsets_by_time_are_told(cluster: HoldfastCluster) -> None:
    cluster.restart()
    topic = cluster.create_topic("kcat-metadata")
    kcat(cluster, "-P", "-t", topic, stdin="one\ntwo\n")
    found = json.loads(kcat(cluster, "-L", "-J", "-t", topic).out)
    assert [broker["id"] for broker in found["brokers"]] == [1, 2, 3]
    (row,) = found["topics"][0]["partitions"]
    leader = cluster.leader(topic)
    assert leader is not None
    assert (row["leader"], len(row["isrs"])) == (leader.node_id, 3)
    assert kcat(cluster, "-Q", "-t", f"{topic}:0:0").out.strip() == f"{topic} [0] offset 0"
