// What franz-go does against brokers, one task a run:
//
//	franz_go SEEDS TOPIC create          a topic with three partitions; prints a value of its configuration
//	franz_go SEEDS TOPIC write RECORDS   numbers as values, idempotent; prints how many are acknowledged
//	franz_go SEEDS TOPIC read RECORDS    as two members of the group TOPIC, which commit; prints each value
//	franz_go SEEDS TOPIC delete          the group and the topic
//
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

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// check ends the program; what was already done when an answer got lost and the request was sent again is fine.
func check(err error, what string, done ...error) {
	for _, fine := range done {
		if errors.Is(err, fine) {
			return
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func main() {
	seeds, topic := kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), os.Args[2]
	records := 0
	if len(os.Args) > 4 {
		var err error
		records, err = strconv.Atoi(os.Args[4])
		check(err, "records")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	// a broker that is killed has closed connections before it answered, which is no missing login
	options := []kgo.Opt{seeds, kgo.AlwaysRetryEOF()}
	switch os.Args[3] {
	case "create":
		create(ctx, options, topic)
	case "write":
		write(ctx, options, topic, records)
	case "read":
		read(ctx, options, topic, records)
	case "delete":
		remove(ctx, options, topic)
	}
}

func connect(options []kgo.Opt, more ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(append([]kgo.Opt{}, options...), more...)...)
	check(err, "client")
	return client
}

func create(ctx context.Context, options []kgo.Opt, topic string) {
	client := connect(options)
	defer client.Close()
	admin := kadm.NewClient(client)
	retention := "123456"
	_, err := admin.CreateTopic(ctx, 3, 3, map[string]*string{"retention.ms": &retention}, topic)
	check(err, "create", kerr.TopicAlreadyExists)
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	check(err, "describe configs")
	for _, entry := range configs[0].Configs {
		if entry.Key == "retention.ms" {
			fmt.Println("retention.ms", entry.MaybeValue())
		}
	}
}

func write(ctx context.Context, options []kgo.Opt, topic string, records int) {
	client := connect(options, kgo.DefaultProduceTopic(topic), kgo.RecordDeliveryTimeout(2*time.Minute))
	defer client.Close()
	acknowledged := map[string]bool{}
	var lock sync.Mutex
	for number := range records {
		value := []byte(strconv.Itoa(number))
		client.Produce(ctx, &kgo.Record{Key: value, Value: value}, func(record *kgo.Record, err error) {
			check(err, "produce")
			lock.Lock()
			defer lock.Unlock()
			acknowledged[fmt.Sprint(record.Partition, "-", record.Offset)] = true
		})
	}
	check(client.Flush(ctx), "flush")
	fmt.Println(len(acknowledged))
}

func read(ctx context.Context, options []kgo.Opt, topic string, records int) {
	values := map[string]bool{}
	var lock sync.Mutex
	readCtx, done := context.WithCancel(ctx)
	defer done()
	var members sync.WaitGroup
	for range 2 {
		// it commits what it has read, also when a partition goes to the other
		member := connect(options, kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic))
		members.Add(1)
		go func() {
			defer members.Done()
			defer member.Close()
			for readCtx.Err() == nil {
				fetches := member.PollFetches(readCtx)
				lock.Lock()
				fetches.EachRecord(func(record *kgo.Record) { values[string(record.Value)] = true })
				all := len(values) == records
				lock.Unlock()
				commit(ctx, member)
				if all {
					done()
				}
			}
		}()
	}
	members.Wait()
	check(ctx.Err(), "reading")
	for value := range values {
		fmt.Println(value)
	}
}

// commit tries again while the group finds itself anew.
func commit(ctx context.Context, member *kgo.Client) {
	for {
		err := member.CommitUncommittedOffsets(ctx)
		if err == nil {
			return
		}
		check(err, "commit", kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID)
		time.Sleep(100 * time.Millisecond)
	}
}

func remove(ctx context.Context, options []kgo.Opt, topic string) {
	client := connect(options)
	defer client.Close()
	admin := kadm.NewClient(client)
	groups, err := admin.DeleteGroups(ctx, topic)
	// The first question about a group makes the topic of the offsets, which takes a moment.
	for attempt := 0; errors.Is(err, kerr.CoordinatorNotAvailable) && attempt < 100; attempt++ {
		time.Sleep(100 * time.Millisecond)
		groups, err = admin.DeleteGroups(ctx, topic)
	}
	check(err, "delete group")
	check(groups.Error(), "delete group", kerr.GroupIDNotFound)
	deleted, err := admin.DeleteTopics(ctx, topic)
	check(err, "delete")
	check(deleted.Error(), "delete", kerr.UnknownTopicOrPartition)
}
