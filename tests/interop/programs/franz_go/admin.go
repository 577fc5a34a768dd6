package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func administer(ctx context.Context, client *kgo.Client, a *ask) (any, error) {
	admin := kadm.NewClient(client)
	switch a.Op {
	case "partitions":
		return partitions(ctx, client, a.Topic)
	case "bounds":
		low, err := at(admin.ListStartOffsets(ctx, a.Topic))(a)
		if err != nil {
			return nil, err
		}
		high, err := at(admin.ListEndOffsets(ctx, a.Topic))(a)
		return []int64{low.Offset, high.Offset}, err
	case "offset_for_time":
		return offsetForTime(ctx, admin, a)
	case "create_topic":
		return nil, createTopic(ctx, admin, a)
	case "delete_topic":
		answers, err := admin.DeleteTopics(ctx, a.Topic)
		if err == nil {
			err = answers.Error()
		}
		return nil, err
	case "add_partitions":
		answers, err := admin.UpdatePartitions(ctx, a.Total, a.Topic)
		if err == nil {
			err = answers.Error()
		}
		return nil, err
	case "topic_configs":
		return topicConfigs(ctx, admin, a)
	case "alter_configs":
		var changes []kadm.AlterConfig
		for name, value := range a.Configs {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: kadm.StringPtr(value)})
		}
		answers, err := admin.AlterTopicConfigs(ctx, changes, a.Topic)
		if err == nil {
			_, err = answers.On(a.Topic, nil)
		}
		if err == nil {
			err = answers[0].Err
		}
		return nil, err
	case "delete_records":
		answers, err := admin.DeleteRecords(ctx, offsets(a, a.Before))
		if err != nil {
			return nil, err
		}
		answer, _ := answers.Lookup(a.Topic, a.Partition)
		return answer.LowWatermark, answer.Err
	case "commit":
		return nil, admin.CommitAllOffsets(ctx, a.Group, offsets(a, a.Offset))
	case "committed":
		answers, err := admin.FetchOffsets(ctx, a.Group)
		if err != nil {
			return nil, err
		}
		answer, known := answers.Lookup(a.Topic, a.Partition)
		if !known || answer.At < 0 {
			return nil, answer.Err
		}
		return answer.At, answer.Err
	}
	return nil, fmt.Errorf("no such op: %s", a.Op)
}

// partitions asks the broker: kadm may answer from what it was told a moment ago.
func partitions(ctx context.Context, client *kgo.Client, topic string) (int, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = nil
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return 0, err
	}
	for _, known := range answer.Topics {
		if known.Topic != nil && *known.Topic == topic {
			return len(known.Partitions), nil
		}
	}
	return 0, nil
}

func offsets(a *ask, offset int64) kadm.Offsets {
	var wanted kadm.Offsets
	wanted.AddOffset(a.Topic, a.Partition, offset, -1)
	return wanted
}

// at looks a partition up in what a listing of offsets gave.
func at(listed kadm.ListedOffsets, err error) func(*ask) (kadm.ListedOffset, error) {
	return func(a *ask) (kadm.ListedOffset, error) {
		if err != nil {
			return kadm.ListedOffset{}, err
		}
		found, known := listed.Lookup(a.Topic, a.Partition)
		if !known {
			return found, fmt.Errorf("no answer for %s %d", a.Topic, a.Partition)
		}
		return found, found.Err
	}
}

// offsetForTime: the library answers with the end when no record is that young, and with timestamp -1.
func offsetForTime(ctx context.Context, admin *kadm.Client, a *ask) (any, error) {
	found, err := at(admin.ListOffsetsAfterMilli(ctx, a.Timestamp, a.Topic))(a)
	if err != nil || found.Timestamp < 0 {
		return nil, err
	}
	return found.Offset, nil
}

func createTopic(ctx context.Context, admin *kadm.Client, a *ask) error {
	var partitions int32
	if err := json.Unmarshal(a.Partitions, &partitions); err != nil {
		return err
	}
	configs := map[string]*string{}
	for name, value := range a.Configs {
		configs[name] = kadm.StringPtr(value)
	}
	_, err := admin.CreateTopic(ctx, partitions, a.Replicas, configs, a.Topic)
	return err
}

func topicConfigs(ctx context.Context, admin *kadm.Client, a *ask) (any, error) {
	answers, err := admin.DescribeTopicConfigs(ctx, a.Topic)
	if err != nil {
		return nil, err
	}
	answer, err := answers.On(a.Topic, nil)
	if err == nil {
		err = answer.Err
	}
	values := map[string]*string{}
	for _, config := range answer.Configs {
		values[config.Key] = config.Value
	}
	return values, err
}
