// The client cases with franz-go. See ../../README.md.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"polylogue/clientcases/shared"
)

var codecs = map[string]kgo.CompressionCodec{"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}

var acks = map[int16]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}

type client struct {
	bootstrap string
	base      *kgo.Client
	admin     *kadm.Client
	ctx       context.Context
}

func connect(bootstrap string) (shared.Client, error) {
	base, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	return &client{bootstrap, base, kadm.NewClient(base), context.Background()}, err
}

func (c *client) with(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.bootstrap)}, options...)...)
}

func (c *client) NotOffered() map[string]string { return nil }

func (c *client) Create(topic string, partitions int) error {
	created, err := c.admin.CreateTopics(c.ctx, int32(partitions), 1, nil, topic)
	return errors.Join(err, created.Error())
}

func (c *client) Delete(topic string) error {
	deleted, err := c.admin.DeleteTopics(c.ctx, topic)
	return errors.Join(err, deleted.Error())
}

// Topics asks by itself: kadm may answer from metadata that it cached seconds ago.
func (c *client) Topics() (names []string, err error) {
	listed, err := kmsg.NewPtrMetadataRequest().RequestWith(c.ctx, c.base)
	if err != nil {
		return nil, err
	}
	for _, topic := range listed.Topics {
		names = append(names, *topic.Topic)
	}
	return names, nil
}

func (c *client) Cluster() (string, int, error) {
	metadata, err := c.admin.BrokerMetadata(c.ctx)
	return metadata.Cluster, len(metadata.Brokers), err
}

// Send keeps to what the client does unasked where nothing else is wanted: it is idempotent whenever all must acknowledge.
func (c *client) Send(topic string, records []shared.Record, with shared.Settings) error {
	options := []kgo.Opt{kgo.AllowAutoTopicCreation(), kgo.RequiredAcks(acks[with.Acks]),
		kgo.ProducerBatchCompression(codecs[with.Codec]), kgo.ProducerBatchMaxBytes(5_000_000)}
	if with.Acks != -1 {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if with.Idempotent {
		options = append(options, kgo.MaxBufferedRecords(50))
	}
	producer, err := c.with(options...)
	if err != nil {
		return err
	}
	defer producer.Close()
	messages := make([]*kgo.Record, len(records))
	for i, r := range records {
		messages[i] = &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value, Timestamp: r.Time}
		for _, h := range r.Headers {
			messages[i].Headers = append(messages[i].Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	return producer.ProduceSync(c.ctx, messages...).FirstErr()
}

// reader reads what its consumer is given, until it is closed.
type reader struct {
	consumer *kgo.Client
	topic    string
	out      chan shared.Record
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

func (c *client) reader(topic string, options ...kgo.Opt) (shared.Reader, error) {
	consumer, err := c.with(options...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(c.ctx)
	r := &reader{consumer: consumer, topic: topic, out: make(chan shared.Record), cancel: cancel}
	r.running.Go(func() {
		defer close(r.out)
		for ctx.Err() == nil {
			for _, record := range consumer.PollFetches(ctx).Records() {
				select {
				case r.out <- received(record):
				case <-ctx.Done():
					return
				}
			}
		}
	})
	return r, nil
}

func received(record *kgo.Record) shared.Record {
	r := shared.Record{Key: record.Key, Value: record.Value, Time: record.Timestamp, Partition: record.Partition, Offset: record.Offset}
	for _, h := range record.Headers {
		r.Headers = append(r.Headers, shared.Header{Key: h.Key, Value: h.Value})
	}
	return r
}

func (c *client) Reader(topic string, partitions int, from int64) (shared.Reader, error) {
	at := kgo.NewOffset().At(from)
	switch from {
	case shared.Earliest:
		at = kgo.NewOffset().AtStart()
	case shared.Latest:
		at = kgo.NewOffset().AtEnd()
	}
	offsets := map[int32]kgo.Offset{}
	for p := range int32(partitions) {
		offsets[p] = at
	}
	return c.reader(topic, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))
}

// Group has an eager balancer: a member receives its whole assignment on every change.
func (c *client) Group(topic, name string, member *shared.Member, instance string) (shared.Reader, error) {
	options := []kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumerGroup(name), kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	if instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	if member == nil {
		return c.reader(topic, append(options, kgo.DisableAutoCommit())...)
	}
	taken := func(context.Context, *kgo.Client, map[string][]int32) { member.Taken() }
	given := func(_ context.Context, _ *kgo.Client, all map[string][]int32) { member.Given(all[topic]) }
	options = append(options, kgo.OnPartitionsAssigned(given), kgo.OnPartitionsRevoked(taken), kgo.OnPartitionsLost(taken))
	return c.reader(topic, options...)
}

func (r *reader) Records() <-chan shared.Record { return r.out }

func (r *reader) Commit(records []shared.Record) error {
	committed := make([]*kgo.Record, len(records))
	for i, record := range records {
		committed[i] = &kgo.Record{Topic: r.topic, Partition: record.Partition, Offset: record.Offset}
	}
	return r.consumer.CommitRecords(context.Background(), committed...)
}

// Close leaves the group, unless the member is a static one.
func (r *reader) Close() error {
	r.cancel()
	r.running.Wait()
	r.consumer.Close()
	return nil
}

func (c *client) Bounds(topic string) (int64, int64, error) {
	first, err := c.admin.ListStartOffsets(c.ctx, topic)
	next, also := c.admin.ListEndOffsets(c.ctx, topic)
	from, _ := first.Lookup(topic, 0)
	to, _ := next.Lookup(topic, 0)
	return from.Offset, to.Offset, errors.Join(err, also, from.Err, to.Err)
}

// At undoes what kadm does where there is no such message: it tells the offset behind the last one then.
func (c *client) At(topic string, at time.Time) (int64, error) {
	listed, err := c.admin.ListOffsetsAfterMilli(c.ctx, at.UnixMilli(), topic)
	found, _ := listed.Lookup(topic, 0)
	_, next, also := c.Bounds(topic)
	if err = errors.Join(err, found.Err, also); err == nil && found.Offset == next {
		return -1, nil
	}
	return found.Offset, err
}

func (c *client) TooLarge(err error) bool { return errors.Is(err, kerr.MessageTooLarge) }

func (c *client) BadName(err error) bool { return errors.Is(err, kerr.InvalidTopicException) }

func main() { shared.Main(connect) }
