// What franz-go does against brokers: admin, an idempotent producer, and members of a group.
//
//	franz_go SEEDS TOPIC RECORDS
//
// Creates the topic, writes RECORDS values, reads them as two members of the group TOPIC, which commit, and
// deletes the topic. One line a step; the exit code is 1 when something is not as it should be.
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
	records, err := strconv.Atoi(os.Args[3])
	check(err, "records")
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()

	// a broker that is killed has closed connections before it answered, which is no missing login
	retry := kgo.AlwaysRetryEOF()
	client, err := kgo.NewClient(seeds, retry, kgo.DefaultProduceTopic(topic), kgo.RecordDeliveryTimeout(2*time.Minute))
	check(err, "client")
	defer client.Close()
	admin := kadm.NewClient(client)
	retention := "123456"
	_, err = admin.CreateTopic(ctx, 3, 3, map[string]*string{"retention.ms": &retention}, topic)
	check(err, "create", kerr.TopicAlreadyExists)
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	check(err, "describe configs")
	for _, entry := range configs[0].Configs {
		if entry.Key == "retention.ms" {
			fmt.Println("retention.ms", entry.MaybeValue())
		}
	}

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
	fmt.Println("acknowledged", len(acknowledged))
	ends, err := admin.ListEndOffsets(ctx, topic)
	check(err, "end offsets")
	written := int64(0)
	ends.Each(func(end kadm.ListedOffset) { written += end.Offset })
	fmt.Println("written", written)

	read := map[string]bool{}
	readCtx, done := context.WithCancel(ctx)
	var members sync.WaitGroup
	for range 2 {
		member, err := kgo.NewClient(seeds, retry, kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic))
		check(err, "member")
		members.Add(1)
		go func() {
			defer members.Done()
			defer member.Close()
			for readCtx.Err() == nil {
				fetches := member.PollFetches(readCtx)
				lock.Lock()
				fetches.EachRecord(func(record *kgo.Record) { read[string(record.Value)] = true })
				all := len(read) == records
				lock.Unlock()
				if readCtx.Err() == nil {
					check(member.CommitUncommittedOffsets(readCtx), "commit")
				}
				if all {
					done()
				}
			}
		}()
	}
	members.Wait()
	check(ctx.Err(), "reading")
	fmt.Println("read", len(read))
	lags, err := admin.Lag(ctx, topic)
	check(err, "lag")
	fmt.Println("lag", lags[topic].Lag.Total())
	groups, err := admin.DeleteGroups(ctx, topic)
	check(err, "delete group")
	check(groups.Error(), "delete group", kerr.GroupIDNotFound)
	deleted, err := admin.DeleteTopics(ctx, topic)
	check(err, "delete")
	check(deleted.Error(), "delete", kerr.UnknownTopicOrPartition)
	fmt.Println("deleted")
}
