// The client cases with kafka-go. See ../../README.md.
package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"polylogue/clientcases/shared"
)

const maxWait = 200 * time.Millisecond

var codecs = map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}

type client struct {
	*kafka.Client
	bootstrap string
	ctx       context.Context
}

func connect(bootstrap string) (shared.Client, error) {
	address, err := net.ResolveTCPAddr("tcp", bootstrap)
	return &client{&kafka.Client{Addr: address, Timeout: 10 * time.Second}, bootstrap, context.Background()}, err
}

func (c *client) NotOffered() map[string]string {
	return map[string]string{
		"headers/empty":    "its reader gives null for an empty value",
		"idempotent":       "its writer never asks for a producer id",
		"static_member":    "it never sends a group instance id",
		"tombstones/empty": "its reader gives null for an empty key or value",
	}
}

func (c *client) Create(topic string, partitions int) error {
	created, err := c.CreateTopics(c.ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}}})
	if err != nil {
		return err
	}
	return created.Errors[topic]
}

func (c *client) Delete(topic string) error {
	deleted, err := c.DeleteTopics(c.ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return deleted.Errors[topic]
}

// Topics asks on a connection of its own: a kafka.Client answers from what it has seen before.
func (c *client) Topics() (names []string, err error) {
	connection, err := kafka.DialContext(c.ctx, "tcp", c.bootstrap)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	partitions, err := connection.ReadPartitions()
	for _, partition := range partitions {
		names = append(names, partition.Topic)
	}
	return names, err
}

func (c *client) Cluster() (string, int, error) {
	metadata, err := c.Metadata(c.ctx, &kafka.MetadataRequest{})
	if err != nil {
		return "", 0, err
	}
	return metadata.ClusterID, len(metadata.Brokers), nil
}

func (c *client) Send(topic string, records []shared.Record, with shared.Settings) error {
	writer := &kafka.Writer{Addr: c.Addr, Topic: topic, Balancer: &kafka.Hash{}, RequiredAcks: kafka.RequiredAcks(with.Acks),
		Compression: codecs[with.Codec], BatchBytes: 5_000_000, BatchTimeout: 10 * time.Millisecond, AllowAutoTopicCreation: true}
	messages := make([]kafka.Message, len(records))
	for i, r := range records {
		messages[i] = kafka.Message{Key: r.Key, Value: r.Value, Time: r.Time}
		for _, h := range r.Headers {
			messages[i].Headers = append(messages[i].Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
	}
	return errors.Join(writer.WriteMessages(c.ctx, messages...), writer.Close())
}

// reader collects what readers of kafka-go give: one a partition, or one for a group.
type reader struct {
	readers []*kafka.Reader
	out     chan shared.Record
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	topic   string
}

func newReader(ctx context.Context, topic string) *reader {
	ctx, cancel := context.WithCancel(ctx)
	return &reader{out: make(chan shared.Record), ctx: ctx, cancel: cancel, topic: topic}
}

// pass gives on what one reader reads, until that or the context ends.
func pass(ctx context.Context, from *kafka.Reader, to chan<- shared.Record) {
	for {
		m, err := from.FetchMessage(ctx)
		if err != nil {
			return
		}
		r := shared.Record{Key: m.Key, Value: m.Value, Partition: int32(m.Partition), Offset: m.Offset}
		for _, h := range m.Headers {
			r.Headers = append(r.Headers, shared.Header{Key: h.Key, Value: h.Value})
		}
		select {
		case to <- r:
		case <-ctx.Done():
			return
		}
	}
}

func (r *reader) add(from *kafka.Reader) {
	r.readers = append(r.readers, from)
	r.running.Go(func() { pass(r.ctx, from, r.out) })
}

func (c *client) Reader(topic string, partitions int, from int64) (shared.Reader, error) {
	r := newReader(c.ctx, topic)
	for p := range partitions {
		part := c.partition(topic, p)
		// kafka-go has the two special offsets the other way round, and looks for the end when it first reads.
		if from == shared.Latest {
			_, end, err := c.Bounds(topic)
			if err != nil {
				return nil, err
			}
			from = end
		} else if from == shared.Earliest {
			from = kafka.FirstOffset
		}
		if err := part.SetOffset(from); err != nil {
			return nil, err
		}
		r.add(part)
	}
	return r, nil
}

func (c *client) partition(topic string, p int) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{Brokers: []string{c.bootstrap}, Topic: topic, Partition: p, MaxWait: maxWait,
		MaxBytes: 4_000_000})
}

func (r *reader) Records() <-chan shared.Record { return r.out }

func (r *reader) Commit(records []shared.Record) error {
	messages := make([]kafka.Message, len(records))
	for i, m := range records {
		messages[i] = kafka.Message{Topic: r.topic, Partition: int(m.Partition), Offset: m.Offset}
	}
	return r.readers[0].CommitMessages(r.ctx, messages...)
}

func (r *reader) Close() (err error) {
	r.cancel()
	r.running.Wait()
	close(r.out)
	for _, from := range r.readers {
		err = errors.Join(err, from.Close())
	}
	return err
}

// joined is a member that looks at its assignments, which a Reader of kafka-go does not show.
type joined struct {
	group   *kafka.ConsumerGroup
	out     chan shared.Record
	running sync.WaitGroup
}

func (c *client) Group(topic, name string, member *shared.Member, _ string) (shared.Reader, error) {
	if member == nil {
		r := newReader(c.ctx, topic)
		r.add(kafka.NewReader(kafka.ReaderConfig{Brokers: []string{c.bootstrap}, GroupID: name, Topic: topic, MaxWait: maxWait,
			StartOffset: kafka.FirstOffset, HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 10 * time.Second}))
		return r, nil
	}
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{ID: name, Brokers: []string{c.bootstrap}, Topics: []string{topic},
		StartOffset: kafka.FirstOffset, HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 10 * time.Second,
		JoinGroupBackoff: 100 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	j := &joined{group: group, out: make(chan shared.Record)}
	j.running.Go(func() {
		for {
			generation, err := group.Next(c.ctx)
			if errors.Is(err, kafka.ErrGroupClosed) {
				return
			}
			if err == nil {
				j.consume(c, topic, generation, member)
			}
		}
	})
	return j, nil
}

func (j *joined) consume(c *client, topic string, generation *kafka.Generation, member *shared.Member) {
	var owned []int32
	for _, assigned := range generation.Assignments[topic] {
		owned = append(owned, int32(assigned.ID))
		part := c.partition(topic, assigned.ID)
		j.running.Add(1)
		generation.Start(func(ctx context.Context) {
			defer j.running.Done()
			defer part.Close()
			if part.SetOffset(assigned.Offset) == nil {
				pass(ctx, part, j.out)
			}
			// Reading ends early only with the generation.
			<-ctx.Done()
			if next := part.Offset(); next >= 0 {
				_ = generation.CommitOffsets(map[string]map[int]int64{topic: {assigned.ID: next}})
			}
			member.Taken()
		})
	}
	member.Given(owned)
}

func (j *joined) Records() <-chan shared.Record { return j.out }

func (j *joined) Commit([]shared.Record) error { return errors.New("a member commits by itself") }

func (j *joined) Close() error {
	err := j.group.Close()
	j.running.Wait()
	close(j.out)
	return err
}

func (c *client) offsets(topic string, what kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
	listed, err := c.ListOffsets(c.ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {what}}})
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	return listed.Topics[topic][0], listed.Topics[topic][0].Error
}

func (c *client) Bounds(topic string) (int64, int64, error) {
	first, err := c.offsets(topic, kafka.FirstOffsetOf(0))
	last, also := c.offsets(topic, kafka.LastOffsetOf(0))
	return first.FirstOffset, last.LastOffset, errors.Join(err, also)
}

func (c *client) At(topic string, at time.Time) (int64, error) {
	found, err := c.offsets(topic, kafka.TimeOffsetOf(0, at))
	for offset := range found.Offsets {
		return offset, err
	}
	return -1, err
}

func (c *client) TooLarge(err error) bool {
	var failed kafka.WriteErrors
	if errors.As(err, &failed) {
		err = failed[0]
	}
	return errors.Is(err, kafka.MessageSizeTooLarge)
}

func (c *client) BadName(err error) bool { return errors.Is(err, kafka.InvalidTopic) }

func main() { shared.Main(connect) }
