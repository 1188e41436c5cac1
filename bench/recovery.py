"""The whole cluster loses its power: how long until every partition has a leader again, chosen by its log.

No replica is known to be complete then: the controller waits for the last known ELR, asks all brokers where
their logs end (R61) and elects (R66). Back of an envelope: 2000 partitions are two questions a broker and
2000 records, some tenths of a second of one controller; before that the last broker has to recover its 2000
logs, each a scan and a flush or two. Target: below 10 s from the last registration to the last leader.
"""

import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from holdfast.bench.cluster import MIN_ISR, REPLICATION_FACTOR, BenchCluster, own_cluster
from holdfast.bench.figures import Spread, spread, table
from holdfast.bench.machine import describe
from holdfast.bench.report import Answer, common, finish, note
from holdfast.client.producer import Producer
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run

TOPIC = "bench-recovery"
PROPERTIES = {
    # series of partitions would make looking on as dear as what is looked at
    "holdfast.metrics.partition.level": "false",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
KILL = "kill"
_GIVE_UP_S = 180.0
#: often enough: the times are those of the controllers' logs
_LOOK_S = 0.5
_REGISTERED = re.compile(r"broker (\d+) registered .*, epoch \d+$")
_UNFENCED = re.compile(r"broker \d+ unfenced, ")
_OPENED = re.compile(r" opened \d+ logs in (\d+) ms, ")
_SAMPLE = re.compile(r"^kafka_controller_(\w+)(?:\{.*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Recovered:
    """One outage, seconds."""

    #: processes started to the registration of the last broker
    to_registration_s: float
    #: from there until all brokers are unfenced: their logs are recovered
    to_unfenced_s: float
    #: the slowest broker took so long to open and recover its logs
    logs_s: float
    #: from the last registration to the last leader
    to_leaders_s: float
    #: partitions that got their leader by a comparison of logs
    compared: int


@click.command()
@common
@click.option("--partitions", type=click.IntRange(1), default=2000, show_default=True)
@click.option("--records", type=click.IntRange(0), default=10, show_default=True, help="In each partition.")
@click.option(
    "--power-loss",
    "driver",
    default="auto",
    show_default=True,
    help=f"A driver of `holdfast cluster power-loss`, or {KILL}: kill -9, the page cache lives.",
)
def main(
    bootstrap_server: str | None,
    folder: Path | None,
    runs: int,
    as_json: bool,
    partitions: int,
    records: int,
    driver: str,
) -> Answer:
    """Time from the last registration to the last leader, after all nodes went down at once."""
    if bootstrap_server is not None:
        raise click.UsageError("recovery cuts the power of a cluster, so it starts one of its own")
    loss = None if driver == KILL else driver
    with own_cluster(folder, properties=PROPERTIES, power_loss=loss) as cluster:
        local = cluster.local
        assert local is not None
        configs = {"min.insync.replicas": str(MIN_ISR)}
        cluster.ask(lambda admin: admin.create_topic(TOPIC, partitions, REPLICATION_FACTOR, configs=configs))
        found = [_outage(cluster, local, partitions, records, number) for number in range(runs)]
    spreads = {
        "to_registration_s": spread([one.to_registration_s for one in found]),
        "to_unfenced_s": spread([one.to_unfenced_s for one in found]),
        "logs_s": spread([one.logs_s for one in found]),
        "to_leaders_s": spread([one.to_leaders_s for one in found]),
    }
    data: dict[str, Any] = {
        "machine": describe(),
        "partitions": partitions,
        "records": records,
        "power_loss": local.power_loss_driver or KILL,
        "compared": [one.compared for one in found],
        **spreads,
    }
    return finish("bench-recovery", data, _text(partitions, data["power_loss"], spreads), as_json=as_json)


def _text(partitions: int, driver: str, spreads: Mapping[str, Spread]) -> str:
    return table(
        (f"RECOVERY s, {driver}", "last registration", "then logs open", "all unfenced", "last leader"),
        [
            (
                f"{partitions} partitions",
                *(
                    str(spreads[key])
                    for key in ("to_registration_s", "logs_s", "to_unfenced_s", "to_leaders_s")
                ),
            )
        ],
    )


def _outage(
    cluster: BenchCluster, local: LocalCluster, partitions: int, records: int, number: int
) -> Recovered:
    _wait_full_isr(cluster, partitions)
    if records:
        run(lambda runtime: _write(runtime, cluster.bootstrap_servers, partitions, records))
    if local.power_loss_driver is None:
        local.kill(local.nodes)
    else:
        local.power_loss(local.nodes, seed=number)
    already = {node: local.log_file(node).stat().st_size for node in local.nodes}
    started_s = time.time()
    for node in local.nodes:
        local.start(node)
    while True:
        time.sleep(_LOOK_S)
        seen = _look(local.controllers)
        if time.time() - started_s > _GIVE_UP_S:
            raise click.ClickException(f"no leaders after {_GIVE_UP_S:.0f} s: {seen}")
        told = _Told(started_s)
        for node in local.nodes:
            told.read(local.log_file(node), already[node])
        # until then a new controller takes those for alive that it knows from before
        is_back = len(told.registered) == len(local.brokers) == seen.get("active_brokers", 0)
        if is_back and seen["global_partitions"] == partitions and not seen["offline_partitions"]:
            break
    compared = int(seen["unclean_recovery_finished_total"])
    note(
        f"outage {number + 1}: leaders {told.leader_s - told.registered_s:.2f} s after the last registration"
    )
    return Recovered(
        told.registered_s - started_s,
        max(0.0, told.unfenced_s - told.registered_s),
        told.logs_s,
        told.leader_s - told.registered_s,
        compared,
    )


class _Told:
    """When the nodes told of the last registration, unfencing and election; seconds since 1970."""

    def __init__(self, since_s: float) -> None:
        self.unfenced_s = self.leader_s = since_s
        self.logs_s = 0.0
        self.registered: set[str] = set()
        self._registrations_s = [since_s]

    @property
    def registered_s(self) -> float:
        """The last one before the last leader: on a busy machine brokers may have to register again later."""
        return max(at_s for at_s in self._registrations_s if at_s <= self.leader_s)

    def read(self, log: Path, position: int) -> None:
        """The log of one node from there on."""
        with log.open(encoding="utf-8") as lines:
            lines.seek(position)
            for line in lines:
                if registered := _REGISTERED.search(line):
                    self.registered.add(registered[1])
                    self._registrations_s.append(_at_s(line))
                elif _UNFENCED.search(line):
                    self.unfenced_s = max(self.unfenced_s, _at_s(line))
                elif opened := _OPENED.search(line):
                    self.logs_s = max(self.logs_s, int(opened[1]) / 1000)
                elif "; elected as " in line:
                    self.leader_s = max(self.leader_s, _at_s(line))


def _at_s(line: str) -> float:
    return datetime.fromisoformat(line.split(" ", 1)[0].replace("Z", "+00:00")).timestamp()


def _look(controllers: Sequence[Node]) -> dict[str, float]:
    """Sums over labels and controllers: one that was active before has counts too, while gauges come from the
    active one alone. Empty while there is none, or not all of them answer."""
    found: dict[str, float] = {}
    for node in controllers:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except (urllib.error.URLError, OSError):
            return {}  # not up yet
        for name, value in _SAMPLE.findall(text):
            found[name] = found.get(name, 0.0) + float(value)
    return found if found.get("active_controller") else {}


def _wait_full_isr(cluster: BenchCluster, partitions: int) -> None:
    while True:
        (described,) = cluster.ask(lambda admin: admin.describe_topics([TOPIC]))
        rows = described.partitions
        if len(rows) == partitions and all(len(row.isr) == REPLICATION_FACTOR for row in rows):
            return
        time.sleep(0.5)


async def _write(runtime: Runtime, bootstrap_servers: str, partitions: int, records: int) -> int:
    producer = Producer(bootstrap_servers, runtime=runtime)
    await producer.start()
    for _ in range(records):
        for partition in range(partitions):
            await producer.submit(TOPIC, b"x" * 100, partition=partition)
    await producer.close()
    return 0


if __name__ == "__main__":
    main()
