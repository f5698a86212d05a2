package main

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"polylogue/clientcases/shared"
)

// mechanisms gives the ways to log in with a password.
func mechanisms(password string) []sasl.Mechanism {
	hidden := scram.Auth{User: user, Pass: password}
	return []sasl.Mechanism{plain.Auth{User: user, Pass: password}.AsMechanism(), hidden.AsSha256Mechanism(), hidden.AsSha512Mechanism()}
}

func (p *place) client(secured *tls.Config, options ...kgo.Opt) *kgo.Client {
	return shared.Must(kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(p.kafka), kgo.DialTLSConfig(secured)}, options...)...))
}

func (p *place) administrator() *kgo.Client {
	return p.client(p.secured(), kgo.SASL(mechanisms(password)...))
}

// topic makes a topic that a user may write to and read from, as a member of the group of the same name.
func (p *place) topic(ctx context.Context, reader string) string {
	base := p.administrator()
	defer base.Close()
	admin, name := kadm.NewClient(base), shared.Fresh("login")
	shared.Done(shared.Must(admin.CreateTopics(ctx, 1, 1, nil, name)).Error())
	acls := kadm.NewACLs().Allow("User:"+reader).AllowHosts().Topics(name).Groups(name).
		Operations(kadm.OpRead, kadm.OpWrite).ResourcePatternType(kadm.ACLPatternLiteral)
	for _, made := range shared.Must(admin.CreateACLs(ctx, acls)) {
		shared.Done(made.Err)
	}
	return name
}

// throughAndBack writes a message and reads it as a member of a group.
func throughAndBack(ctx context.Context, topic string, client func(...kgo.Opt) *kgo.Client) {
	producer := client()
	defer producer.Close()
	shared.Done(producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("hello")}).FirstErr())
	consumer := client(kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	fetched := consumer.PollFetches(ctx)
	shared.Done(fetched.Err())
	records := fetched.Records()
	shared.Check(len(records) == 1 && string(records[0].Value) == "hello", "%v came", records)
}

func franz(p *place) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	for _, mechanism := range mechanisms(password) {
		throughAndBack(ctx, p.topic(ctx, user), func(options ...kgo.Opt) *kgo.Client {
			return p.client(p.secured(), append(options, kgo.SASL(mechanism))...)
		})
	}
}

func franzWrong(p *place) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	for _, mechanism := range mechanisms("wrong") {
		client := p.client(p.secured(), kgo.SASL(mechanism))
		err := client.Ping(ctx)
		client.Close()
		shared.Check(errors.Is(err, kerr.SaslAuthenticationFailed), "not refused by %s: %v", mechanism.Name(), err)
	}
}

// franzCertificate says who it is by its certificate alone.
func franzCertificate(p *place) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	throughAndBack(ctx, p.topic(ctx, robot), func(options ...kgo.Opt) *kgo.Client {
		return p.client(p.secured(p.certificate), options...)
	})
}

func franzUntrusted(p *place) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	client := p.client(&tls.Config{}, kgo.SASL(mechanisms(password)...))
	defer client.Close()
	untrusted(client.Ping(ctx))
}
