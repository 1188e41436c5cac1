"""Every method of Kafka's own Admin client, once: it does its work, or is refused with an error.

A call that nothing answers would end with TimeoutException.
"""

import pytest

from holdfast.testing import HoldfastCluster
from tests.kafka_clients.programs import ended, java_source

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("kafka tools"),
]

#: {method: what it gives}
SERVED = {
    "createTopics, only checked": "null",
    "createTopics": "3 3",
    "listTopics": "true",
    "describeTopics by id": "1",
    "createPartitions": "null",
    "clientInstanceId of a producer": "null",
    "deleteRecords": "3",
    "listOffsets earliest": "3",
    "listOffsets latest": "10",
    "listOffsets time": "3",
    "listOffsets maxTimestamp": "9",
    "listOffsets earliestLocal": "3",
    "listOffsets latestTiered": "-1",
    "describeCluster": "3 true",
    "describeConfigs BROKER": "1",
    "describeConfigs TOPIC": "1",
    "incrementalAlterConfigs TOPIC": "null",
    "describeLogDirs": "3",
    "describeReplicaLogDirs": "1",
    "electLeaders": "true",
    "alterPartitionReassignments": "null",
    "listPartitionReassignments": "true",
    "describeFeatures": "2",
    "describeMetadataQuorum": "1",
    "describeClientQuotas": "{}",
    "alterClientQuotas": "null",
    "alterClientQuotas, none": "null",
    "listGroups": "true",
    "listConsumerGroups": "true",
    "describeConsumerGroups": "Stable",
    "describeClassicGroups": "Stable",
    "listConsumerGroupOffsets": "4",
    "removeMembersFromConsumerGroup": "null",
    "alterConsumerGroupOffsets": "null",
    "deleteConsumerGroupOffsets": "null",
    "deleteConsumerGroups": "null",
    # of no group at all: the same requests as for consumer groups
    "listStreamsGroupOffsets": "{name={}}",
    "alterStreamsGroupOffsets": "null",
    "deleteStreamsGroupOffsets": "null",
    "deleteTopics": "null",
}
#: {error: the methods that end with it}
REFUSED = {
    "InvalidRequestException": (
        "describeConfigs GROUP",
        "incrementalAlterConfigs GROUP",
        "describeConfigs CLIENT_METRICS",
        "incrementalAlterConfigs CLIENT_METRICS",
        "describeConfigs BROKER_LOGGER",
        "incrementalAlterConfigs BROKER_LOGGER",
        "incrementalAlterConfigs, append",
        "incrementalAlterConfigs, subtract",
        "alterClientQuotas, another key",
        "alterClientQuotas of a user",
    ),
    "InvalidConfigurationException": ("incrementalAlterConfigs BROKER",),
    "InvalidUpdateVersionException": ("updateFeatures",),
    "IllegalStateException": ("clientInstanceId",),
    "UnknownMemberIdException": ("alterConsumerGroupOffsets, live",),
    "GroupIdNotFoundException": (
        "describeConsumerGroups, unknown",
        "deleteShareGroups",
        "deleteStreamsGroups",
    ),
    "TransactionalIdAuthorizationException": (
        "describeTransactions",
        "fenceProducers",
        "forceTerminateTransaction",
        "initTransactions",
    ),
    "UnsupportedVersionException": (
        "listConfigResources",
        "listClientMetricsResources",
        "alterReplicaLogDirs",
        "addRaftVoter",
        "removeRaftVoter",
        "unregisterBroker",
        "createAcls",
        "describeAcls",
        "deleteAcls",
        "createDelegationToken",
        "renewDelegationToken",
        "expireDelegationToken",
        "describeDelegationToken",
        "describeUserScramCredentials",
        "alterUserScramCredentials",
        "describeProducers",
        "listTransactions",
        "abortTransaction",
        "describeShareGroups",
        "listShareGroupOffsets",
        "alterShareGroupOffsets",
        "deleteShareGroupOffsets",
        "describeStreamsGroups",
        "poll in KIP-848",
        "poll in a share group",
    ),
}


def test_every_call_does_its_work_or_is_refused(cluster: HoldfastCluster) -> None:
    cluster.restart()
    expected = {name: f"done {result}" for name, result in SERVED.items()}
    expected |= {name: error for error, names in REFUSED.items() for name in names}
    done = ended(java_source("java", "EveryCall.java", cluster.kafka_bootstrap, "every-call"), timeout_s=500)
    assert done.code == 0, done
    outcomes = dict(line.split(": ", 1) for line in done.lines)
    told = {
        name: outcome if outcome.startswith("done ") else outcome.split()[0]
        for name, outcome in outcomes.items()
    }
    assert told == expected
