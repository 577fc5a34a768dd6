// franz-go as a program: one JSON object per line in, one per line out (tests/interop/clients/process.py).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 20 * time.Second

// ask is the union of what the ops take.
type ask struct {
	Op          string            `json:"op"`
	Bootstrap   string            `json:"bootstrap"`
	Topic       string            `json:"topic"`
	Partition   int32             `json:"partition"`
	Offset      int64             `json:"offset"`
	Timestamp   int64             `json:"timestamp"`
	Start       int64             `json:"start"`
	WaitMs      int               `json:"wait_ms"`
	Reader      string            `json:"reader"`
	Count       int               `json:"count"`
	Seconds     float64           `json:"seconds"`
	SizeMax     int32             `json:"size_max"`
	Codec       string            `json:"codec"`
	Acks        string            `json:"acks"`
	Idempotent  bool              `json:"idempotent"`
	Records     []sent            `json:"records"`
	Configs     map[string]string `json:"configs"`
	Total       int               `json:"total"`
	Replicas    int16             `json:"replicas"`
	Before      int64             `json:"before"`
	Group       string            `json:"group"`
	Member      string            `json:"member"`
	Topics      []string          `json:"topics"`
	Pattern     *string           `json:"pattern"`
	Instance    *string           `json:"instance"`
	Cooperative bool              `json:"cooperative"`
	Protocol    string            `json:"protocol"`
	SessionMs   int               `json:"session_ms"`
	HeartbeatMs int               `json:"heartbeat_ms"`
	MetadataMs  int               `json:"metadata_ms"`

	// Of transactions.
	Producer        string   `json:"producer"`
	TransactionalID string   `json:"transactional_id"`
	TimeoutMs       int      `json:"timeout_ms"`
	Values          []string `json:"values"`
	Commit          bool     `json:"commit"`
	Committed       bool     `json:"committed"`
	Source          string   `json:"source"`
	Target          string   `json:"target"`
	Batch           int      `json:"batch"`

	// A number for create_topic, a list for read.
	Partitions json.RawMessage `json:"partitions"`
}

type sent struct {
	Value     []byte   `json:"value"`
	Key       []byte   `json:"key"`
	Headers   [][2]any `json:"headers"`
	Timestamp *int64   `json:"timestamp"`
	Partition *int32   `json:"partition"`
}

type program struct {
	clients map[string]*kgo.Client
	readers map[string]*reader
	members map[string]*member

	transactions transactions
}

var (
	outMutex sync.Mutex
	out      = bufio.NewWriterSize(os.Stdout, 1<<20)
)

func printLine(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	outMutex.Lock()
	defer outMutex.Unlock()
	out.Write(text)
	out.WriteByte('\n')
	out.Flush()
}

func main() {
	p := &program{
		map[string]*kgo.Client{}, map[string]*reader{}, map[string]*member{},
		transactions{map[string]*kgo.Client{}, map[string]bool{}},
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		printLine(p.answer(line))
	}
}

func (p *program) answer(line []byte) (answer map[string]any) {
	defer func() {
		if problem := recover(); problem != nil {
			answer = map[string]any{"broken": fmt.Sprintf("%v\n%s", problem, debug.Stack())}
		}
	}()
	var a ask
	if err := json.Unmarshal(line, &a); err != nil {
		return map[string]any{"broken": err.Error()}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	value, err := p.run(ctx, &a)
	var refusal *kerr.Error
	switch {
	case err == nil:
		return map[string]any{"answer": value}
	case errors.As(err, &refusal):
		return map[string]any{"refused": []any{refusal.Code, err.Error()}}
	default:
		return map[string]any{"broken": err.Error()}
	}
}

func (p *program) run(ctx context.Context, a *ask) (any, error) {
	switch a.Op {
	case "version":
		info, _ := debug.ReadBuildInfo()
		for _, module := range info.Deps {
			if module.Path == "github.com/twmb/franz-go" {
				return module.Version, nil
			}
		}
		return "unknown", nil
	case "produce":
		return produce(ctx, a)
	case "read":
		return p.read(ctx, a)
	case "reader.open":
		return nil, p.openReader(a)
	case "reader.take":
		return p.readers[a.Reader].take(a.Count, time.Duration(a.Seconds*float64(time.Second)))
	case "reader.seek":
		return nil, p.readers[a.Reader].seek(a.Partition, a.Offset)
	case "reader.close":
		// A fetch may be parked; to wait for its end is not what the case is about.
		go p.readers[a.Reader].client.Close()
		delete(p.readers, a.Reader)
		return nil, nil
	case "txn.open", "txn.send", "txn.end", "txn.close", "txn.read", "txn.transform":
		return p.transactions.run(ctx, a)
	case "member.join":
		return nil, p.join(a)
	case "member.seek":
		return nil, p.members[a.Member].seek(a)
	case "member.leave":
		p.members[a.Member].leave()
		delete(p.members, a.Member)
		return nil, nil
	}
	client, err := p.client(a.Bootstrap)
	if err != nil {
		return nil, err
	}
	return administer(ctx, client, a)
}

// client is the one that admin questions go through.
func (p *program) client(bootstrap string) (*kgo.Client, error) {
	if p.clients[bootstrap] == nil {
		made, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.MetadataMinAge(10*time.Millisecond))
		if err != nil {
			return nil, err
		}
		p.clients[bootstrap] = made
	}
	return p.clients[bootstrap], nil
}
