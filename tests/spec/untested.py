"""Rules of KIP-966 that no spec test names: decided otherwise, or parts of work that has not begun."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Untested:
    """A rule without a test; `differs` was decided, `later` is missing."""

    section: str
    rule: str
    kind: Literal["differs", "later"]
    why: str


def _differs(section: str, rule: str, why: str) -> Untested:
    return Untested(section, rule, "differs", why)


def _later(section: str, rule: str, why: str) -> Untested:
    return Untested(section, rule, "later", why)


UNTESTED: tuple[Untested, ...] = (
    _differs(
        "Other behaviors 7",
        "the last known leader is tracked for the time without unclean recovery",
        "with the recovery manager on it is still kept and shown, but is not elected (D8.6)",
    ),
    _differs(
        "Detection of an unclean shutdown, new behavior 4",
        "a broker that stops before it has an epoch writes -1",
        "it writes no file, which is read as -1",
    ),
    _differs(
        "Detection of an unclean shutdown, note",
        "the file is removed after the log manager was initialized",
        "before any log is loaded, and durably: a crash while loading is unclean (R35)",
    ),
    _differs(
        "Unclean recovery, start of the election",
        "Balanced may be read as: at once when the last known members have replied",
        "the others may reply until all asked have replied or the timeout has passed (R64, D8)",
    ),
    _differs(
        "Unclean recovery, choice of the leader",
        "Balanced compares the logs of all replicas that have replied",
        "a replica outside the last known ELR counts only if its log ends in the epoch of the best of them: "
        "a later epoch may hold nothing that was committed (docs/model.md)",
    ),
    _differs(
        "PartitionChangeRecord, PartitionRecord",
        "version 1 with tagged fields",
        "records of our own schema with the same fields, and min_isr with them (R109); docs/protocol.md",
    ),
    _differs("BrokerRegistration API", "version 2", "versions of our own; the field is there from the first"),
    _differs(
        "DescribeTopicPartitionsRequest, ElectLeadersRequest, GetReplicaLogInfo",
        "ACLs: Describe on the topic, CLUSTER_ACTION",
        "there are no users and no authorization",
    ),
    _differs(
        "DescribeTopicsResponse",
        "throttle time, authorized operations",
        "quotas are for records alone, and there is no authorization",
    ),
    _differs("CleanShutdownFile", "the key is BrokerEpoch", "brokerEpoch, as Kafka writes it"),
    _differs(
        "Config changes, ELR 1",
        "eligible.leader.replicas.enabled is false by default",
        "true: there is nothing to upgrade from (D8); a feature level, eligible.leader.replicas.version",
    ),
    _differs(
        "Admin API/Client changes 1",
        "the client splits a request for many topics",
        "the names go in one request; the server cuts the answer and the client follows the cursor",
    ),
    _differs(
        "Compatibility, ELR and clean shutdown",
        "guarded by a new metadata version",
        "by the feature eligible.leader.replicas.version (F63)",
    ),
    _differs(
        "Compatibility, MV downgrade",
        "fields of the ELR are removed on the next partition change",
        "at once, with explicit records, and refused while an ISR is empty (B8)",
    ),
    _differs(
        "Compatibility, unclean recovery",
        "unclean.recovery.strategy is set from unclean.leader.election.enable",
        "nothing is stored: an unset strategy follows the old key when it is read (D8)",
    ),
    _differs(
        "Compatibility, unclean recovery",
        "unclean.leader.election.enable is marked as deprecated",
        "it is not marked: with the manager off it is what Kafka ships (D8.8)",
    ),
    _differs(
        "Delivery plan",
        "the unclean election chooses at random",
        "the first active replica in assignment order, as Kafka does (F38)",
    ),
    _differs(
        "Balanced-mode guarantees",
        "the recovery quorum has min ISR members, exactly",
        "at least as many: one AlterPartition may take several out of the ISR (I-14)",
    ),
    _differs(
        "Clean ELR-based recovery example",
        "the ELR is empty once the crashed leader was fenced",
        "it stays in the ELR until it registers unclean (R5, R32)",
    ),
    _differs(
        "Balanced recovery",
        "only members of the LastKnownELR are asked for their logs",
        "all replicas that are there, as in the KIP (R61)",
    ),
    _differs(
        "Config changes, Unclean Recovery 2",
        "unclean.recovery.manager.enabled is false by default",
        "true: there is nothing to upgrade from (D8)",
    ),
    _later("Test Plan", "the design is verified with a model", "a model in Python, with the simulator"),
)
