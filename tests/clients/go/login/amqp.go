package main

import (
	"bytes"
	"crypto/tls"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"
	"polylogue/clientcases/shared"
)

func (p *place) dial(secured *tls.Config, how amqp.Authentication) (*amqp.Connection, error) {
	return amqp.DialConfig("amqps://"+p.amqp+"/", amqp.Config{TLSClientConfig: secured, SASL: []amqp.Authentication{how}})
}

// publishAndGet sends a message of many frames through a queue of its own.
func publishAndGet(connection *amqp.Connection, err error) {
	shared.Done(err)
	defer connection.Close()
	channel := shared.Must(connection.Channel())
	queue := shared.Must(channel.QueueDeclare("", false, false, true, false, nil)).Name
	body := bytes.Repeat([]byte("x"), 1_000_000)
	shared.Done(channel.Confirm(false))
	confirmation := shared.Must(channel.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{Body: body}))
	shared.Check(confirmation.Wait(), "not confirmed")
	got, found, err := channel.Get(queue, true)
	shared.Done(err)
	shared.Check(found && bytes.Equal(got.Body, body), "%d bytes came", len(got.Body))
}

func amqp091(p *place) {
	publishAndGet(p.dial(p.secured(), &amqp.PlainAuth{Username: user, Password: password}))
	publishAndGet(p.dial(p.secured(), &amqp.AMQPlainAuth{Username: user, Password: password}))
}

func refused(how string, err error) {
	var closed *amqp.Error
	is := errors.Is(err, amqp.ErrCredentials) || errors.As(err, &closed) && closed.Code == amqp.AccessRefused
	shared.Check(is, "not refused by %s: %v", how, err)
}

func amqp091Wrong(p *place) {
	for _, how := range []amqp.Authentication{
		&amqp.PlainAuth{Username: user, Password: "wrong"}, &amqp.AMQPlainAuth{Username: user, Password: "wrong"},
	} {
		_, err := p.dial(p.secured(), how)
		refused(how.Mechanism(), err)
	}
}

// amqp091Certificate says who it is by its certificate; who shows none cannot.
func amqp091Certificate(p *place) {
	p.manage("users/"+robot, `{"password_hash": "", "tags": ""}`)
	p.manage("permissions/%2F/"+robot, `{"configure": ".*", "write": ".*", "read": ".*"}`)
	publishAndGet(p.dial(p.secured(p.certificate), &amqp.ExternalAuth{}))
	_, err := p.dial(p.secured(), &amqp.ExternalAuth{})
	refused("EXTERNAL", err)
}

func amqp091Untrusted(p *place) {
	_, err := p.dial(&tls.Config{}, &amqp.PlainAuth{Username: user, Password: password})
	untrusted(err)
}
