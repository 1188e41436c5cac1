"""For tests of applications: the type of the pytest fixtures, and a cluster for a fixture of your own."""

from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.power.disks import FileLoss, PowerLoss
from holdfast.localcluster.pytest_cluster import HoldfastCluster
from holdfast.localcluster.pytest_verdict import ClusterVerdict

__all__ = ["ClusterError", "ClusterVerdict", "FileLoss", "HoldfastCluster", "Node", "PowerLoss"]
