package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

// chosen sends a record where it says, or lets the key decide when it says -1.
func chosen() kgo.Partitioner {
	keyed := kgo.StickyKeyPartitioner(nil)
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		byKey := keyed.ForTopic(topic)
		return func(record *kgo.Record, count int) int {
			if record.Partition >= 0 {
				return int(record.Partition)
			}
			return byKey.Partition(record, count)
		}
	})
}

func produce(ctx context.Context, a *ask) (any, error) {
	options := []kgo.Opt{
		seeds(a.Bootstrap),
		kgo.RequiredAcks(acks[a.Acks]),
		kgo.ProducerBatchCompression(codecs[a.Codec]),
		kgo.ProducerBatchMaxBytes(a.SizeMax),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.RecordPartitioner(chosen()),
		kgo.AllowAutoTopicCreation(),
		kgo.MetadataMinAge(10 * time.Millisecond),
	}
	if !a.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, len(a.Records))
	for _, each := range a.Records {
		record := &kgo.Record{Topic: a.Topic, Key: each.Key, Value: each.Value, Partition: -1}
		if each.Partition != nil {
			record.Partition = *each.Partition
		}
		if each.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		for _, header := range each.Headers {
			var value []byte
			if text, is := header[1].(string); is {
				if value, err = base64.StdEncoding.DecodeString(text); err != nil {
					return nil, err
				}
			}
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header[0].(string), Value: value})
		}
		records = append(records, record)
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := []int64{}
	if a.Acks != "0" {
		for _, record := range records {
			offsets = append(offsets, record.Offset)
		}
	}
	return offsets, nil
}

func got(record *kgo.Record) []any {
	headers := [][]any{}
	for _, header := range record.Headers {
		headers = append(headers, []any{header.Key, header.Value})
	}
	return []any{
		record.Partition, record.Offset, record.Timestamp.UnixMilli(), record.Key, record.Value, headers,
		record.Attrs.TimestampType() == 1,
	}
}

// firstError is the first that a fetch met; a deadline that passed is none.
func firstError(fetches kgo.Fetches) error {
	for _, problem := range fetches.Errors() {
		if !errors.Is(problem.Err, context.DeadlineExceeded) {
			return problem.Err
		}
	}
	return nil
}

func (p *program) read(ctx context.Context, a *ask) (any, error) {
	var partitions []int32
	if err := json.Unmarshal(a.Partitions, &partitions); err != nil {
		return nil, err
	}
	shared, err := p.client(a.Bootstrap)
	if err != nil {
		return nil, err
	}
	admin := kadm.NewClient(shared)
	ends, err := admin.ListEndOffsets(ctx, a.Topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	starts, err := admin.ListStartOffsets(ctx, a.Topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, err
	}
	left := map[int32]int64{}
	from := map[int32]kgo.Offset{}
	for _, partition := range partitions {
		end, _ := ends.Lookup(a.Topic, partition)
		first := a.Start
		if first == -2 {
			start, _ := starts.Lookup(a.Topic, partition)
			first = start.Offset
		}
		if first < end.Offset {
			left[partition] = end.Offset
			from[partition] = kgo.NewOffset().At(first)
		}
	}
	records := [][]any{}
	if len(left) == 0 {
		return records, nil
	}
	client, err := kgo.NewClient(
		seeds(a.Bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{a.Topic: from}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxPartitionBytes(a.SizeMax),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := firstError(fetches); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%d partitions not read to their end", len(left))
		}
		fetches.EachRecord(func(record *kgo.Record) {
			records = append(records, got(record))
			if record.Offset+1 >= left[record.Partition] {
				delete(left, record.Partition)
			}
		})
	}
	return records, nil
}

type reader struct {
	client  *kgo.Client
	topic   string
	waiting [][]any
}

func (p *program) openReader(a *ask) error {
	from := kgo.NewOffset().At(a.Start)
	if a.Start == -1 {
		from = kgo.NewOffset().AtEnd()
	}
	client, err := kgo.NewClient(
		seeds(a.Bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{a.Topic: {a.Partition: from}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(time.Duration(a.WaitMs)*time.Millisecond),
	)
	if err != nil {
		return err
	}
	p.readers[a.Reader] = &reader{client: client, topic: a.Topic}
	return nil
}

func (r *reader) take(count int, patience time.Duration) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for len(r.waiting) < count && ctx.Err() == nil {
		fetches := r.client.PollFetches(ctx)
		if err := firstError(fetches); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) { r.waiting = append(r.waiting, got(record)) })
	}
	count = min(count, len(r.waiting))
	taken := append([][]any{}, r.waiting[:count]...)
	r.waiting = r.waiting[count:]
	return taken, nil
}

func (r *reader) seek(partition int32, offset int64) error {
	r.waiting = nil
	to := map[string]map[int32]kgo.EpochOffset{r.topic: {partition: {Epoch: -1, Offset: offset}}}
	r.client.SetOffsets(to)
	return nil
}
