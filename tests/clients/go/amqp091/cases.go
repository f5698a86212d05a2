package main

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"polylogue/clientcases/shared"
)

func smoke(p *place) {
	channel := p.channel()
	queue := declare(channel, shared.Fresh("smoke"), true, nil)
	shared.Done(channel.Confirm(false))
	for _, body := range numbers(0, 100) {
		confirmation := shared.Must(channel.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, ContentType: "text/plain", Headers: amqp.Table{"n": body}, Body: []byte(body)}))
		shared.Check(confirmation.Wait(), "refused: %s", body)
	}
	shared.Check(ready(channel, queue) == 100, "%d are ready", ready(channel, queue))
	from := shared.Must(channel.Consume(queue, "", false, false, false, false, nil))
	for _, body := range numbers(0, 100) {
		d := next("a message", from)
		shared.Check(string(d.Body) == body && d.Headers["n"] == body && d.ContentType == "text/plain" && !d.Redelivered, "%s came as %v", body, d)
		shared.Done(d.Ack(false))
	}
	remove(channel, queue)
	_, err := channel.QueueDeclarePassive(queue, false, false, false, false, nil)
	refused(err, amqp.NotFound, "NOT_FOUND - no queue '"+queue+"' in vhost '/'")
}

func confirms(p *place) {
	channel := p.channel()
	shared.Done(channel.Confirm(false))
	notices := channel.NotifyPublish(make(chan amqp.Confirmation, 1000))
	queue := declare(channel, shared.Fresh("confirms"), true, nil)
	send(channel, queue, numbers(0, 1000)...)
	for tag := uint64(1); tag <= 1000; tag++ {
		c := next("a confirmation", notices)
		shared.Check(c.Ack && c.DeliveryTag == tag, "%v instead of %d", c, tag)
	}
	shared.Check(ready(channel, queue) == 1000, "%d are ready", ready(channel, queue))
	full := declare(channel, shared.Fresh("full"), true, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	send(channel, full, "room", "no room")
	for _, taken := range []bool{true, false} {
		shared.Check(next("a confirmation", notices).Ack == taken, "one of two is refused")
	}
	remove(channel, queue, full)
}

func workQueue(p *place) {
	publisher, worker := p.channel(), p.channel()
	queue := declare(publisher, shared.Fresh("work"), true, nil)
	send(publisher, queue, numbers(0, 10)...)
	shared.Done(worker.Qos(3, 0, false))
	from := shared.Must(worker.Consume(queue, "", false, false, false, false, nil))
	var held []amqp.Delivery
	for range 3 {
		held = append(held, next("a message", from))
	}
	nothing("more than the prefetch came", from)
	shared.Done(held[1].Ack(true))
	held = append(held, next("a message", from), next("a message", from))
	nothing("more than the prefetch came", from)
	shared.Done(held[2].Nack(false, true))
	back := next("the message that was given back", from)
	shared.Check(string(back.Body) == "2" && back.Redelivered, "%v came instead", back)
	shared.Done(worker.Close())
	other := p.channel()
	bodies, again := take(shared.Must(other.Consume(queue, "", false, false, false, false, nil)), 8)
	shared.Check(slices.Equal(bodies, numbers(2, 10)), "%v came", bodies)
	shared.Check(slices.Equal(again, []bool{true, true, true, false, false, false, false, false}), "redelivered: %v", again)
	remove(other, queue)
}

func routing(p *place) {
	channel := p.channel()
	exchanges := map[string]string{}
	for _, kind := range []string{"topic", "fanout", "headers"} {
		exchanges[kind] = shared.Fresh(kind)
		shared.Done(channel.ExchangeDeclare(exchanges[kind], kind, true, false, false, false, nil))
	}
	queues := map[string]string{}
	for _, key := range []string{"a.*.c", "a.#", "x"} {
		queues[key] = shared.Must(channel.QueueDeclare("", false, false, true, false, nil)).Name
		shared.Done(channel.QueueBind(queues[key], key, exchanges["topic"], false, nil))
	}
	shared.Done(channel.ExchangeBind(exchanges["topic"], "", exchanges["fanout"], false, nil))
	shared.Done(channel.QueueBind(queues["x"], "", exchanges["headers"], false, amqp.Table{"x-match": "all", "n": int32(1)}))
	shared.Done(channel.Confirm(false))
	publish := func(exchange, key string, headers amqp.Table) {
		message := amqp.Publishing{Headers: headers, Body: []byte(key)}
		shared.Check(shared.Must(channel.PublishWithDeferredConfirm(exchange, key, false, false, message)).Wait(), "refused")
	}
	for _, key := range []string{"a.b.c", "a.b.d", "a", "y"} {
		publish(exchanges["topic"], key, nil)
	}
	publish(exchanges["fanout"], "a.b.c", nil)
	publish(exchanges["headers"], "", amqp.Table{"n": int64(1), "more": true})
	publish(exchanges["headers"], "", amqp.Table{"n": int64(2)})
	for key, count := range map[string]int{"a.*.c": 2, "a.#": 4, "x": 1} {
		shared.Check(ready(channel, queues[key]) == count, "%s has %d", key, ready(channel, queues[key]))
	}
	for _, exchange := range exchanges {
		shared.Done(channel.ExchangeDelete(exchange, false, false))
	}
}

func returns(p *place) {
	channel := p.channel()
	back := channel.NotifyReturn(make(chan amqp.Return, 1))
	shared.Done(channel.Confirm(false))
	message := amqp.Publishing{MessageId: "1", Body: []byte("back")}
	confirmed := shared.Must(channel.PublishWithDeferredConfirm("amq.direct", "nowhere", true, false, message))
	r := next("a returned message", back)
	shared.Check(r.ReplyCode == amqp.NoRoute && r.ReplyText == "NO_ROUTE" && string(r.Body) == "back" && r.MessageId == "1", "%v", r)
	shared.Check(confirmed.Wait(), "what comes back is confirmed")
	shared.Done(channel.Publish(shared.Fresh("no"), "", false, false, message))
	closed := next("the end of the channel", channel.NotifyClose(make(chan *amqp.Error, 1)))
	refused(closed, amqp.NotFound, "no exchange 'no-")
}

// retry has a message that no consumer can handle wait in a queue of its own and come back.
func retry(p *place) {
	channel := p.channel()
	work, later := shared.Fresh("work"), shared.Fresh("later")
	declare(channel, work, true, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": later})
	declare(channel, later, true, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": work, "x-message-ttl": 50})
	send(channel, work, "again")
	from := shared.Must(channel.Consume(work, "", false, false, false, false, nil))
	for tries := range 4 {
		d := next("the message", from)
		deaths, _ := d.Headers["x-death"].([]any)
		shared.Check(string(d.Body) == "again" && len(deaths) == min(tries*2, 2), "%v", d)
		if tries > 0 {
			expired, rejected := deaths[0].(amqp.Table), deaths[1].(amqp.Table)
			shared.Check(expired["queue"] == later && expired["reason"] == "expired" && expired["count"] == int64(tries), "%v", expired)
			shared.Check(rejected["queue"] == work && rejected["reason"] == "rejected" && rejected["count"] == int64(tries), "%v", rejected)
		}
		if tries < 3 {
			shared.Done(d.Reject(false))
		} else {
			shared.Done(d.Ack(false))
		}
	}
	remove(channel, work, later)
}

func cancelled(p *place) {
	channel := p.channel()
	queue := declare(channel, shared.Fresh("cancelled"), true, nil)
	notices := channel.NotifyCancel(make(chan string, 1))
	from := shared.Must(channel.Consume(queue, "mine", false, false, false, false, nil))
	remove(p.channel(), queue)
	shared.Check(next("a word that the consumer is gone", notices) == "mine", "another consumer is cancelled")
	_, open := <-from
	shared.Check(!open, "a message came")
	declare(channel, queue, true, nil)
	remove(channel, queue)
}

func large(p *place) {
	channel := p.channel()
	queue := declare(channel, shared.Fresh("large"), true, nil)
	body := bytes.Repeat([]byte("0123456789abcdefghijk"), 300_000)
	shared.Done(channel.Confirm(false))
	for range 2 {
		confirmation := shared.Must(channel.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{Body: body}))
		shared.Check(confirmation.Wait(), "refused")
	}
	from := shared.Must(channel.Consume(queue, "", true, false, false, false, nil))
	for range 2 {
		shared.Check(bytes.Equal(next("the message", from).Body, body), "another body came")
	}
	remove(channel, queue)
}

func get(p *place) {
	channel := p.channel()
	queue := declare(channel, shared.Fresh("get"), false, nil)
	_, there, err := channel.Get(queue, false)
	shared.Check(err == nil && !there, "something is there: %v", err)
	send(channel, queue, "first", "second")
	until("both are there", func() bool { return ready(channel, queue) == 2 })
	for _, again := range []bool{false, true} {
		d, there, err := channel.Get(queue, false)
		shared.Check(err == nil && there && string(d.Body) == "first" && d.Redelivered == again && d.MessageCount == 1, "%v %v", d, err)
		shared.Done(d.Nack(false, !again))
	}
	d, _, err := channel.Get(queue, true)
	shared.Check(err == nil && string(d.Body) == "second" && d.MessageCount == 0, "%v %v", d, err)
	send(channel, queue, numbers(0, 5)...)
	until("all are there", func() bool { return ready(channel, queue) == 5 })
	shared.Check(shared.Must(channel.QueuePurge(queue, false)) == 5, "not all went")
	remove(channel, queue)
}

func exclusive(p *place) {
	owner := p.connect()
	queue := shared.Must(shared.Must(owner.Channel()).QueueDeclare("", false, false, true, false, nil)).Name
	other := p.connect()
	locked := "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '" + queue + "'"
	for _, act := range []func(*amqp.Channel) error{
		func(channel *amqp.Channel) error {
			_, err := channel.QueueDeclarePassive(queue, false, false, true, false, nil)
			return err
		},
		func(channel *amqp.Channel) error {
			_, err := channel.Consume(queue, "", false, false, false, false, nil)
			return err
		},
		func(channel *amqp.Channel) error {
			_, err := channel.QueueDelete(queue, false, false, false)
			return err
		},
	} {
		refused(act(shared.Must(other.Channel())), amqp.ResourceLocked, locked)
	}
	shared.Done(owner.Close())
	_, err := shared.Must(other.Channel()).QueueDeclarePassive(queue, false, false, false, false, nil)
	refused(err, amqp.NotFound, "no queue '"+queue+"'")
}

// reconnect cuts the socket of a connection, and its recovery brings back the channel, the queue of its own and the consumer.
func reconnect(p *place) {
	var sockets []net.Conn
	var guard sync.Mutex
	soon := &amqp.ReconnectionConfig{MaxRetryCount: 100, RetryInterval: 50 * time.Millisecond}
	config := amqp.Config{Recovery: &amqp.Recovery{ReconnectionConfig: soon}, Dial: func(network, address string) (net.Conn, error) {
		socket, err := net.Dial(network, address)
		guard.Lock()
		defer guard.Unlock()
		sockets = append(sockets, socket)
		return socket, err
	}}
	connection := shared.Must(amqp.DialConfig(p.url, config))
	p.open = append(p.open, connection)
	states := make(chan *amqp.StateChanged, 16)
	connection.NotifyStateChange(states)
	channel := shared.Must(connection.Channel())
	durable := declare(channel, shared.Fresh("durable"), true, nil)
	own := shared.Must(channel.QueueDeclare(shared.Fresh("own"), false, false, true, false, nil)).Name
	shared.Done(channel.QueueBind(own, own, "amq.direct", false, nil))
	from := shared.Must(channel.Consume(durable, "", false, false, false, false, nil))
	mine := shared.Must(channel.Consume(own, "", true, false, false, false, nil))
	send(channel, durable, "held")
	next("the message", from)
	guard.Lock()
	shared.Done(sockets[0].Close())
	guard.Unlock()
	for next("that it is open again", states).To != amqp.StateOpen {
	}
	d := next("the message again", from)
	shared.Check(string(d.Body) == "held" && d.Redelivered, "%v", d)
	shared.Done(d.Ack(false))
	other := p.channel()
	until("the bound queue is back", func() bool {
		shared.Done(other.Publish("amq.direct", own, false, false, amqp.Publishing{Body: []byte("bound")}))
		select {
		case d := <-mine:
			return string(d.Body) == "bound"
		case <-time.After(quiet):
			return false
		}
	})
	remove(other, durable)
}

// rpc calls with answers that go past all queues.
func rpc(p *place) {
	const pseudo = "amq.rabbitmq.reply-to"
	server, client := p.channel(), p.channel()
	requests := declare(server, shared.Fresh("rpc"), false, nil)
	calls := shared.Must(server.Consume(requests, "", true, false, false, false, nil))
	go func() {
		for call := range calls {
			answer := amqp.Publishing{CorrelationId: call.CorrelationId, Body: bytes.ToUpper(call.Body)}
			if server.Publish("", call.ReplyTo, false, false, answer) != nil {
				return
			}
		}
	}()
	answers := shared.Must(client.Consume(pseudo, "", true, false, false, false, nil))
	for _, id := range numbers(0, 50) {
		call := amqp.Publishing{ReplyTo: pseudo, CorrelationId: id, Body: []byte("call " + id)}
		shared.Done(client.Publish("", requests, false, false, call))
	}
	for _, id := range numbers(0, 50) {
		d := next("an answer", answers)
		shared.Check(d.CorrelationId == id && string(d.Body) == "CALL "+id, "%v", d)
	}
	remove(p.channel(), requests)
	other := p.channel()
	closed := other.NotifyClose(make(chan *amqp.Error, 1))
	shared.Done(other.Publish("", requests, false, false, amqp.Publishing{ReplyTo: pseudo}))
	refused(next("the end of the channel", closed), amqp.PreconditionFailed, "fast reply consumer does not exist")
}
