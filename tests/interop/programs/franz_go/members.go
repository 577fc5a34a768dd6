package main

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// member is a group member that commits what it has shown.
type member struct {
	name   string
	client *kgo.Client
	stop   context.CancelFunc
	done   sync.WaitGroup
}

func (m *member) tell(event string, more map[string]any) {
	more["event"], more["member"], more["at"] = event, m.name, time.Now().UnixMicro()
	printLine(more)
}

func (m *member) moved(event string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		list := [][]any{}
		for topic, numbers := range partitions {
			for _, number := range numbers {
				list = append(list, []any{topic, number})
			}
		}
		m.tell(event, map[string]any{"partitions": list})
	}
}

func (p *program) join(a *ask) error {
	ctx, stop := context.WithCancel(context.Background())
	m := &member{name: a.Member, stop: stop}
	options := []kgo.Opt{
		seeds(a.Bootstrap),
		kgo.ConsumerGroup(a.Group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(time.Duration(a.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(a.HeartbeatMs) * time.Millisecond),
		kgo.MetadataMaxAge(time.Duration(a.MetadataMs) * time.Millisecond),
		kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.DisableAutoCommit(),
		// A rebalance waits for the commit of what was shown.
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(m.moved("assigned")),
		kgo.OnPartitionsRevoked(m.moved("revoked")),
		kgo.OnPartitionsLost(m.moved("revoked")),
	}
	if a.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	} else if a.Cooperative {
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	} else {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	if a.Instance != nil {
		options = append(options, kgo.InstanceID(*a.Instance))
	}
	if a.Pattern != nil {
		options = append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics(*a.Pattern))
	} else {
		options = append(options, kgo.ConsumeTopics(a.Topics...))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		stop()
		return err
	}
	m.client = client
	p.members[a.Member] = m
	m.done.Add(1)
	go m.work(ctx)
	return nil
}

func (m *member) work(ctx context.Context) {
	defer m.done.Done()
	for ctx.Err() == nil {
		fetches := m.client.PollFetches(ctx)
		list := [][]any{}
		fetches.EachRecord(func(record *kgo.Record) {
			list = append(list, []any{record.Topic, record.Partition, record.Offset, string(record.Value)})
		})
		if len(list) > 0 {
			m.tell("records", map[string]any{"records": list})
			// A commit that a rebalance refuses is repeated by whoever reads these records again.
			if err := m.client.CommitUncommittedOffsets(context.Background()); err != nil {
				m.tell("uncommitted", map[string]any{"text": err.Error()})
			}
		}
		m.client.AllowRebalance()
	}
}

func (m *member) seek(a *ask) error {
	to := map[string]map[int32]kgo.EpochOffset{a.Topic: {a.Partition: {Epoch: -1, Offset: a.Offset}}}
	m.client.SetOffsets(to)
	return nil
}

func (m *member) leave() {
	m.stop()
	m.done.Wait()
	m.client.CloseAllowingRebalance()
}
