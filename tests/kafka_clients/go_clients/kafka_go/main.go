// What segmentio's kafka-go does against brokers, one task a run:
//
//	kafka_go SEEDS TOPIC admin           creates, describes, changes and deletes, topics and groups
//	kafka_go SEEDS TOPIC write RECORDS   numbers as values, in every compression; prints how many are acknowledged
//	kafka_go SEEDS TOPIC read RECORDS    as two members of the group TOPIC, which commit; prints each value
//
// It has no idempotent producer: what is sent again when a broker dies may be there twice.
// The exit code is 1 when something is not as it should be.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

func check(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func main() {
	seeds, topic := strings.Split(os.Args[1], ","), os.Args[2]
	records := 0
	if len(os.Args) > 4 {
		var err error
		records, err = strconv.Atoi(os.Args[4])
		check(err, "records")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	switch os.Args[3] {
	case "admin":
		administer(ctx, seeds, topic)
	case "write":
		write(ctx, seeds, topic, records)
	case "read":
		read(ctx, seeds, topic, records)
	}
}

func write(ctx context.Context, seeds []string, topic string, records int) {
	count := 0
	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	for index, codec := range codecs {
		writer := &kafka.Writer{
			Addr: kafka.TCP(seeds...), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: codec,
			MaxAttempts: 1_000, BatchTimeout: 10 * time.Millisecond, Balancer: &kafka.Hash{},
		}
		var messages []kafka.Message
		for number := index * records / len(codecs); number < (index+1)*records/len(codecs); number++ {
			value := []byte(strconv.Itoa(number))
			messages = append(messages, kafka.Message{Key: value, Value: value})
		}
		check(writer.WriteMessages(ctx, messages...), "write")
		count += len(messages)
		check(writer.Close(), "close")
	}
	fmt.Println(count)
}

func read(ctx context.Context, seeds []string, topic string, records int) {
	readCtx, done := context.WithCancel(ctx)
	values, lock := map[string]bool{}, &sync.Mutex{}
	var members sync.WaitGroup
	for range 2 {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: seeds, GroupID: topic, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 500 * time.Millisecond,
			MaxAttempts: 1_000,
		})
		members.Add(1)
		go func() {
			defer members.Done()
			defer reader.Close()
			var read []kafka.Message
			commit := func() {
				for len(read) > 0 && ctx.Err() == nil && reader.CommitMessages(ctx, read...) != nil {
				}
				read = nil
			}
			defer commit()
			for readCtx.Err() == nil {
				message, err := reader.FetchMessage(readCtx)
				if err != nil {
					continue // it connects again by itself
				}
				lock.Lock()
				values[string(message.Value)] = true
				is_all := len(values) == records
				lock.Unlock()
				if read = append(read, message); len(read) == 100 {
					commit()
				}
				if is_all {
					done()
				}
			}
		}()
	}
	members.Wait()
	done()
	check(ctx.Err(), "reading")
	for value := range values {
		fmt.Println(value)
	}
}

func administer(ctx context.Context, seeds []string, topic string) {
	client := &kafka.Client{Addr: kafka.TCP(seeds...), Timeout: 10 * time.Second}
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: topic, NumPartitions: 3, ReplicationFactor: 3,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "123456"}},
	}}})
	check(err, "create")
	check(created.Errors[topic], "create")
	// Any broker is asked, and one that has not heard of the topic yet says so.
	var metadata *kafka.MetadataResponse
	for {
		metadata, err = client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		check(err, "metadata")
		if rows := metadata.Topics[0].Partitions; len(rows) == 3 && len(rows[0].Isr) == 3 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Println("described", len(metadata.Brokers), len(metadata.Topics[0].Partitions), len(metadata.Topics[0].Partitions[0].Isr))
	more, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 4}}})
	check(err, "create partitions")
	check(more.Errors[topic], "create partitions")
	of_topic := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"}}
	configs, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{of_topic}})
	check(err, "describe configs")
	for configs.Resources[0].Error != nil && ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		configs, err = client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{of_topic}})
		check(err, "describe configs")
	}
	check(configs.Resources[0].Error, "describe configs")
	fmt.Println(configs.Resources[0].ConfigEntries[0].ConfigName, configs.Resources[0].ConfigEntries[0].ConfigValue)
	altered, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: "234567", ConfigOperation: kafka.ConfigOperationSet}},
	}}})
	check(err, "alter configs")
	check(altered.Resources[0].Error, "alter configs")
	_, err = client.AlterConfigs(ctx, &kafka.AlterConfigsRequest{Resources: []kafka.AlterConfigRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, Configs: []kafka.AlterConfigRequestConfig{{Name: "retention.ms", Value: "1234567"}},
	}}})
	check(err, "set configs")
	offsets, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0)}}})
	check(err, "list offsets")
	fmt.Println("offsets", offsets.Topics[topic][0].FirstOffset, offsets.Topics[topic][0].LastOffset)
	committed, err := client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: topic, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{topic: {{Partition: 0, Offset: 7}}}})
	check(err, "commit")
	check(committed.Topics[topic][0].Error, "commit")
	fetched, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: topic, Topics: map[string][]int{topic: {0}}})
	check(err, "committed")
	groups, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	check(err, "list groups")
	described, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{topic}})
	check(err, "describe groups")
	fmt.Println("group", described.Groups[0].GroupState, fetched.Topics[topic][0].CommittedOffset, len(groups.Groups) > 0)
	deleted, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{topic}})
	check(err, "delete groups")
	check(deleted.Errors[topic], "delete groups")
	_, err = client.ElectLeaders(ctx, &kafka.ElectLeadersRequest{Topic: topic, Partitions: []int{0}})
	check(err, "elect")
	_, err = client.ListPartitionReassignments(ctx, &kafka.ListPartitionReassignmentsRequest{})
	check(err, "list reassignments")
	producer, err := client.InitProducerID(ctx, &kafka.InitProducerIDRequest{TransactionalID: "name", TransactionTimeoutMs: 60_000})
	check(err, "a producer's id")
	fmt.Println("transactions refused", errors.Is(producer.Error, kafka.TransactionalIDAuthorizationFailed))
	_, err = client.DescribeACLs(ctx, &kafka.DescribeACLsRequest{Filter: kafka.ACLFilter{ResourceTypeFilter: kafka.ResourceTypeAny, ResourcePatternTypeFilter: kafka.PatternTypeAny, Operation: kafka.ACLOperationTypeAny, PermissionType: kafka.ACLPermissionTypeAny}})
	fmt.Println("acls refused", err != nil) // it does not look first whether they are served
	gone, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	check(err, "delete")
	check(gone.Errors[topic], "delete")
}
