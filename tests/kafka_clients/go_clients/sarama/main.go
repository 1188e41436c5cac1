// What sarama does against brokers, one task a run:
//
//	sarama SEEDS TOPIC admin           everything that its ClusterAdmin has for topics, groups and configurations
//	sarama SEEDS TOPIC write RECORDS   numbers as values, idempotent, in every compression; prints how many are acknowledged
//	sarama SEEDS TOPIC read RECORDS    as two members of the group TOPIC, which commit; prints each value
//
// The exit code is 1 when something is not as it should be.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

func check(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max = 100
	config.Admin.Retry.Max = 50
	return config
}

func main() {
	seeds, topic := strings.Split(os.Args[1], ","), os.Args[2]
	records := 0
	if len(os.Args) > 4 {
		var err error
		records, err = strconv.Atoi(os.Args[4])
		check(err, "records")
	}
	switch os.Args[3] {
	case "admin":
		administer(seeds, topic)
	case "write":
		write(seeds, topic, records)
	case "read":
		read(seeds, topic, records)
	}
}

func write(seeds []string, topic string, records int) {
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
	}
	acknowledged := map[string]bool{}
	for index, codec := range codecs {
		config := settings()
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
		config.Producer.Retry.Max = 1_000
		config.Producer.Return.Successes = true
		config.Producer.Compression = codec
		config.Producer.Flush.Frequency = time.Millisecond
		producer, err := sarama.NewAsyncProducer(seeds, config)
		check(err, "producer")
		first, end := index*records/len(codecs), (index+1)*records/len(codecs)
		go func() {
			for number := first; number < end; number++ {
				value := sarama.StringEncoder(strconv.Itoa(number))
				producer.Input() <- &sarama.ProducerMessage{Topic: topic, Key: value, Value: value}
			}
		}()
		for range end - first {
			select {
			case sent := <-producer.Successes():
				acknowledged[fmt.Sprint(sent.Partition, "-", sent.Offset)] = true
			case failed := <-producer.Errors():
				check(failed.Err, "produce")
			}
		}
		check(producer.Close(), "close")
	}
	fmt.Println(len(acknowledged))
}

// member is one of a group; all of them gather what they read.
type member struct {
	lock    *sync.Mutex
	values  map[string]bool
	records int
	done    context.CancelFunc
}

func (one *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (one *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (one *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, is_open := <-claim.Messages():
			if !is_open {
				return nil
			}
			one.lock.Lock()
			one.values[string(message.Value)] = true
			is_all := len(one.values) == one.records
			one.lock.Unlock()
			session.MarkMessage(message, "")
			if is_all {
				one.done()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func read(seeds []string, topic string, records int) {
	ctx, done := context.WithTimeout(context.Background(), 3*time.Minute)
	values, lock := map[string]bool{}, &sync.Mutex{}
	var members sync.WaitGroup
	for range 2 {
		config := settings()
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
		config.Consumer.Offsets.Retry.Max = 100
		config.Consumer.Group.Session.Timeout = 6 * time.Second
		group, err := sarama.NewConsumerGroup(seeds, topic, config)
		check(err, "group")
		members.Add(1)
		go func() {
			defer members.Done()
			defer group.Close() // commits what was marked
			for ctx.Err() == nil {
				// what ends a session is tried again: a broker has died
				_ = group.Consume(ctx, []string{topic}, &member{lock, values, records, done})
			}
		}()
	}
	members.Wait()
	done()
	if len(values) != records {
		fmt.Fprintf(os.Stderr, "%d of %d values\n", len(values), records)
		os.Exit(1)
	}
	for value := range values {
		fmt.Println(value)
	}
}

func administer(seeds []string, topic string) {
	config := settings()
	admin, err := sarama.NewClusterAdmin(seeds, config)
	check(err, "admin")
	defer admin.Close()
	retention := "123456"
	detail := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 3, ConfigEntries: map[string]*string{"retention.ms": &retention}}
	check(admin.CreateTopic(topic, detail, false), "create")
	topics, err := admin.ListTopics()
	check(err, "list topics")
	fmt.Println("listed", topics[topic].NumPartitions, *topics[topic].ConfigEntries["retention.ms"])
	described, err := admin.DescribeTopics([]string{topic})
	check(err, "describe topics")
	fmt.Println("described", len(described[0].Partitions), len(described[0].Partitions[0].Isr))
	check(admin.CreatePartitions(topic, 4, nil, false), "create partitions")
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
	check(err, "describe config")
	fmt.Println(entries[0].Name, entries[0].Value)
	longer := "234567"
	change := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &longer}}
	check(admin.IncrementalAlterConfig(sarama.TopicResource, topic, change, false), "alter config")
	check(admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &retention}, false), "set configs")
	_, err = admin.DescribeConfig(sarama.ConfigResource{Type: sarama.BrokerResource, Name: "1"})
	check(err, "describe config of a broker")

	producer, err := sarama.NewSyncProducer(seeds, func() *sarama.Config {
		config := settings()
		config.Producer.Return.Successes = true
		config.Producer.Partitioner = sarama.NewManualPartitioner
		return config
	}())
	check(err, "producer")
	for range 10 {
		_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: 0, Value: sarama.StringEncoder("value")})
		check(err, "send")
	}
	check(producer.Close(), "close")
	check(admin.DeleteRecords(topic, map[int32]int64{0: 4}), "delete records")
	offsets, err := admin.ListOffsets(map[string]map[int32]int64{topic: {0: sarama.OffsetOldest}}, nil)
	check(err, "list offsets")
	fmt.Println("begins at", offsets[topic][0].Offset)

	brokers, _, err := admin.DescribeCluster()
	check(err, "describe cluster")
	fmt.Println("brokers", len(brokers))
	dirs, err := admin.DescribeLogDirs([]int32{1, 2, 3})
	check(err, "describe log dirs")
	fmt.Println("log dirs", len(dirs))
	_, err = admin.ListPartitionReassignments(topic, []int32{0, 1, 2})
	check(err, "list reassignments")
	_, err = admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{topic: {0}})
	check(err, "elect")

	client, err := sarama.NewClient(seeds, config)
	check(err, "client")
	manager, err := sarama.NewOffsetManagerFromClient(topic, client)
	check(err, "offsets")
	for index := range int32(2) {
		partition, err := manager.ManagePartition(topic, index)
		check(err, "offsets of a partition")
		partition.MarkOffset(7, "metadata")
	}
	manager.Commit()
	check(manager.Close(), "close offsets")
	groups, err := admin.ListConsumerGroups()
	check(err, "list groups")
	_, is_listed := groups[topic]
	details, err := admin.DescribeConsumerGroups([]string{topic})
	check(err, "describe groups")
	committed, err := admin.ListConsumerGroupOffsets(topic, map[string][]int32{topic: {0}})
	check(err, "committed")
	fmt.Println("group", is_listed, details[0].State, committed.GetBlock(topic, 0).Offset)
	check(admin.DeleteConsumerGroupOffset(topic, topic, 0), "delete offset")
	check(admin.DeleteConsumerGroup(topic), "delete group")
	check(client.Close(), "close")

	_, err = admin.ListAcls(sarama.AclFilter{ResourceType: sarama.AclResourceAny, ResourcePatternTypeFilter: sarama.AclPatternAny, PermissionType: sarama.AclPermissionAny, Operation: sarama.AclOperationAny})
	fmt.Println("acls", err)
	_, err = admin.DescribeUserScramCredentials(nil)
	fmt.Println("scram", err)
	transactional := settings()
	transactional.Producer.Idempotent = true
	transactional.Producer.RequiredAcks = sarama.WaitForAll
	transactional.Net.MaxOpenRequests = 1
	transactional.Producer.Transaction.ID = "name"
	_, err = sarama.NewAsyncProducer(seeds, transactional)
	fmt.Println("transactions", err)
	check(admin.DeleteTopic(topic), "delete")
}
