// Calls every method of Kafka's Admin once, and what else a client may begin that brokers can refuse, and prints
// `NAME: what came of it` a line: a result, or the class of the error and its message.
//
//   EveryCall SERVERS TOPIC

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.*;

public class EveryCall {
    interface Call {
        Object make() throws Exception;
    }

    static void call(String name, Call call) {
        String outcome;
        try {
            Object made = call.make();
            Object result = made instanceof KafkaFuture<?> future ? future.get() : made;
            outcome = "done " + result;
        } catch (ExecutionException error) {
            outcome = error.getCause().getClass().getSimpleName() + " " + error.getCause().getMessage();
        } catch (Exception error) {
            outcome = error.getClass().getSimpleName() + " " + error.getMessage();
        }
        System.out.println(name + ": " + outcome.replace("\n", " "));
    }

    static Map<ConfigResource, java.util.Collection<AlterConfigOp>> change(
        ConfigResource.Type type, String name, String key, String value, AlterConfigOp.OpType how) {
        return Map.of(new ConfigResource(type, name), List.of(new AlterConfigOp(new ConfigEntry(key, value), how)));
    }

    static List<ClientQuotaAlteration> quota(String kind, String name, String key, Double value) {
        var entity = new ClientQuotaEntity(Map.of(kind, name));
        return List.of(new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op(key, value))));
    }

    @SuppressWarnings("removal") // these methods too
    public static void main(String[] words) throws Exception {
        String servers = words[0], topic = words[1], group = topic;
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", servers));
        settings.put("request.timeout.ms", 60_000);
        settings.put("default.api.timeout.ms", 60_000);
        Admin admin = Admin.create(settings);
        admin.describeCluster().nodes().get(); // what it takes to start is no call's
        TopicPartition first = new TopicPartition(topic, 0);

        // topics
        call("createTopics, only checked", () -> admin.createTopics(
            List.of(new NewTopic(topic, 3, (short) 3)), new CreateTopicsOptions().validateOnly(true)).all());
        call("createTopics", () -> {
            var made = admin.createTopics(List.of(new NewTopic(topic, Optional.of(3), Optional.empty())));
            made.all().get();
            return made.numPartitions(topic).get() + " " + made.replicationFactor(topic).get();
        });
        call("listTopics", () -> admin.listTopics().names().get().contains(topic));
        Uuid id = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
        call("describeTopics by id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)),
            new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicIds().get().size());
        call("createPartitions", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all());
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            long now = System.currentTimeMillis();
            for (int number = 0; number < 40; number++)
                producer.send(new ProducerRecord<>(topic, number % 4, now + number, "key", "" + number));
            call("clientInstanceId of a producer", () -> producer.clientInstanceId(Duration.ofSeconds(5)));
        }
        call("deleteRecords", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(3)))
            .lowWatermarks().get(first).get().lowWatermark());
        Map<String, OffsetSpec> specs = Map.of(
            "earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(), "time", OffsetSpec.forTimestamp(1),
            "maxTimestamp", OffsetSpec.maxTimestamp(), "earliestLocal", OffsetSpec.earliestLocal(),
            "latestTiered", OffsetSpec.latestTiered());
        for (var spec : specs.entrySet())
            call("listOffsets " + spec.getKey(), () -> admin.listOffsets(Map.of(first, spec.getValue()),
                new ListOffsetsOptions(IsolationLevel.READ_COMMITTED)).all().get().get(first).offset());

        // the cluster and its configuration
        call("describeCluster", () -> {
            var cluster = admin.describeCluster(
                new DescribeClusterOptions().includeAuthorizedOperations(true).includeFencedBrokers(true));
            return cluster.nodes().get().size() + " " + (cluster.controller().get() != null);
        });
        for (var type : ConfigResource.Type.values()) {
            String name = switch (type) {
                case BROKER, BROKER_LOGGER -> "1";
                case TOPIC -> topic;
                default -> "name";
            };
            if (type == ConfigResource.Type.UNKNOWN)
                continue;
            call("describeConfigs " + type, () -> admin.describeConfigs(List.of(new ConfigResource(type, name)),
                new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).all().get().size());
            call("incrementalAlterConfigs " + type, () -> admin.incrementalAlterConfigs(change(type, name,
                type == ConfigResource.Type.TOPIC ? "retention.ms" : "some.key", "99999",
                AlterConfigOp.OpType.SET)).all());
        }
        call("incrementalAlterConfigs, append", () -> admin.incrementalAlterConfigs(change(
            ConfigResource.Type.TOPIC, topic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND)).all());
        call("incrementalAlterConfigs, subtract", () -> admin.incrementalAlterConfigs(change(
            ConfigResource.Type.TOPIC, topic, "cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT)).all());
        call("listConfigResources", () -> admin.listConfigResources().all());
        call("listClientMetricsResources", () -> admin.listClientMetricsResources().all());
        call("describeLogDirs", () -> admin.describeLogDirs(List.of(1, 2, 3)).allDescriptions().get().size());
        call("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(
            List.of(new TopicPartitionReplica(topic, 0, 1))).all().get().size());
        call("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(
            Map.of(new TopicPartitionReplica(topic, 0, 1), "/elsewhere")).all());
        call("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, null).partitions().get() != null);
        call("alterPartitionReassignments", () -> admin.alterPartitionReassignments(
            Map.of(first, Optional.of(new NewPartitionReassignment(List.of(3, 1, 2))))).all());
        call("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get() != null);
        call("describeFeatures", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures().size());
        call("updateFeatures", () -> admin.updateFeatures(Map.of("metadata.version",
            new FeatureUpdate((short) 99, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all());
        call("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get().voters().size());
        call("addRaftVoter", () -> admin.addRaftVoter(
            9, Uuid.randomUuid(), Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 9))).all());
        call("removeRaftVoter", () -> admin.removeRaftVoter(9, Uuid.randomUuid()).all());
        call("unregisterBroker", () -> admin.unregisterBroker(77).all());
        call("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(5)));

        // who may do what, and how much
        var acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL),
            new AccessControlEntry("User:name", "*", AclOperation.READ, AclPermissionType.ALLOW));
        call("createAcls", () -> admin.createAcls(List.of(acl)).all());
        call("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values());
        call("deleteAcls", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all());
        call("createDelegationToken", () -> admin.createDelegationToken().delegationToken());
        call("renewDelegationToken", () -> admin.renewDelegationToken(new byte[1]).expiryTimestamp());
        call("expireDelegationToken", () -> admin.expireDelegationToken(new byte[1]).expiryTimestamp());
        call("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens());
        call("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all());
        call("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("name", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096),
                "password"))).all());
        call("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities());
        call("alterClientQuotas", () -> admin.alterClientQuotas(quota("client-id", topic, "producer_byte_rate", 1e9)).all());
        call("alterClientQuotas, none", () -> admin.alterClientQuotas(quota("client-id", topic, "producer_byte_rate", null)).all());
        call("alterClientQuotas, another key", () -> admin.alterClientQuotas(quota("client-id", topic, "request_percentage", 50.0)).all());
        call("alterClientQuotas of a user", () -> admin.alterClientQuotas(quota("user", "name", "producer_byte_rate", 1e9)).all());

        // groups
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            for (int read = 0; read < 37; read += consumer.poll(Duration.ofSeconds(1)).count()) { }
            consumer.commitSync();
            call("listGroups", () -> admin.listGroups(new ListGroupsOptions()
                .inGroupStates(Set.of(GroupState.STABLE)).withTypes(Set.of(GroupType.CLASSIC))).all().get()
                .stream().map(GroupListing::groupId).toList().contains(group));
            call("listConsumerGroups", () -> admin.listConsumerGroups().all().get().size() > 0);
            call("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of(group),
                new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).all().get().get(group).groupState());
            call("describeConsumerGroups, unknown", () -> admin.describeConsumerGroups(List.of("none")).all());
            call("describeClassicGroups", () -> admin.describeClassicGroups(List.of(group)).all().get().get(group).state());
            call("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets(group,
                new ListConsumerGroupOffsetsOptions().requireStable(true)).partitionsToOffsetAndMetadata().get().size());
            call("alterConsumerGroupOffsets, live", () -> admin.alterConsumerGroupOffsets(
                group, Map.of(first, new OffsetAndMetadata(1))).all());
            call("removeMembersFromConsumerGroup", () -> admin.removeMembersFromConsumerGroup(
                group, new RemoveMembersFromConsumerGroupOptions()).all());
        }
        call("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets(
            group, Map.of(first, new OffsetAndMetadata(4))).all());
        call("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets(group, Set.of(first)).all());
        call("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of(group)).all());

        // transactions and the newer kinds of groups
        call("describeProducers", () -> admin.describeProducers(List.of(first)).all());
        call("describeTransactions", () -> admin.describeTransactions(List.of("name")).all());
        call("listTransactions", () -> admin.listTransactions().all());
        call("abortTransaction", () -> admin.abortTransaction(new AbortTransactionSpec(first, 1, (short) 0, 0)).all());
        call("fenceProducers", () -> admin.fenceProducers(List.of("name")).all());
        call("forceTerminateTransaction", () -> admin.forceTerminateTransaction("name").result());
        call("describeShareGroups", () -> admin.describeShareGroups(List.of("name")).all());
        call("listShareGroupOffsets", () -> admin.listShareGroupOffsets(Map.of("name", new ListShareGroupOffsetsSpec())).all());
        call("alterShareGroupOffsets", () -> admin.alterShareGroupOffsets("name", Map.of(first, 1L)).all());
        call("deleteShareGroupOffsets", () -> admin.deleteShareGroupOffsets("name", Set.of(topic)).all());
        call("deleteShareGroups", () -> admin.deleteShareGroups(List.of("name")).all());
        call("describeStreamsGroups", () -> admin.describeStreamsGroups(List.of("name")).all());
        call("listStreamsGroupOffsets", () -> admin.listStreamsGroupOffsets(Map.of("name", new ListStreamsGroupOffsetsSpec())).all());
        call("alterStreamsGroupOffsets", () -> admin.alterStreamsGroupOffsets("name", Map.of(first, new OffsetAndMetadata(1))).all());
        call("deleteStreamsGroupOffsets", () -> admin.deleteStreamsGroupOffsets("name", Set.of(first)).all());
        call("deleteStreamsGroups", () -> admin.deleteStreamsGroups(List.of("name")).all());
        call("deleteTopics", () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());

        settings.put("transactional.id", "name");
        call("initTransactions", () -> {
            try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                producer.initTransactions();
            }
            return null;
        });
        settings.put("group.protocol", "consumer");
        call("poll in KIP-848", () -> {
            try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of(topic));
                return consumer.poll(Duration.ofSeconds(5)).count();
            }
        });
        settings.remove("group.protocol");
        settings.remove("auto.offset.reset");
        call("poll in a share group", () -> {
            try (var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of(topic));
                return consumer.poll(Duration.ofSeconds(5)).count();
            }
        });
        Runtime.getRuntime().halt(0);
    }
}
