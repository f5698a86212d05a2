// The client cases with sarama. See ../../README.md.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"polylogue/clientcases/shared"
)

var codecs = map[string]sarama.CompressionCodec{"": sarama.CompressionNone, "none": sarama.CompressionNone,
	"gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD}

type client struct {
	seeds []string
	sarama.Client
	admin sarama.ClusterAdmin
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Consumer.MaxWaitTime = 200 * time.Millisecond
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Group.Session.Timeout = 10 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	c.Consumer.Group.Rebalance.Retry.Backoff = 100 * time.Millisecond
	return c
}

func connect(bootstrap string) (shared.Client, error) {
	seeds := []string{bootstrap}
	base, err := sarama.NewClient(seeds, config())
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(base)
	return &client{seeds, base, admin}, err
}

func (c *client) NotOffered() map[string]string {
	return map[string]string{"idempotent/pipelined": "its idempotent producer insists on one request at a time"}
}

func (c *client) Create(topic string, partitions int) error {
	return c.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1}, false)
}

func (c *client) Delete(topic string) error { return c.admin.DeleteTopic(topic) }

func (c *client) Topics() (names []string, err error) {
	listed, err := c.admin.ListTopics()
	for name := range listed {
		names = append(names, name)
	}
	return names, err
}

func (c *client) Cluster() (string, int, error) {
	controller, err := c.Controller()
	if err != nil {
		return "", 0, err
	}
	metadata, err := controller.GetMetadata(&sarama.MetadataRequest{Version: 5, Topics: []string{}})
	if err != nil || metadata.ClusterID == nil {
		return "", 0, err
	}
	return *metadata.ClusterID, len(metadata.Brokers), nil
}

// encoder tells null from empty.
func encoder(b []byte) sarama.Encoder {
	if b == nil {
		return nil
	}
	return sarama.ByteEncoder(b)
}

func (c *client) Send(topic string, records []shared.Record, with shared.Settings) error {
	settings := config()
	settings.Producer.RequiredAcks = sarama.RequiredAcks(with.Acks)
	settings.Producer.Compression = codecs[with.Codec]
	settings.Producer.MaxMessageBytes = 5_000_000
	settings.Producer.Return.Successes = true
	if with.Idempotent {
		settings.Producer.Idempotent, settings.Net.MaxOpenRequests = true, 1
		settings.Producer.Flush.MaxMessages = 10
	}
	producer, err := sarama.NewSyncProducer(c.seeds, settings)
	if err != nil {
		return err
	}
	messages := make([]*sarama.ProducerMessage, len(records))
	for i, r := range records {
		messages[i] = &sarama.ProducerMessage{Topic: topic, Key: encoder(r.Key), Value: encoder(r.Value), Timestamp: r.Time}
		for _, h := range r.Headers {
			messages[i].Headers = append(messages[i].Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
	}
	return errors.Join(producer.SendMessages(messages), producer.Close())
}

func record(m *sarama.ConsumerMessage) shared.Record {
	r := shared.Record{Key: m.Key, Value: m.Value, Partition: m.Partition, Offset: m.Offset}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, shared.Header{Key: string(h.Key), Value: h.Value})
	}
	return r
}

// reader reads assigned partitions.
type reader struct {
	consumer sarama.Consumer
	parts    []sarama.PartitionConsumer
	out      chan shared.Record
	running  sync.WaitGroup
}

func (c *client) Reader(topic string, partitions int, from int64) (shared.Reader, error) {
	consumer, err := sarama.NewConsumer(c.seeds, config())
	if err != nil {
		return nil, err
	}
	r := &reader{consumer: consumer, out: make(chan shared.Record)}
	for p := range int32(partitions) {
		part, err := consumer.ConsumePartition(topic, p, from)
		if err != nil {
			return nil, err
		}
		r.parts = append(r.parts, part)
		r.running.Go(func() {
			for m := range part.Messages() {
				r.out <- record(m)
			}
		})
	}
	return r, nil
}

func (r *reader) Records() <-chan shared.Record { return r.out }

func (r *reader) Commit([]shared.Record) error { return errors.New("there is no group") }

func (r *reader) Close() error {
	for _, part := range r.parts {
		part.AsyncClose()
	}
	go func() {
		r.running.Wait()
		close(r.out)
	}()
	for range r.out {
	}
	return r.consumer.Close()
}

// joined reads as a member of a group. Its methods Setup, Cleanup and ConsumeClaim are called by sarama.
type joined struct {
	group   sarama.ConsumerGroup
	topic   string
	member  *shared.Member
	out     chan shared.Record
	cancel  context.CancelFunc
	ended   chan error
	mu      sync.Mutex
	session sarama.ConsumerGroupSession
}

func (c *client) Group(topic, name string, member *shared.Member, instance string) (shared.Reader, error) {
	settings := config()
	settings.Consumer.Group.InstanceId = instance
	settings.Consumer.Offsets.AutoCommit.Enable = member != nil
	group, err := sarama.NewConsumerGroup(c.seeds, name, settings)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	j := &joined{group: group, topic: topic, member: member, out: make(chan shared.Record), cancel: cancel, ended: make(chan error, 1)}
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = group.Consume(ctx, []string{topic}, j)
		}
		close(j.out)
		j.ended <- err
	}()
	return j, nil
}

func (j *joined) Setup(session sarama.ConsumerGroupSession) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.session = session
	if j.member != nil {
		j.member.Given(session.Claims()[j.topic])
	}
	return nil
}

func (j *joined) Cleanup(sarama.ConsumerGroupSession) error {
	if j.member != nil {
		j.member.Taken()
	}
	return nil
}

func (j *joined) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, open := <-claim.Messages():
			if !open {
				return nil
			}
			select {
			case j.out <- record(m):
			case <-session.Context().Done():
				return nil
			}
			if j.member != nil {
				session.MarkMessage(m, "")
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (j *joined) Records() <-chan shared.Record { return j.out }

func (j *joined) Commit(records []shared.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range records {
		j.session.MarkOffset(j.topic, r.Partition, r.Offset+1, "")
	}
	j.session.Commit()
	return nil
}

func (j *joined) Close() error {
	j.cancel()
	err := <-j.ended
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, j.group.Close())
}

func (c *client) Bounds(topic string) (int64, int64, error) {
	first, err := c.GetOffset(topic, 0, sarama.OffsetOldest)
	next, also := c.GetOffset(topic, 0, sarama.OffsetNewest)
	return first, next, errors.Join(err, also)
}

func (c *client) At(topic string, at time.Time) (int64, error) {
	return c.GetOffset(topic, 0, at.UnixMilli())
}

func (c *client) TooLarge(err error) bool {
	var failed sarama.ProducerErrors
	if errors.As(err, &failed) {
		err = failed[0]
	}
	return errors.Is(err, sarama.ErrMessageSizeTooLarge)
}

func (c *client) BadName(err error) bool { return errors.Is(err, sarama.ErrInvalidTopic) }

func main() { shared.Main(connect) }
