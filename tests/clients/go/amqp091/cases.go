package main

import (
	"bytes"
	"crypto/rand"
	"net"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"polylogue/clientcases/shared"
)

func fresh(prefix string) string {
	return prefix + "-" + rand.Text()
}

func smoke(p *place) {
	channel := p.channel()
	queue := declare(channel, fresh("smoke"), true, nil)
	must(channel.Confirm(false))
	for _, body := range numbers(0, 100) {
		confirmation := shared.Must(channel.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, ContentType: "text/plain", Headers: amqp.Table{"n": body}, Body: []byte(body)}))
		check(confirmation.Wait(), "refused: %s", body)
	}
	check(ready(channel, queue) == 100, "%d are ready", ready(channel, queue))
	from := shared.Must(channel.Consume(queue, "", false, false, false, false, nil))
	for _, body := range numbers(0, 100) {
		d := next("a message", from)
		check(string(d.Body) == body && d.Headers["n"] == body && d.ContentType == "text/plain" && !d.Redelivered, "%s came as %v", body, d)
		must(d.Ack(false))
	}
	remove(channel, queue)
	_, err := channel.QueueDeclarePassive(queue, false, false, false, false, nil)
	refused(err, amqp.NotFound, "NOT_FOUND - no queue '"+queue+"' in vhost '/'")
}

func confirms(p *place) {
	channel := p.channel()
	must(channel.Confirm(false))
	told := channel.NotifyPublish(make(chan amqp.Confirmation, 1000))
	queue := declare(channel, fresh("confirms"), true, nil)
	send(channel, queue, numbers(0, 1000)...)
	for tag := uint64(1); tag <= 1000; tag++ {
		c := next("a confirmation", told)
		check(c.Ack && c.DeliveryTag == tag, "%v instead of %d", c, tag)
	}
	check(ready(channel, queue) == 1000, "%d are ready", ready(channel, queue))
	full := declare(channel, fresh("full"), true, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	send(channel, full, "room", "no room")
	for _, taken := range []bool{true, false} {
		check(next("a confirmation", told).Ack == taken, "one of two is refused")
	}
	remove(channel, queue, full)
}

func workQueue(p *place) {
	publisher, worker := p.channel(), p.channel()
	queue := declare(publisher, fresh("work"), true, nil)
	send(publisher, queue, numbers(0, 10)...)
	must(worker.Qos(3, 0, false))
	from := shared.Must(worker.Consume(queue, "", false, false, false, false, nil))
	var held []amqp.Delivery
	for range 3 {
		held = append(held, next("a message", from))
	}
	nothing("more than the prefetch came", from)
	must(held[1].Ack(true))
	held = append(held, next("a message", from), next("a message", from))
	nothing("more than the prefetch came", from)
	must(held[2].Nack(false, true))
	back := next("the message that was given back", from)
	check(string(back.Body) == "2" && back.Redelivered, "%v came instead", back)
	must(worker.Close())
	other := p.channel()
	bodies, again := take(shared.Must(other.Consume(queue, "", false, false, false, false, nil)), 8)
	check(slices.Equal(bodies, numbers(2, 10)), "%v came", bodies)
	check(slices.Equal(again, []bool{true, true, true, false, false, false, false, false}), "redelivered: %v", again)
	remove(other, queue)
}

func routing(p *place) {
	channel := p.channel()
	exchanges := map[string]string{}
	for _, kind := range []string{"topic", "fanout", "headers"} {
		exchanges[kind] = fresh(kind)
		must(channel.ExchangeDeclare(exchanges[kind], kind, true, false, false, false, nil))
	}
	queues := map[string]string{}
	for _, key := range []string{"a.*.c", "a.#", "x"} {
		queues[key] = shared.Must(channel.QueueDeclare("", false, false, true, false, nil)).Name
		must(channel.QueueBind(queues[key], key, exchanges["topic"], false, nil))
	}
	must(channel.ExchangeBind(exchanges["topic"], "", exchanges["fanout"], false, nil))
	must(channel.QueueBind(queues["x"], "", exchanges["headers"], false, amqp.Table{"x-match": "all", "n": int32(1)}))
	must(channel.Confirm(false))
	publish := func(exchange, key string, headers amqp.Table) {
		message := amqp.Publishing{Headers: headers, Body: []byte(key)}
		check(shared.Must(channel.PublishWithDeferredConfirm(exchange, key, false, false, message)).Wait(), "refused")
	}
	for _, key := range []string{"a.b.c", "a.b.d", "a", "y"} {
		publish(exchanges["topic"], key, nil)
	}
	publish(exchanges["fanout"], "a.b.c", nil)
	publish(exchanges["headers"], "", amqp.Table{"n": int64(1), "more": true})
	publish(exchanges["headers"], "", amqp.Table{"n": int64(2)})
	for key, count := range map[string]int{"a.*.c": 2, "a.#": 4, "x": 1} {
		check(ready(channel, queues[key]) == count, "%s has %d", key, ready(channel, queues[key]))
	}
	for _, exchange := range exchanges {
		must(channel.ExchangeDelete(exchange, false, false))
	}
}

func returns(p *place) {
	channel := p.channel()
	back := channel.NotifyReturn(make(chan amqp.Return, 1))
	must(channel.Confirm(false))
	message := amqp.Publishing{MessageId: "1", Body: []byte("back")}
	confirmed := shared.Must(channel.PublishWithDeferredConfirm("amq.direct", "nowhere", true, false, message))
	r := next("a message that nobody gets", back)
	check(r.ReplyCode == amqp.NoRoute && r.ReplyText == "NO_ROUTE" && string(r.Body) == "back" && r.MessageId == "1", "%v", r)
	check(confirmed.Wait(), "what comes back is confirmed")
	must(channel.Publish(fresh("no"), "", false, false, message))
	closed := next("the end of the channel", channel.NotifyClose(make(chan *amqp.Error, 1)))
	refused(closed, amqp.NotFound, "no exchange 'no-")
}

// retry has a message that nobody can handle wait in a queue of its own and come back.
func retry(p *place) {
	channel := p.channel()
	work, later := fresh("work"), fresh("later")
	declare(channel, work, true, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": later})
	declare(channel, later, true, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": work, "x-message-ttl": 50})
	send(channel, work, "again")
	from := shared.Must(channel.Consume(work, "", false, false, false, false, nil))
	for tries := range 4 {
		d := next("the message", from)
		deaths, _ := d.Headers["x-death"].([]any)
		check(string(d.Body) == "again" && len(deaths) == min(tries*2, 2), "%v", d)
		if tries > 0 {
			expired, rejected := deaths[0].(amqp.Table), deaths[1].(amqp.Table)
			check(expired["queue"] == later && expired["reason"] == "expired" && expired["count"] == int64(tries), "%v", expired)
			check(rejected["queue"] == work && rejected["reason"] == "rejected" && rejected["count"] == int64(tries), "%v", rejected)
		}
		if tries < 3 {
			must(d.Reject(false))
		} else {
			must(d.Ack(false))
		}
	}
	remove(channel, work, later)
}

func cancelled(p *place) {
	channel := p.channel()
	queue := declare(channel, fresh("cancelled"), true, nil)
	told := channel.NotifyCancel(make(chan string, 1))
	from := shared.Must(channel.Consume(queue, "mine", false, false, false, false, nil))
	remove(p.channel(), queue)
	check(next("a word that the consumer is gone", told) == "mine", "another consumer is cancelled")
	_, open := <-from
	check(!open, "a message came")
	declare(channel, queue, true, nil)
	remove(channel, queue)
}

func large(p *place) {
	channel := p.channel()
	queue := declare(channel, fresh("large"), true, nil)
	body := bytes.Repeat([]byte("0123456789abcdefghijk"), 300_000)
	must(channel.Confirm(false))
	for range 2 {
		confirmation := shared.Must(channel.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{Body: body}))
		check(confirmation.Wait(), "refused")
	}
	from := shared.Must(channel.Consume(queue, "", true, false, false, false, nil))
	for range 2 {
		check(bytes.Equal(next("the message", from).Body, body), "another body came")
	}
	remove(channel, queue)
}

func get(p *place) {
	channel := p.channel()
	queue := declare(channel, fresh("get"), false, nil)
	_, there, err := channel.Get(queue, false)
	check(err == nil && !there, "something is there: %v", err)
	send(channel, queue, "first", "second")
	until("both are there", func() bool { return ready(channel, queue) == 2 })
	for _, again := range []bool{false, true} {
		d, there, err := channel.Get(queue, false)
		check(err == nil && there && string(d.Body) == "first" && d.Redelivered == again && d.MessageCount == 1, "%v %v", d, err)
		must(d.Nack(false, !again))
	}
	d, _, err := channel.Get(queue, true)
	check(err == nil && string(d.Body) == "second" && d.MessageCount == 0, "%v %v", d, err)
	send(channel, queue, numbers(0, 5)...)
	until("all are there", func() bool { return ready(channel, queue) == 5 })
	check(shared.Must(channel.QueuePurge(queue, false)) == 5, "not all went")
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
	must(owner.Close())
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
	durable := declare(channel, fresh("durable"), true, nil)
	own := shared.Must(channel.QueueDeclare(fresh("own"), false, false, true, false, nil)).Name
	must(channel.QueueBind(own, own, "amq.direct", false, nil))
	from := shared.Must(channel.Consume(durable, "", false, false, false, false, nil))
	mine := shared.Must(channel.Consume(own, "", true, false, false, false, nil))
	send(channel, durable, "held")
	next("the message", from)
	guard.Lock()
	must(sockets[0].Close())
	guard.Unlock()
	for next("that it is open again", states).To != amqp.StateOpen {
	}
	d := next("the message again", from)
	check(string(d.Body) == "held" && d.Redelivered, "%v", d)
	must(d.Ack(false))
	other := p.channel()
	until("the bound queue is back", func() bool {
		must(other.Publish("amq.direct", own, false, false, amqp.Publishing{Body: []byte("bound")}))
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
	requests := declare(server, fresh("rpc"), false, nil)
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
		must(client.Publish("", requests, false, false, call))
	}
	for _, id := range numbers(0, 50) {
		d := next("an answer", answers)
		check(d.CorrelationId == id && string(d.Body) == "CALL "+id, "%v", d)
	}
	remove(p.channel(), requests)
	other := p.channel()
	closed := other.NotifyClose(make(chan *amqp.Error, 1))
	must(other.Publish("", requests, false, false, amqp.Publishing{ReplyTo: pseudo}))
	refused(next("the end of the channel", closed), amqp.PreconditionFailed, "fast reply consumer does not exist")
}
