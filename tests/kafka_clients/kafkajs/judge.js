// What KafkaJS does against brokers, one task a run:
//
//   node judge.js SEEDS TOPIC admin           creates, describes, changes and deletes, topics and groups
//   node judge.js SEEDS TOPIC write RECORDS   numbers as values, idempotent, every other batch compressed; prints how many
//   node judge.js SEEDS TOPIC read RECORDS    as two members of the group TOPIC, which commit; prints each value
//
// The exit code is 1 when something is not as it should be.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const [seeds, topic, task, count] = process.argv.slice(2);
const BATCH = 100;
const kafka = new Kafka({
  brokers: seeds.split(","), logLevel: logLevel.NOTHING, retry: { retries: 100, maxRetryTime: 1_000 },
});

async function write(records) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (let first = 0; first < records; first += BATCH) {
    const numbers = Array.from({ length: Math.min(BATCH, records - first) }, (_, index) => `${first + index}`);
    const compression = (first / BATCH) % 2 ? CompressionTypes.GZIP : CompressionTypes.None;
    await producer.send({ topic, acks: -1, compression, messages: numbers.map(value => ({ key: value, value })) });
  }
  await producer.disconnect();
  console.log(records);
}

async function read(records) {
  const values = new Set();
  const members = [0, 1].map(() => kafka.consumer({
    groupId: topic, sessionTimeout: 6_000, heartbeatInterval: 500, maxWaitTimeInMs: 500,
  }));
  await new Promise((resolve, reject) => members.forEach(async member => {
    try {
      await member.connect();
      await member.subscribe({ topics: [topic], fromBeginning: true });
      await member.run({ eachMessage: async ({ message }) => {
        values.add(message.value.toString());
        if (values.size === records) resolve();
      } });
    } catch (error) {
      reject(error);
    }
  }));
  await Promise.all(members.map(member => member.disconnect())); // commits what was read
  values.forEach(value => console.log(value));
}

// Any broker is asked, and one may hear of a change later than another.
async function until(wanted, ask) {
  let found;
  while ((found = await ask()) !== wanted) await new Promise(resolve => setTimeout(resolve, 100));
  return found;
}

async function administer() {
  const admin = kafka.admin(), producer = kafka.producer();
  await Promise.all([admin.connect(), producer.connect()]);
  const configEntries = [{ name: "retention.ms", value: "123456" }], ofTopic = { type: 2, name: topic };
  await admin.createTopics({ topics: [{ topic, numPartitions: 3, replicationFactor: 3, configEntries }] });
  await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] });
  console.log("listed", await until(true, async () => (await admin.listTopics()).includes(topic)));
  const described = await admin.describeConfigs({
    includeSynonyms: true, resources: [{ ...ofTopic, configNames: ["retention.ms"] }],
  });
  console.log("retention.ms", described.resources[0].configEntries[0].configValue);
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...ofTopic, configEntries }] });
  await producer.send({ topic, messages: Array.from({ length: 10 }, () => ({ value: "value", partition: 0 })) });
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "4" }] });
  const partitions = await until(4, async () => (await admin.fetchTopicOffsetsByTimestamp(topic, 1)).length);
  const { low, high } = (await admin.fetchTopicOffsets(topic)).find(one => one.partition === 0);
  console.log("offsets", low, high, partitions);
  console.log("brokers", (await admin.describeCluster()).brokers.length);
  await admin.setOffsets({ groupId: topic, topic, partitions: [{ partition: 0, offset: "7" }] });
  const committed = await admin.fetchOffsets({ groupId: topic, topics: [topic] });
  console.log("committed", committed[0].partitions.find(one => one.partition === 0).offset);
  await admin.resetOffsets({ groupId: topic, topic, earliest: true });
  console.log("group", (await admin.describeGroups([topic])).groups[0].state);
  await admin.deleteGroups([topic]);
  const partitionAssignment = [{ partition: 0, replicas: [3, 2, 1] }];
  await admin.alterPartitionReassignments({ topics: [{ topic, partitionAssignment }] });
  await admin.listPartitionReassignments({ topics: [{ topic, partitions: [0] }] });
  const anyAcl = { resourceType: 1, resourcePatternType: 1, operation: 1, permissionType: 1 };
  await admin.describeAcls(anyAcl).catch(error => console.log("acls", error.message));
  await admin.deleteTopics({ topics: [topic] });
  await Promise.all([admin.disconnect(), producer.disconnect()]);
}

// a broker that was killed may leave it with a timer that keeps the process alive
({ admin: administer, write, read })[task](Number(count)).then(() => process.exitCode = 0).catch(error => {
  console.error(error);
  process.exitCode = 1;
}).finally(() => process.stdout.write("", () => process.exit()));
