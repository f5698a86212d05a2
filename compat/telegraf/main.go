// Runs Telegraf's own RabbitMQ input against a broker, and writes down which checks of what it gathered pass.
package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/influxdata/telegraf"
	"github.com/influxdata/telegraf/logger"
	"github.com/influxdata/telegraf/plugins/inputs"
	"github.com/influxdata/telegraf/plugins/inputs/rabbitmq"
)

// A measurement as the plugin hands it on.
type measurement struct {
	name   string
	fields map[string]interface{}
	tags   map[string]string
}

// What the plugin says.
type accumulator struct {
	telegraf.Accumulator
	lock   sync.Mutex
	all    []measurement
	errors []error
}

func (a *accumulator) AddFields(name string, fields map[string]interface{}, tags map[string]string, _ ...time.Time) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.all = append(a.all, measurement{name, fields, tags})
}

func (a *accumulator) AddError(err error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.errors = append(a.errors, err)
}

// The measurement of this name with this tag, if there is one.
func (a *accumulator) find(name, tag, value string) measurement {
	for _, one := range a.all {
		if one.name == name && (tag == "" || one.tags[tag] == value) {
			return one
		}
	}
	return measurement{name: name}
}

func (m measurement) number(field string) int64 {
	value, _ := m.fields[field].(int64)
	return value
}

func main() {
	plugin := inputs.Inputs["rabbitmq"]().(*rabbitmq.RabbitMQ)
	plugin.URL = os.Args[1]
	plugin.IncludeQueueTypeTag = true
	plugin.Log = logger.New("inputs", "rabbitmq", "")
	if err := plugin.Init(); err != nil {
		panic(err)
	}
	gathered := &accumulator{}
	if err := plugin.Gather(gathered); err != nil {
		gathered.AddError(err)
	}
	for _, err := range gathered.errors {
		fmt.Fprintln(os.Stderr, err)
	}

	overview := gathered.find("rabbitmq_overview", "", "")
	node := gathered.find("rabbitmq_node", "", "")
	orders := gathered.find("rabbitmq_queue", "queue", "orders")
	exchange := gathered.find("rabbitmq_exchange", "exchange", "x")
	link := gathered.find("rabbitmq_federation", "upstream", "up")
	var parts int64
	for _, part := range []string{
		"connection_readers", "connection_writers", "connection_channels", "connection_other", "queue_procs", "plugins", "other_proc",
		"metrics", "mgmt_db", "mnesia", "other_ets", "binary", "msg_index", "code", "atom", "other_system", "allocated_unused",
		"reserved_unallocated",
	} {
		parts += node.number("mem_" + part)
	}
	for _, check := range []struct {
		name string
		ok   bool
	}{
		{"every answer decodes", len(gathered.errors) == 0},
		{"overview: queues, messages, listeners", overview.number("queues") >= 3 && overview.number("messages") == 2 && overview.number("amqp_listeners") > 0},
		{"node: descriptors", node.number("fd_used") > 3 && node.number("fd_total") > node.number("fd_used")},
		{"node: disk", node.number("disk_free_limit") == 512<<20 && node.number("disk_free") > 0},
		{"node: memory", node.number("mem_used") > 0 && node.number("mem_limit") > node.number("mem_used")},
		{"node: what takes the memory", node.number("mem_total") > 1<<20 && parts > 1<<20},
		{"node: runs", node.number("running") == 1 && node.number("uptime") > 0},
		{"queue: messages and type", orders.number("messages") == 2 && orders.tags["type"] == "quorum" && orders.tags["durable"] == "true"},
		{"queue: head_message_timestamp", orders.number("head_message_timestamp") == 1700000000},
		{"queue: stream", gathered.find("rabbitmq_queue", "queue", "log").tags["type"] == "stream"},
		{"exchange: type", exchange.tags["type"] == "topic" && exchange.tags["durable"] == "true"},
		{"federation: link of an exchange", link.tags["exchange"] == "x" && link.tags["upstream_exchange"] != ""},
	} {
		if check.ok {
			fmt.Println(check.name)
		} else {
			fmt.Fprintf(os.Stderr, "fails: %s: %v\n", check.name, gathered.all)
		}
	}
}
