"""Ports of clusters: free, below those of outgoing connections, and no two clusters take the same."""

import socket

import pytest

from holdfast.localcluster.compose import SERVICES
from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.ports import PORTS, ReservedPorts


def free_run(count: int) -> int:
    """The first of so many ports that are free now, outside of what clusters choose by themselves."""
    for base in range(11_000, 19_000, 100):
        try:
            return ReservedPorts(count, base).numbers[0]
        except ClusterError:
            continue
    raise AssertionError("no run of free ports found")


def test_ports_are_distinct_and_never_those_of_outgoing_connections() -> None:
    numbers = ReservedPorts(12).numbers
    assert len(set(numbers)) == 12
    assert set(numbers) <= set(PORTS)
    assert max(PORTS) < 32_768


def test_no_port_of_the_containers_is_chosen_by_itself() -> None:
    published = {port for _, _, _, *ports in SERVICES for port in ports if port}
    assert len(published) == 12
    assert not published & set(PORTS)


def test_a_port_that_something_listens_on_is_left_out_and_refused() -> None:
    base = free_run(2)
    with socket.create_server(("127.0.0.1", base + 1)):
        with pytest.raises(ClusterError, match=f"port {base + 1} is taken"):
            ReservedPorts(2, base)
    assert ReservedPorts(2, base).numbers == [base, base + 1]


def test_a_port_that_another_cluster_is_about_to_use_is_taken_until_that_lets_go_of_it() -> None:
    base = free_run(2)
    other = ReservedPorts(2, base)
    with pytest.raises(ClusterError, match=f"port {base + 1} is taken"):
        ReservedPorts(1, base + 1)
    del other
    assert ReservedPorts(1, base + 1).numbers == [base + 1]
