"""Wall clocks that jump: what a node is started with, what is written, and when it is refused."""

from pathlib import Path

import pytest

from holdfast.localcluster import clocks
from holdfast.localcluster.faults.clocks import ClockJump
from holdfast.localcluster.faults.fault import FaultRefused, heal_all
from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.processes import LocalCluster

LIBRARY = Path("/lib/libfaketimeMT.so.1")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "library", lambda: LIBRARY)


@pytest.mark.usefixtures("installed")
def test_a_clock_jumps_and_is_right_again(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "cluster", 2, 1, has_clocks=True)
    one, other = cluster.brokers
    assert clocks.environment(cluster.clock_file(one))["LD_PRELOAD"] == str(LIBRARY)
    assert "7,200 s ahead" in ClockJump(cluster, one).apply()
    assert "60 s behind" in ClockJump(cluster, other, by_s=-60).apply()
    assert [cluster.clock_file(node).read_text() for node in (one, other)] == ["+7200\n", "-60\n"]
    assert len(heal_all(cluster.folder)) == 2
    assert [cluster.clock_file(node).read_text() for node in (one, other)] == ["+0\n", "+0\n"]


@pytest.mark.usefixtures("installed")
def test_a_cluster_without_clocks_of_its_own_keeps_the_machines(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "cluster", 1, 1)
    assert clocks.environment(cluster.clock_file(cluster.broker(1))) == {}
    with pytest.raises(FaultRefused, match="--clocks"):
        ClockJump(cluster, cluster.broker(1)).apply()


def test_where_the_library_is_missing_the_reason_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "library", lambda: None)
    with pytest.raises(ClusterError, match="libfaketimeMT.so.1 is not installed"):
        LocalCluster.create(tmp_path / "made", 1, 1, has_clocks=True)
    cluster = LocalCluster.create(tmp_path / "cluster", 1, 1)
    with pytest.raises(FaultRefused, match="apt-get install faketime"):
        ClockJump(cluster, cluster.broker(1)).apply()
