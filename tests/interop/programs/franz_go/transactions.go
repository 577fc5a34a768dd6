// Transactions of franz-go, step by step, and a transformer that reads, sends and commits in one.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type transactions struct {
	clients map[string]*kgo.Client
	begun   map[string]bool
}

func openTransactional(ctx context.Context, a *ask, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		seeds(a.Bootstrap),
		kgo.TransactionalID(a.TransactionalID),
		kgo.TransactionTimeout(time.Duration(a.TimeoutMs) * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequestTimeoutOverhead(5 * time.Second),
	}, options...)...)
}

func (t *transactions) run(ctx context.Context, a *ask) (any, error) {
	switch a.Op {
	case "txn.open":
		client, err := openTransactional(ctx, a)
		if err != nil {
			return nil, err
		}
		t.clients[a.Producer] = client
		_, _, err = client.ProducerID(ctx) // initializes it
		return nil, err
	case "txn.send":
		client := t.clients[a.Producer]
		if !t.begun[a.Producer] {
			if err := client.BeginTransaction(); err != nil {
				return nil, err
			}
			t.begun[a.Producer] = true
		}
		var records []*kgo.Record
		for _, value := range a.Values {
			records = append(records, &kgo.Record{Topic: a.Topic, Partition: a.Partition, Value: []byte(value)})
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return nil, err
		}
		offsets := []int64{}
		for _, record := range records {
			offsets = append(offsets, record.Offset)
		}
		return offsets, nil
	case "txn.end":
		delete(t.begun, a.Producer)
		end := kgo.TryAbort
		if a.Commit {
			end = kgo.TryCommit
		}
		return nil, t.clients[a.Producer].EndTransaction(ctx, end)
	case "txn.close":
		go t.clients[a.Producer].Close()
		delete(t.clients, a.Producer)
		delete(t.begun, a.Producer)
		return nil, nil
	case "txn.read":
		return readCommitted(ctx, a)
	case "txn.transform":
		return transform(a)
	}
	return nil, errors.New("no such op: " + a.Op)
}

func readCommitted(ctx context.Context, a *ask) (any, error) {
	level := kgo.ReadUncommitted()
	if a.Committed {
		level = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		seeds(a.Bootstrap), kgo.ConsumeTopics(a.Topic), kgo.FetchIsolationLevel(level),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.KeepControlRecords(), // the last one of a partition says that everything before it was seen or left out
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ends, err := admin.ListEndOffsets(ctx, a.Topic)
	if a.Committed {
		ends, err = admin.ListCommittedOffsets(ctx, a.Topic)
	}
	if err != nil {
		return nil, err
	}
	found := [][]any{}
	at := map[int32]int64{}
	for {
		behind := false
		ends.Each(func(end kadm.ListedOffset) { behind = behind || at[end.Partition] < end.Offset })
		if !behind {
			return found, nil
		}
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			at[record.Partition] = record.Offset + 1
			if !record.Attrs.IsControl() {
				found = append(found, []any{record.Partition, record.Offset, string(record.Value)})
			}
		})
	}
}

// transform goes from one topic to another, until the group has committed all of it.
func transform(a *ask) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(a.Seconds*float64(time.Second)))
	defer cancel()
	for ctx.Err() == nil {
		// A session whose end is not known is over; the next one begins at the group's offsets.
		if done, err := transformOnce(ctx, a); err == nil {
			return done, nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return nil, ctx.Err()
}

func transformOnce(ctx context.Context, a *ask) (int64, error) {
	session, err := kgo.NewGroupTransactSession(
		seeds(a.Bootstrap),
		kgo.TransactionalID(a.TransactionalID),
		kgo.TransactionTimeout(10*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequestTimeoutOverhead(5*time.Second),
		kgo.ConsumerGroup(a.Group),
		kgo.ConsumeTopics(a.Source),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond),
		kgo.RequireStableFetchOffsets(),
		// A session that ended while the broker was away could not leave: the next one waits for this.
		kgo.SessionTimeout(2*time.Second),
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.RebalanceTimeout(4*time.Second),
	)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	// Ends what a session before this one has left open: until then the group's offsets are not stable.
	if _, _, err := session.Client().ProducerID(ctx); err != nil {
		return 0, err
	}
	admin := kadm.NewClient(session.Client())
	for ctx.Err() == nil {
		polled, stop := context.WithTimeout(ctx, 500*time.Millisecond)
		fetches := session.PollRecords(polled, a.Batch)
		stop()
		if fetches.NumRecords() == 0 {
			committed, err := admin.FetchOffsets(ctx, a.Group)
			if err != nil {
				continue
			}
			var done int64
			committed.Each(func(one kadm.OffsetResponse) { done += one.At })
			if done >= int64(a.Count) {
				return done, nil
			}
			continue
		}
		if err := session.Begin(); err != nil {
			return 0, err
		}
		var records []*kgo.Record
		fetches.EachRecord(func(record *kgo.Record) {
			records = append(records, &kgo.Record{Topic: a.Target, Partition: record.Partition, Value: record.Value})
		})
		sent := session.Client().ProduceSync(ctx, records...).FirstErr()
		if _, err := session.End(ctx, kgo.TransactionEndTry(sent == nil)); err != nil {
			return 0, err
		}
	}
	return 0, ctx.Err()
}
