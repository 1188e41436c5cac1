"""The controller's core as `holdfast scenario` drives it, for the tests of single modules."""

from holdfast.scenario.controller import CLUSTER_ID, NODE_ID, CountingRandom, LogEntry, Quorum, make_config
from holdfast.scenario.controller_commands import Scenario

__all__ = ["CLUSTER_ID", "NODE_ID", "CountingRandom", "LogEntry", "Quorum", "Scenario", "make_config"]
