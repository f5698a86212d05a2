// The AMQP cases with amqp091-go. See ../../README.md.
package main

import (
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"polylogue/clientcases/shared"
)

const (
	wait = 60 * time.Second
	// How long nothing must come to be called nothing.
	quiet = 300 * time.Millisecond
)

// place is where the cases connect to, and what they opened there.
type place struct {
	url  string
	open []*amqp.Connection
}

var cases = []shared.Named[*place]{
	{Name: "smoke", Run: smoke},
	{Name: "confirms", Run: confirms},
	{Name: "work_queue", Run: workQueue},
	{Name: "routing", Run: routing},
	{Name: "returns", Run: returns},
	{Name: "retry", Run: retry},
	{Name: "cancelled", Run: cancelled},
	{Name: "large", Run: large},
	{Name: "get", Run: get},
	{Name: "exclusive", Run: exclusive},
	{Name: "reconnect", Run: reconnect},
	{Name: "rpc", Run: rpc},
}

func (p *place) connect() *amqp.Connection {
	connection := shared.Must(amqp.Dial(p.url))
	p.open = append(p.open, connection)
	return connection
}

func (p *place) channel() *amqp.Channel {
	return shared.Must(p.connect().Channel())
}

func declare(channel *amqp.Channel, name string, durable bool, arguments amqp.Table) string {
	return shared.Must(channel.QueueDeclare(name, durable, false, false, false, arguments)).Name
}

func remove(channel *amqp.Channel, queues ...string) {
	for _, queue := range queues {
		shared.Must(channel.QueueDelete(queue, false, false, false))
	}
}

// send publishes to a queue by its name.
func send(channel *amqp.Channel, queue string, bodies ...string) {
	for _, body := range bodies {
		shared.Done(channel.Publish("", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)}))
	}
}

// next gives the next one of something, or stops the case.
func next[T any](what string, from <-chan T) T {
	select {
	case one, open := <-from:
		shared.Check(open, "ended instead of giving %s", what)
		return one
	case <-time.After(wait):
		panic("never came: " + what)
	}
}

func nothing[T any](what string, from <-chan T) {
	select {
	case one, open := <-from:
		shared.Check(!open, "%s: %v", what, one)
	case <-time.After(quiet):
	}
}

// take gives the bodies of so many deliveries, acknowledged, and which of them were redelivered.
func take(from <-chan amqp.Delivery, count int) (bodies []string, again []bool) {
	for range count {
		d := next("a message", from)
		shared.Done(d.Ack(false))
		bodies, again = append(bodies, string(d.Body)), append(again, d.Redelivered)
	}
	return bodies, again
}

func until(what string, holds func() bool) {
	for end := time.Now().Add(wait); !holds(); time.Sleep(20 * time.Millisecond) {
		shared.Check(time.Now().Before(end), "never happened: %s", what)
	}
}

func ready(channel *amqp.Channel, queue string) int {
	return shared.Must(channel.QueueDeclarePassive(queue, false, false, false, false, nil)).Messages
}

func numbers(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

func refused(err error, code int, text string) {
	closed, ok := err.(*amqp.Error)
	shared.Check(ok && closed.Code == code && strings.Contains(closed.Reason, text), "not refused with %d %s: %v", code, text, err)
}

func main() {
	connect := func(address string) *place { return &place{url: "amqp://guest:guest@" + address + "/"} }
	shared.MainNamed(cases, connect, func(p *place) {
		for _, connection := range p.open {
			connection.Close()
		}
		p.open = nil
	})
}
