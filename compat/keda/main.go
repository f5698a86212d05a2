// Decodes what KEDA's RabbitMQ scaler asks for into the scaler's own types, which run.sh takes out of its source, and writes down which
// checks pass.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
)

// get is how the scaler asks: the host has the user in it.
func get(path string, into any) error {
	answer, err := http.Get(os.Args[1] + path)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

func main() {
	check := func(name string, err error, ok bool) {
		if err == nil && ok {
			fmt.Println(name)
		} else {
			fmt.Fprintf(os.Stderr, "fails: %s: %v\n", name, err)
		}
	}
	var queue queueInfo
	err := get("/api/queues/%2F/orders", &queue)
	check("a queue by its name", err, queue.Name == "orders" && queue.Messages == 2 && queue.MessagesReady == 2 && queue.MessagesUnacknowledged == 0)
	queue = queueInfo{}
	err = get("/api/queues/other/jobs", &queue)
	check("a queue of another virtual host", err, queue.Name == "jobs" && queue.Messages == 0)
	err = get("/api/queues/%2F/nothing", &queue)
	check("a queue that is not there", nil, err != nil && err.Error() == "/api/queues/%2F/nothing: 404 Not Found")
	var page regexQueueInfo
	err = get("/api/queues/%2F?page=1&use_regex=true&pagination=false&name=%5Eor.%2A&page_size=100", &page)
	check("queues by a regular expression", err, len(page.Queues) == 2 && page.TotalPages == 1 && page.Queues[0].Name == "orders")
	err = get("/api/queues/%2F?page=1&use_regex=true&pagination=false&name=%5Eor.%2A&page_size=1", &page)
	check("more pages than one", err, page.TotalPages == 2)
	err = get("/api/queues?page=1&use_regex=true&pagination=false&name=.%2A&page_size=100", &page)
	check("queues of all virtual hosts", err, len(page.Queues) == 3)
}
