// The client cases with franz-go. See ../README.md.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const wait = 60 * time.Second

type cluster struct {
	bootstrap string
	admin     *kadm.Client
	ctx       context.Context
}

type message struct{ key, value string }

var names = []string{"smoke", "produce_acks", "codecs", "headers", "tombstones", "large", "idempotent", "seek", "by_time",
	"group", "rebalance", "static_member", "many_partitions", "metadata"}

var cases = map[string]func(*cluster) error{
	"smoke": smoke, "produce_acks": produceAcks, "codecs": codecs, "headers": headers, "tombstones": tombstones,
	"large": large, "idempotent": idempotent, "seek": seek, "by_time": byTime, "group": group, "rebalance": rebalance,
	"static_member": staticMember, "many_partitions": manyPartitions, "metadata": metadata,
}

func fresh(prefix string) string {
	return prefix + "-" + rand.Text()
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func (c *cluster) client(options ...kgo.Opt) *kgo.Client {
	return must(kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.bootstrap)}, options...)...))
}

func (c *cluster) topic(partitions int32) string {
	name := fresh("go")
	created := must(c.admin.CreateTopics(c.ctx, partitions, 1, nil, name))
	if err := created.Error(); err != nil {
		panic(err)
	}
	return name
}

func numbered(count int) []message {
	out := make([]message, count)
	for i := range out {
		out[i] = message{fmt.Sprintf("k%d", i), fmt.Sprintf("v%d", i)}
	}
	return out
}

func (c *cluster) send(topic string, messages []message, options ...kgo.Opt) error {
	client := c.client(options...)
	defer client.Close()
	records := make([]*kgo.Record, len(messages))
	for i, m := range messages {
		records[i] = &kgo.Record{Topic: topic, Key: []byte(m.key), Value: []byte(m.value)}
	}
	return client.ProduceSync(c.ctx, records...).FirstErr()
}

func take(ctx context.Context, client *kgo.Client, count int) ([]*kgo.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var out []*kgo.Record
	for len(out) < count {
		fetches := client.PollRecords(ctx, count-len(out))
		if err := fetches.Err(); err != nil {
			return out, fmt.Errorf("%d of %d messages came: %w", len(out), count, err)
		}
		out = append(out, fetches.Records()...)
	}
	return out, nil
}

func (c *cluster) read(topic string, count int) ([]*kgo.Record, error) {
	client := c.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	return take(c.ctx, client, count)
}

func same(sent []message, got []*kgo.Record) error {
	for i, r := range got {
		if string(r.Key) != sent[i].key || string(r.Value) != sent[i].value {
			return fmt.Errorf("message %d: wanted %v, got %q %q", i, sent[i], r.Key, r.Value)
		}
		if r.Offset != int64(i) {
			return fmt.Errorf("message %d has offset %d", i, r.Offset)
		}
	}
	return nil
}

func (c *cluster) throughAndBack(topic string, sent []message, options ...kgo.Opt) error {
	if err := c.send(topic, sent, options...); err != nil {
		return err
	}
	got, err := c.read(topic, len(sent))
	if err != nil {
		return err
	}
	return same(sent, got)
}

func smoke(c *cluster) error {
	topic := c.topic(1)
	if err := c.throughAndBack(topic, numbered(100)); err != nil {
		return err
	}
	deleted, err := c.admin.DeleteTopics(c.ctx, topic)
	if err = errors.Join(err, deleted.Error()); err != nil {
		return err
	}
	if must(c.admin.ListTopics(c.ctx)).Has(topic) {
		return errors.New("the topic is still listed")
	}
	return nil
}

func produceAcks(c *cluster) error {
	for _, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck(), kgo.AllISRAcks()} {
		if err := c.throughAndBack(c.topic(1), numbered(50), kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite()); err != nil {
			return err
		}
	}
	return nil
}

func codecs(c *cluster) error {
	all := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	for name, codec := range all {
		sent := numbered(500)
		for i := range sent {
			sent[i].value += string(bytes.Repeat([]byte("."), 200))
		}
		if err := c.throughAndBack(c.topic(1), sent, kgo.ProducerBatchCompression(codec)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func headers(c *cluster) error {
	topic := c.topic(1)
	sent := []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "empty", Value: []byte{}},
		{Key: "null"}, {Key: "a", Value: []byte("3")}}
	client := c.client()
	defer client.Close()
	if err := client.ProduceSync(c.ctx, &kgo.Record{Topic: topic, Value: []byte("v"), Headers: sent}).FirstErr(); err != nil {
		return err
	}
	got, err := c.read(topic, 1)
	if err != nil {
		return err
	}
	if len(got[0].Headers) != len(sent) {
		return fmt.Errorf("%d headers came back", len(got[0].Headers))
	}
	for i, h := range got[0].Headers {
		if h.Key != sent[i].Key || !bytes.Equal(h.Value, sent[i].Value) || (h.Value == nil) != (sent[i].Value == nil) {
			return fmt.Errorf("header %d: wanted %v, got %v", i, sent[i], h)
		}
	}
	return nil
}

func tombstones(c *cluster) error {
	topic := c.topic(1)
	client := c.client()
	defer client.Close()
	sent := []*kgo.Record{{Topic: topic, Key: []byte("k")}, {Topic: topic, Value: []byte("v")}, {Topic: topic},
		{Topic: topic, Key: []byte{}, Value: []byte{}}}
	if err := client.ProduceSync(c.ctx, sent...).FirstErr(); err != nil {
		return err
	}
	got, err := c.read(topic, len(sent))
	if err != nil {
		return err
	}
	for i, r := range got {
		if (r.Key == nil) != (sent[i].Key == nil) || (r.Value == nil) != (sent[i].Value == nil) {
			return fmt.Errorf("message %d: a null became something or the other way round", i)
		}
	}
	return nil
}

func large(c *cluster) error {
	topic := c.topic(1)
	value := make([]byte, 1_000_000)
	must(rand.Read(value))
	client := c.client(kgo.ProducerBatchMaxBytes(5_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer client.Close()
	if err := client.ProduceSync(c.ctx, &kgo.Record{Topic: topic, Value: value}).FirstErr(); err != nil {
		return err
	}
	got, err := c.read(topic, 1)
	if err != nil {
		return err
	}
	if !bytes.Equal(got[0].Value, value) {
		return errors.New("the large message changed")
	}
	err = client.ProduceSync(c.ctx, &kgo.Record{Topic: topic, Value: make([]byte, 2_000_000)}).FirstErr()
	if !errors.Is(err, kerr.MessageTooLarge) {
		return fmt.Errorf("wanted MESSAGE_TOO_LARGE, got %v", err)
	}
	return nil
}

func idempotent(c *cluster) error {
	topic := c.topic(3)
	if err := c.send(topic, numbered(5000), kgo.MaxBufferedRecords(50)); err != nil {
		return err
	}
	got, err := c.read(topic, 5000)
	if err != nil {
		return err
	}
	last, seen := map[int32]int{}, map[string]bool{}
	for _, r := range got {
		n := must(strconv.Atoi(string(r.Value[1:])))
		if before, ok := last[r.Partition]; ok && before >= n {
			return fmt.Errorf("partition %d is out of order", r.Partition)
		}
		if seen[string(r.Value)] {
			return fmt.Errorf("written twice: %s", r.Value)
		}
		last[r.Partition], seen[string(r.Value)] = n, true
	}
	return nil
}

func seek(c *cluster) error {
	topic := c.topic(1)
	if err := c.send(topic, numbered(100)); err != nil {
		return err
	}
	for _, offset := range []int64{0, 37, 99} {
		client := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(offset)}}))
		got, err := take(c.ctx, client, 1)
		client.Close()
		if err != nil || got[0].Offset != offset {
			return fmt.Errorf("offset %d: %v", offset, err)
		}
	}
	client := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtEnd()}}))
	defer client.Close()
	short, cancel := context.WithTimeout(c.ctx, time.Second)
	defer cancel()
	if n := client.PollRecords(short, 1).NumRecords(); n != 0 {
		return fmt.Errorf("%d messages after the end", n)
	}
	if err := c.send(topic, []message{{"k", "last"}}); err != nil {
		return err
	}
	got, err := take(c.ctx, client, 1)
	if err != nil || string(got[0].Value) != "last" {
		return fmt.Errorf("after the end: %v", err)
	}
	return nil
}

func byTime(c *cluster) error {
	topic := c.topic(1)
	start := time.Now().Add(-100 * time.Second).Truncate(time.Millisecond)
	client := c.client(kgo.ProducerBatchCompression(kgo.GzipCompression()), kgo.ProducerLinger(200*time.Millisecond))
	defer client.Close()
	records := make([]*kgo.Record, 100)
	for i := range records {
		at := start.Add(time.Duration(i) * 10 * time.Millisecond)
		records[i] = &kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(i)), Timestamp: at}
	}
	if err := client.ProduceSync(c.ctx, records...).FirstErr(); err != nil {
		return err
	}
	for after, offset := range map[int64]int64{0: 0, 500: 50, 501: 51, -1000: 0, 1_000_000: 100} {
		listed, err := c.admin.ListOffsetsAfterMilli(c.ctx, start.UnixMilli()+after, topic)
		if err != nil {
			return err
		}
		if found, _ := listed.Lookup(topic, 0); found.Err != nil || found.Offset != offset {
			return fmt.Errorf("offset for %d ms: wanted %d, got %d (%v)", after, offset, found.Offset, found.Err)
		}
	}
	return nil
}

func group(c *cluster) error {
	topic, name := c.topic(2), fresh("g")
	if err := c.send(topic, numbered(100)); err != nil {
		return err
	}
	values := map[string]bool{}
	for _, count := range []int{60, 40} {
		client := c.client(kgo.ConsumeTopics(topic), kgo.ConsumerGroup(name), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		got, err := take(c.ctx, client, count)
		if err == nil {
			err = client.CommitRecords(c.ctx, got...)
		}
		client.Close()
		if err != nil {
			return err
		}
		for _, r := range got {
			if values[string(r.Value)] {
				return fmt.Errorf("consumed twice: %s", r.Value)
			}
			values[string(r.Value)] = true
		}
	}
	if len(values) != 100 {
		return fmt.Errorf("%d messages consumed", len(values))
	}
	return nil
}

type member struct {
	client   *kgo.Client
	mu       sync.Mutex
	assigned map[int32]bool
	seen     map[string]bool
	events   int
	done     chan struct{}
	cancel   context.CancelFunc
}

func (c *cluster) member(topic, name string, options ...kgo.Opt) *member {
	m := &member{assigned: map[int32]bool{}, seen: map[string]bool{}, done: make(chan struct{})}
	note := func(given bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range changed[topic] {
				if given {
					m.assigned[p] = true
				} else {
					delete(m.assigned, p)
				}
			}
			if given {
				m.events++
			}
		}
	}
	m.client = c.client(append([]kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumerGroup(name), kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)), kgo.OnPartitionsLost(note(false))}, options...)...)
	ctx, cancel := context.WithCancel(c.ctx)
	m.cancel = cancel
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			for _, r := range m.client.PollFetches(ctx).Records() {
				m.mu.Lock()
				m.seen[string(r.Value)] = true
				m.mu.Unlock()
			}
		}
	}()
	return m
}

// partitions tells what the member owns now, and how often it was given something.
func (m *member) partitions() (owned []int, events int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.assigned {
		owned = append(owned, int(p))
	}
	sort.Ints(owned)
	return owned, m.events
}

// end stops the member. A static one leaves no group by it.
func (m *member) end() {
	m.cancel()
	<-m.done
	m.client.Close()
}

func until(what string, holds func() bool) error {
	for end := time.Now().Add(wait); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("never happened: " + what)
		}
	}
	return nil
}

func share(count int, members ...*member) func() bool {
	return func() bool {
		all, sum := map[int]bool{}, 0
		for _, m := range members {
			owned, _ := m.partitions()
			if len(owned) == 0 {
				return false
			}
			for _, p := range owned {
				all[p] = true
			}
			sum += len(owned)
		}
		return sum == count && len(all) == count
	}
}

func rebalance(c *cluster) error {
	topic, name := c.topic(6), fresh("g")
	first := c.member(topic, name)
	if err := until("the first member has all partitions", share(6, first)); err != nil {
		return err
	}
	if err := c.send(topic, numbered(300)); err != nil {
		return err
	}
	second := c.member(topic, name)
	defer second.end()
	if err := until("two members share the partitions", share(6, first, second)); err != nil {
		return err
	}
	third := c.member(topic, name)
	defer third.end()
	if err := until("three members share the partitions", share(6, first, second, third)); err != nil {
		return err
	}
	more := numbered(300)
	for i := range more {
		more[i].value += "b"
	}
	if err := c.send(topic, more); err != nil {
		return err
	}
	first.end()
	if err := until("the two that stay share the partitions", share(6, second, third)); err != nil {
		return err
	}
	return until("everything is consumed", func() bool {
		all := map[string]bool{}
		for _, m := range []*member{first, second, third} {
			m.mu.Lock()
			for v := range m.seen {
				all[v] = true
			}
			m.mu.Unlock()
		}
		return len(all) == 600
	})
}

func staticMember(c *cluster) error {
	topic, name := c.topic(4), fresh("g")
	a := c.member(topic, name, kgo.InstanceID("a"))
	defer a.end()
	b := c.member(topic, name, kgo.InstanceID("b"))
	if err := until("both have partitions", share(4, a, b)); err != nil {
		return err
	}
	before, _ := b.partitions()
	_, events := a.partitions()
	b.end()
	again := c.member(topic, name, kgo.InstanceID("b"))
	defer again.end()
	if err := until("the member is back", func() bool {
		now, _ := again.partitions()
		return fmt.Sprint(now) == fmt.Sprint(before)
	}); err != nil {
		return err
	}
	if _, after := a.partitions(); after != events {
		return fmt.Errorf("the other member saw %d rebalances", after-events)
	}
	return nil
}

func manyPartitions(c *cluster) error {
	topic := c.topic(100)
	messages := make([]message, 5000)
	for i := range messages {
		messages[i] = message{fmt.Sprintf("k%d", i%250), strconv.Itoa(i)}
	}
	if err := c.send(topic, messages); err != nil {
		return err
	}
	got, err := c.read(topic, len(messages))
	if err != nil {
		return err
	}
	last := map[string]int{}
	for _, r := range got {
		n := must(strconv.Atoi(string(r.Value)))
		if before, ok := last[string(r.Key)]; ok && before >= n {
			return fmt.Errorf("key %s is out of order", r.Key)
		}
		last[string(r.Key)] = n
	}
	return nil
}

func metadata(c *cluster) error {
	topic := fresh("go-auto")
	if err := c.throughAndBack(topic, []message{{"", "created by being produced to"}}, kgo.AllowAutoTopicCreation()); err != nil {
		return err
	}
	listed := must(c.admin.Metadata(c.ctx, topic))
	if !listed.Topics.Has(topic) || listed.Cluster == "" || len(listed.Brokers) != 1 {
		return fmt.Errorf("metadata: %+v", listed)
	}
	created := must(c.admin.CreateTopics(c.ctx, 1, 1, nil, "not a legal name!"))
	if err := created.Error(); !errors.Is(err, kerr.InvalidTopicException) {
		return fmt.Errorf("wanted INVALID_TOPIC_EXCEPTION, got %v", err)
	}
	return nil
}

func run(c *cluster, name string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	test, known := cases[name]
	if !known {
		return errors.New("no such case")
	}
	return test(c)
}

func main() {
	arguments := os.Args[1:]
	if len(arguments) == 1 && arguments[0] == "--list" {
		for _, name := range names {
			fmt.Println(name)
		}
		return
	}
	client := must(kgo.NewClient(kgo.SeedBrokers(arguments[0])))
	defer client.Close()
	c := &cluster{arguments[0], kadm.NewClient(client), context.Background()}
	wanted := arguments[1:]
	if len(wanted) == 0 {
		wanted = names
	}
	failed := 0
	for _, name := range wanted {
		if err := run(c, name); err != nil {
			failed++
			fmt.Printf("FAIL %s: %v\n", name, err)
		} else {
			fmt.Printf("ok %s\n", name)
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}
