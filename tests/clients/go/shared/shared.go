// Package shared has the client cases over an adapter of a client library; franz-go, sarama and kafka-go have one each. See ../../README.md.
package shared

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	wait = 60 * time.Second
	// How long nothing must come to be called nothing.
	quiet = time.Second

	// Earliest and Latest are offsets to read from.
	Earliest, Latest = -2, -1
)

// Header is one header of a record; a nil value is null.
type Header struct {
	Key   string
	Value []byte
}

// Record is a message on its way in or out. A nil key or value is null; a zero time is now.
type Record struct {
	Key, Value []byte
	Headers    []Header
	Time       time.Time
	Partition  int32
	Offset     int64
}

// Settings of a producer.
type Settings struct {
	Acks       int16
	Codec      string
	Idempotent bool
}

// Reader gives records as they come.
type Reader interface {
	Records() <-chan Record
	// Commit commits the offsets behind these records and comes back when that is done.
	Commit([]Record) error
	Close() error
}

// Client is an adapter of a client library. See ../../README.md for what NotOffered tells.
type Client interface {
	NotOffered() map[string]string
	Create(topic string, partitions int) error
	Delete(topic string) error
	Topics() ([]string, error)
	// Cluster gives the cluster's id and the number of brokers.
	Cluster() (string, int, error)
	Send(topic string, records []Record, with Settings) error
	// Reader reads without a group, from Earliest, Latest or an offset of partition 0.
	Reader(topic string, partitions int, from int64) (Reader, error)
	// Group reads as a member of a group. If member is not nil, it receives the assignments, and offsets are committed automatically.
	Group(topic, group string, member *Member, instance string) (Reader, error)
	// Bounds gives the first and the next offset of partition 0.
	Bounds(topic string) (int64, int64, error)
	// At gives the first offset of partition 0 at or after a time, or -1.
	At(topic string, at time.Time) (int64, error)
	TooLarge(error) bool
	BadName(error) bool
}

type run struct{ Client }

var names = []string{"smoke", "produce_acks", "codecs", "headers", "tombstones", "large", "idempotent", "seek", "by_time",
	"group", "rebalance", "static_member", "many_partitions", "metadata"}

var cases = map[string]func(run) error{
	"smoke": smoke, "produce_acks": produceAcks, "codecs": codecs, "headers": headers, "tombstones": tombstones,
	"large": large, "idempotent": idempotent, "seek": seek, "by_time": byTime, "group": group, "rebalance": rebalance,
	"static_member": staticMember, "many_partitions": manyPartitions, "metadata": metadata,
}

// Must stops the case with an error.
func Must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func (c run) topic(partitions int) string {
	name := Fresh("go")
	if err := c.Create(name, partitions); err != nil {
		panic(err)
	}
	return name
}

// without tells whether the client does not offer this part of a case.
func (c run) without(part string) bool {
	return c.NotOffered()[part] != ""
}

func numbered(count int, tail string) []Record {
	out := make([]Record, count)
	for i := range out {
		out[i] = Record{Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d%s", i, tail)}
	}
	return out
}

func take(reader Reader, count int) ([]Record, error) {
	end := time.After(wait)
	var out []Record
	for len(out) < count {
		select {
		case r, open := <-reader.Records():
			if !open {
				return out, errors.New("the reader ended")
			}
			out = append(out, r)
		case <-end:
			return out, fmt.Errorf("only %d of %d messages came", len(out), count)
		}
	}
	return out, nil
}

func (c run) read(topic string, count, partitions int) ([]Record, error) {
	reader, err := c.Reader(topic, partitions, Earliest)
	if err != nil {
		return nil, err
	}
	got, err := take(reader, count)
	return got, errors.Join(err, reader.Close())
}

func equal(a, b []byte) bool {
	return bytes.Equal(a, b) && (a == nil) == (b == nil)
}

func (c run) throughAndBack(topic string, sent []Record, with Settings) error {
	if err := c.Send(topic, sent, with); err != nil {
		return err
	}
	got, err := c.read(topic, len(sent), 1)
	if err != nil {
		return err
	}
	for i, r := range got {
		if !equal(r.Key, sent[i].Key) || !equal(r.Value, sent[i].Value) {
			return fmt.Errorf("message %d: wanted %q %q, got %q %q", i, sent[i].Key, sent[i].Value, r.Key, r.Value)
		}
		if r.Offset != int64(i) {
			return fmt.Errorf("message %d has offset %d", i, r.Offset)
		}
	}
	return nil
}

func smoke(c run) error {
	topic := c.topic(1)
	if err := c.throughAndBack(topic, numbered(100, ""), Settings{Acks: -1}); err != nil {
		return err
	}
	if err := c.Delete(topic); err != nil {
		return err
	}
	if slices.Contains(Must(c.Topics()), topic) {
		return errors.New("the topic is still listed")
	}
	return nil
}

func produceAcks(c run) error {
	for _, acks := range []int16{0, 1, -1} {
		if err := c.throughAndBack(c.topic(1), numbered(50, ""), Settings{Acks: acks}); err != nil {
			return fmt.Errorf("acks %d: %w", acks, err)
		}
	}
	return nil
}

func codecs(c run) error {
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		sent := numbered(500, strings.Repeat(".", 200))
		if err := c.throughAndBack(c.topic(1), sent, Settings{Acks: -1, Codec: codec}); err != nil {
			return fmt.Errorf("%s: %w", codec, err)
		}
	}
	return nil
}

func headers(c run) error {
	topic := c.topic(1)
	sent := []Header{{"a", []byte("1")}, {"a", []byte("2")}, {"empty", []byte{}}, {"null", nil}, {"a", []byte("3")}}
	if c.without("headers/empty") {
		sent = slices.Delete(sent, 2, 3)
	}
	if err := c.Send(topic, []Record{{Value: []byte("v"), Headers: sent}}, Settings{Acks: -1}); err != nil {
		return err
	}
	got, err := c.read(topic, 1, 1)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(got[0].Headers, sent, func(a, b Header) bool { return a.Key == b.Key && equal(a.Value, b.Value) }) {
		return fmt.Errorf("wanted %q, got %q", sent, got[0].Headers)
	}
	return nil
}

func tombstones(c run) error {
	sent := []Record{{Key: []byte("k")}, {Value: []byte("v")}, {}, {Key: []byte{}, Value: []byte{}}}
	if c.without("tombstones/empty") {
		sent = sent[:3]
	}
	return c.throughAndBack(c.topic(1), sent, Settings{Acks: -1})
}

func large(c run) error {
	value := make([]byte, 1_000_000)
	Must(rand.Read(value))
	topic := c.topic(1)
	if err := c.throughAndBack(topic, []Record{{Value: value}}, Settings{Acks: -1}); err != nil {
		return err
	}
	err := c.Send(topic, []Record{{Value: make([]byte, 2_000_000)}}, Settings{Acks: -1})
	if err == nil || !c.TooLarge(err) {
		return fmt.Errorf("wanted MESSAGE_TOO_LARGE, got %v", err)
	}
	return nil
}

func idempotent(c run) error {
	topic := c.topic(3)
	sent := numbered(5000, "")
	if err := c.Send(topic, sent, Settings{Acks: -1, Idempotent: true}); err != nil {
		return err
	}
	got, err := c.read(topic, len(sent), 3)
	if err != nil {
		return err
	}
	last, seen := map[int32]int{}, map[string]bool{}
	for _, r := range got {
		n := Must(strconv.Atoi(string(r.Value[1:])))
		if before, ok := last[r.Partition]; ok && before >= n {
			return fmt.Errorf("partition %d is out of order", r.Partition)
		}
		last[r.Partition], seen[string(r.Value)] = n, true
	}
	if len(seen) != len(sent) {
		return fmt.Errorf("%d of %d messages, the others twice", len(seen), len(sent))
	}
	return nil
}

func seek(c run) error {
	topic := c.topic(1)
	if err := c.Send(topic, numbered(100, ""), Settings{Acks: -1}); err != nil {
		return err
	}
	for _, offset := range []int64{0, 37, 99} {
		reader := Must(c.Reader(topic, 1, offset))
		got, err := take(reader, 1)
		if err = errors.Join(err, reader.Close()); err != nil || got[0].Offset != offset {
			return fmt.Errorf("offset %d: %v %v", offset, got, err)
		}
	}
	reader := Must(c.Reader(topic, 1, Latest))
	select {
	case r := <-reader.Records():
		return fmt.Errorf("message %d came from after the end", r.Offset)
	case <-time.After(quiet):
	}
	if err := c.Send(topic, []Record{{Value: []byte("last")}}, Settings{Acks: -1}); err != nil {
		return err
	}
	got, err := take(reader, 1)
	if err = errors.Join(err, reader.Close()); err != nil || string(got[0].Value) != "last" {
		return fmt.Errorf("after the end: %v %v", got, err)
	}
	if first, next, err := c.Bounds(topic); err != nil || first != 0 || next != 101 {
		return fmt.Errorf("bounds %d %d %v", first, next, err)
	}
	return nil
}

func byTime(c run) error {
	topic := c.topic(1)
	start := time.Now().Add(-100 * time.Second).Truncate(time.Millisecond)
	sent := numbered(100, "")
	for i := range sent {
		sent[i].Time = start.Add(time.Duration(i) * 10 * time.Millisecond)
	}
	if err := c.Send(topic, sent, Settings{Acks: -1, Codec: "gzip"}); err != nil {
		return err
	}
	for after, offset := range map[int64]int64{0: 0, 500: 50, 501: 51, -1000: 0, 990: 99, 1_000_000: -1} {
		found, err := c.At(topic, start.Add(time.Duration(after)*time.Millisecond))
		if err != nil || found != offset {
			return fmt.Errorf("offset for %d ms: wanted %d, got %d (%v)", after, offset, found, err)
		}
	}
	return nil
}

func group(c run) error {
	topic, name := c.topic(2), Fresh("g")
	if err := c.Send(topic, numbered(100, ""), Settings{Acks: -1}); err != nil {
		return err
	}
	values := map[string]bool{}
	for _, count := range []int{60, 40} {
		reader := Must(c.Group(topic, name, nil, ""))
		got, err := take(reader, count)
		if err == nil {
			err = reader.Commit(got)
		}
		if err = errors.Join(err, reader.Close()); err != nil {
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

// Member consumes until it is stopped, and notes what it was given.
type Member struct {
	reader   Reader
	mu       sync.Mutex
	assigned []int32
	seen     map[string]bool
	events   int
	done     chan struct{}
}

// Given is called with all that the member owns from now on.
func (m *Member) Given(partitions []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.assigned = slices.Sorted(slices.Values(partitions))
	m.events++
}

// Taken is called before what it owns goes to others.
func (m *Member) Taken() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.assigned = nil
}

func (c run) member(topic, name, instance string) *Member {
	m := &Member{seen: map[string]bool{}, done: make(chan struct{})}
	m.reader = Must(c.Group(topic, name, m, instance))
	go func() {
		defer close(m.done)
		for r := range m.reader.Records() {
			m.mu.Lock()
			m.seen[string(r.Value)] = true
			m.mu.Unlock()
		}
	}()
	return m
}

func (m *Member) stop() error {
	err := m.reader.Close()
	<-m.done
	return err
}

func (m *Member) partitions() ([]int32, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.assigned, m.events
}

func until(what string, holds func() bool) error {
	for end := time.Now().Add(wait); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("never happened: " + what)
		}
	}
	return nil
}

func shared(count int, members ...*Member) func() bool {
	return func() bool {
		all, sum := map[int32]bool{}, 0
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

func rebalance(c run) error {
	topic, name := c.topic(6), Fresh("g")
	first := c.member(topic, name, "")
	if err := until("the first member has all partitions", shared(6, first)); err != nil {
		return err
	}
	if err := c.Send(topic, numbered(300, ""), Settings{Acks: -1}); err != nil {
		return err
	}
	second := c.member(topic, name, "")
	if err := until("two members share the partitions", shared(6, first, second)); err != nil {
		return err
	}
	third := c.member(topic, name, "")
	if err := until("three members share the partitions", shared(6, first, second, third)); err != nil {
		return err
	}
	if err := c.Send(topic, numbered(300, "b"), Settings{Acks: -1}); err != nil {
		return err
	}
	if err := first.stop(); err != nil {
		return err
	}
	if err := until("the two that stay share the partitions", shared(6, second, third)); err != nil {
		return err
	}
	all := func() bool {
		values := map[string]bool{}
		for _, m := range []*Member{first, second, third} {
			m.mu.Lock()
			for v := range m.seen {
				values[v] = true
			}
			m.mu.Unlock()
		}
		return len(values) == 600
	}
	return errors.Join(until("everything is consumed", all), second.stop(), third.stop())
}

func staticMember(c run) error {
	topic, name := c.topic(4), Fresh("g")
	a, b := c.member(topic, name, "a"), c.member(topic, name, "b")
	if err := until("both have partitions", shared(4, a, b)); err != nil {
		return err
	}
	before, _ := b.partitions()
	_, events := a.partitions()
	if err := b.stop(); err != nil {
		return err
	}
	again := c.member(topic, name, "b")
	back := func() bool {
		now, _ := again.partitions()
		return slices.Equal(now, before)
	}
	if err := until("the member is back", back); err != nil {
		return err
	}
	if _, after := a.partitions(); after != events {
		return fmt.Errorf("the other member saw %d rebalances", after-events)
	}
	return errors.Join(a.stop(), again.stop())
}

func manyPartitions(c run) error {
	topic := c.topic(100)
	sent := make([]Record, 5000)
	for i := range sent {
		sent[i] = Record{Key: fmt.Appendf(nil, "k%d", i%250), Value: strconv.AppendInt(nil, int64(i), 10)}
	}
	if err := c.Send(topic, sent, Settings{Acks: -1}); err != nil {
		return err
	}
	got, err := c.read(topic, len(sent), 100)
	if err != nil {
		return err
	}
	last := map[string]int{}
	for _, r := range got {
		n := Must(strconv.Atoi(string(r.Value)))
		if before, ok := last[string(r.Key)]; ok && before >= n {
			return fmt.Errorf("key %s is out of order", r.Key)
		}
		last[string(r.Key)] = n
	}
	if len(last) != 250 {
		return fmt.Errorf("%d keys", len(last))
	}
	return nil
}

func metadata(c run) error {
	topic := Fresh("go-auto")
	if err := c.throughAndBack(topic, []Record{{Value: []byte("created by being produced to")}}, Settings{Acks: -1}); err != nil {
		return err
	}
	if !slices.Contains(Must(c.Topics()), topic) {
		return errors.New("the topic is not listed")
	}
	if id, brokers, err := c.Cluster(); err != nil || id == "" || brokers != 1 {
		return fmt.Errorf("cluster %q with %d brokers, %v", id, brokers, err)
	}
	if err := c.Create("not a legal name!", 1); err == nil || !c.BadName(err) {
		return fmt.Errorf("wanted INVALID_TOPIC_EXCEPTION, got %v", err)
	}
	return nil
}

func (c run) one(name string) (err error) {
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

// Main runs the cases that the arguments name, or all that the client offers, and ends the process.
func Main(connect func(bootstrap string) (Client, error)) {
	arguments := os.Args[1:]
	if len(arguments) == 1 && arguments[0] == "--list" {
		fmt.Println(strings.Join(names, "\n"))
		return
	}
	c := run{Must(connect(arguments[0]))}
	notOffered := c.NotOffered()
	for what, why := range notOffered {
		fmt.Printf("not offered %s: %s\n", what, why)
	}
	wanted := arguments[1:]
	if len(wanted) == 0 {
		wanted = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return notOffered[name] != "" })
	}
	failed := 0
	for _, name := range wanted {
		if err := c.one(name); err != nil {
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
