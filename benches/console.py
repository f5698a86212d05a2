#!/usr/bin/env python3
"""How long the console's pages wait for their answers where there are many topics.

    benches/console.py target/release/polylogue [--topics 10000] [--results benches/results/console.jsonl]

Starts a broker, makes the topics, some with messages, and groups, and asks for what each page asks for, each 30 times. A line of results has the
median and the longest, in milliseconds. The broker listens on loopback only, and is ended with its data when this ends."""

import argparse
import concurrent.futures
import datetime
import http.client
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time

TURNS = 30
PAGES = {
    "overview": ["/api/v1/status"],
    "topics": ["/api/v1/topics?limit=50&internal=false"],
    "topics, searched": ["/api/v1/topics?search=topic-99&limit=50&internal=false"],
    "topics, the last page": ["/api/v1/topics?limit=50&offset=9950&internal=false"],
    "topic": ["/api/v1/topics/topic-00001", "/api/v1/topics/topic-00001/messages?limit=50"],
    "groups": ["/api/v1/groups?limit=50"],
    "group": ["/api/v1/groups/group-0001"],
    "queues": ["/api/v1/vhosts", "/api/v1/vhosts/%2F/queues?limit=50"],
    "queue": ["/api/v1/vhosts/%2F/queues/queue-0001", "/api/v1/topics/amqp-queue.queue-0001/messages?partition=0&limit=50"],
    "exchanges": ["/api/v1/vhosts/%2F/exchanges", "/api/v1/vhosts/%2F/bindings"],
    "connections": ["/api/v1/connections?limit=50"],
    "users": ["/api/v1/users"],
    "access control lists": ["/api/v1/acls"],
    "settings": ["/api/v1/settings/node"],
}


def ask(connection, method, path, body=None):
    headers = {"content-type": "application/json"} if body is not None else {}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read()
    if answer.status >= 300:
        raise SystemExit(f"{method} {path}: {answer.status} {text[:300]}")
    return text


def make(address, what):
    """Makes a part of what there is, over a connection of its own."""
    connection = http.client.HTTPConnection(address)
    for method, path, body in what:
        ask(connection, method, path, body)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("polylogue")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--results", default="benches/results/console.jsonl")
    args = parser.parse_args()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POLYLOGUE_")}
    with tempfile.TemporaryDirectory() as data:
        listen = ["--listen", "kafka=127.0.0.1:0", "--listen", "amqp=127.0.0.1:0", "--listen", "http=127.0.0.1:0"]
        broker = subprocess.Popen([args.polylogue, "serve", "--data", data, *listen], stdout=subprocess.PIPE, text=True, env=environment)
        try:
            address = None
            for line in broker.stdout:
                if line.startswith("http listening on "):
                    address = line.split()[3]
                if line.strip() == "polylogue ready":
                    break
            topics = [f"topic-{number:05}" for number in range(args.topics)]
            work = [("POST", "/api/v1/topics", {"name": name}) for name in topics]
            work += [("POST", f"/api/v1/topics/{name}/messages", {"key": "k", "value": "v" * 500}) for name in topics[:100] for _ in range(60)]
            work += [("POST", "/api/v1/vhosts/%2F/queues", {"name": f"queue-{number:04}"}) for number in range(200)]
            work += [("POST", "/api/v1/vhosts/%2F/publish", {"routing_key": "queue-0001", "body": "b" * 500}) for _ in range(60)]
            reset = {"topics": [{"topic": name} for name in topics[:20]], "to": "earliest"}
            work += [("POST", f"/api/v1/groups/group-{number:04}/reset", reset) for number in range(200)]
            began = time.monotonic()
            # What is made later needs what is made first.
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                list(pool.map(lambda at: make(address, work[: args.topics][at::6]), range(6)))
            make(address, work[args.topics :])
            print(f"{args.topics} topics, 200 queues, 200 groups in {time.monotonic() - began:.0f} s")
            connection = http.client.HTTPConnection(address)
            figures = {}
            for page, paths in PAGES.items():
                times = []
                for _ in range(TURNS):
                    start = time.perf_counter()
                    for path in paths:
                        ask(connection, "GET", path)
                    times.append((time.perf_counter() - start) * 1000)
                figures[page] = {"median_ms": round(statistics.median(times), 2), "max_ms": round(max(times), 2)}
                print(f"{page:24} {figures[page]['median_ms']:8.2f} ms  at most {figures[page]['max_ms']:8.2f} ms")
            commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
            line = {
                "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "commit": commit,
                "machine": {"cores": os.cpu_count(), "kernel": platform.release()},
                "topics": args.topics,
                "turns": TURNS,
                "pages": figures,
            }
            with open(args.results, "a", encoding="utf-8") as results:
                results.write(json.dumps(line) + "\n")
        finally:
            broker.terminate()
            broker.wait()


if __name__ == "__main__":
    main()
