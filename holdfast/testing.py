"""For tests of applications: the type of the pytest fixtures, and a cluster for a fixture of your own."""

from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.power.disks import FileLoss, PowerLoss
from holdfast.localcluster.pytest_cluster import HoldfastCluster

__all__ = ["ClusterError", "FileLoss", "HoldfastCluster", "Node", "PowerLoss"]
