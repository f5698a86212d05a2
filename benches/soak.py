#!/usr/bin/env python3
"""Thirty minutes with everything on (F4 of the scenarios): logins, access control lists, TLS, quotas, Kafka's clients and RabbitMQ's, scrapes and
the console's questions. Memory, files and times must not drift.

    soak.py POLYLOGUE [--minutes 30] [--results benches/results/soak.jsonl]

Needs confluent-kafka and pika: run it with the Python of build/clients/python, which `make test` makes. Prints a line a minute, and adds one line of
results. Ends with 1 when memory was above the bound, when the last third of the samples is more than a tenth above the
second, or when an acknowledged message was not read by each group, or one was read twice."""

import argparse
import base64
import datetime
import http.client
import json
import os
import platform
import re
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PASSWORD = "soak-password"
MEMORY_MIB_MAX = 1024
SAMPLE_SECONDS = 10
# Messages a second of each producer; the quota of `limited` lets a quarter of its own through.
RATES = {"fast": "3000", "limited": "2000"}
READERS = ("soak-a", "soak-b")

# One byte for each message: at SIGTERM the producer tells which were acknowledged, the reader how often it has seen each of which producer.
PRODUCE = """
import signal, sys, time
from confluent_kafka import Producer
bootstrap, ca, name, rate, tells = sys.argv[1:]
config = {"bootstrap.servers": bootstrap, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "app",
          "sasl.password": "soak-password", "ssl.ca.location": ca, "client.id": name, "linger.ms": 5, "enable.idempotence": True,
          # One that is held back gives nothing up: librdkafka takes a new epoch when a message's time is over, and sends again under it what the
          # broker had already written.
          "message.timeout.ms": 0}
producer, taken, acknowledged, given_up, ends = Producer(config), bytearray(), 0, 0, []
signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
def reported(number):
    def tell(error, message):
        global acknowledged, given_up
        acknowledged += error is None
        given_up += error is not None
        taken[number] = error is None
    return tell
began = time.monotonic()
while not ends:
    # One that is held back says how far it is, too: it is always behind.
    sent = len(taken)
    due = min((time.monotonic() - began) * float(rate), sent + 1000)
    while sent < due:
        try:
            producer.produce(f"soak-{sent % 20}", f"{name} {sent} ".encode() + b"x" * 1000, key=str(sent % 997), on_delivery=reported(sent))
            taken.append(0)
            sent += 1
        except BufferError:
            producer.poll(0.1)
            break
    producer.poll(0.01)
    print(sent, acknowledged, given_up, flush=True)
# What waits in the queue of one that is held back has no promise.
producer.purge(in_queue=True, in_flight=False)
producer.flush(60)
print(len(taken), acknowledged, given_up, flush=True)
open(tells, "wb").write(taken)
"""

CONSUME = """
import collections, signal, sys
from confluent_kafka import Consumer
bootstrap, ca, group, tells = sys.argv[1:]
config = {"bootstrap.servers": bootstrap, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "app",
          "sasl.password": "soak-password", "ssl.ca.location": ca, "group.id": group, "auto.offset.reset": "earliest"}
consumer, read, silent, ends, seen = Consumer(config), 0, 0, [], collections.defaultdict(bytearray)
signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
consumer.subscribe([f"soak-{n}" for n in range(20)])
while True:
    messages = [message for message in consumer.consume(2000, 0.5) if message.error() is None]
    for message in messages:
        name, number, _ = message.value().split(b" ", 2)
        number, of = int(number), seen[name.decode()]
        if number >= len(of):
            of.extend(bytes(number + 100_000 - len(of)))
        of[number] = min(of[number] + 1, 255)
    read += len(messages)
    print(read, flush=True)
    # When it is stopped nothing is written any more: five seconds without a message are the end of the log.
    silent = 0 if messages else silent + 1
    if ends and silent >= 10:
        break
for name, of in seen.items():
    open(f"{tells}.{name}", "wb").write(of)
"""

QUEUES = """
import ssl, sys
import pika
host, port, ca = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
context.check_hostname = False
parameters = pika.ConnectionParameters(host, int(port), credentials=pika.PlainCredentials("app", "soak-password"), ssl_options=pika.SSLOptions(context))
done = 0
while True:
    # Connections come and go, too.
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("soak", durable=True, arguments={"x-queue-type": "quorum"})
    for _ in range(500):
        channel.basic_publish("", "soak", b"q" * 1000, pika.BasicProperties(delivery_mode=2))
        method, _, body = channel.basic_get("soak")
        channel.basic_ack(method.delivery_tag)
        done += 1
    connection.close()
    print(done, flush=True)
"""


class Client:
    """A process that prints how far it is, and the last thing that it said."""

    def __init__(self, program, *args):
        self.process = subprocess.Popen([sys.executable, "-u", "-c", program, *args], stdout=subprocess.PIPE, text=True)
        self.said = "0 0 0"
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    def listen(self):
        for line in self.process.stdout:
            self.said = line.strip()

    def number(self, at=0):
        return int(self.said.split()[at])

    def finish(self):
        """Lets it come to its end, and fails when it does not."""
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(180) != 0:
            raise SystemExit(f"{self.process.args[4:]} ended with {self.process.returncode}")
        self.listener.join()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def ask(api, ca, method, path, body=None):
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    connection = http.client.HTTPSConnection(api, context=context, timeout=30)
    headers = {"authorization": "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode(), "content-type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status >= 300:
        raise SystemExit(f"{method} {path}: {answer.status} {text[:300]}")
    return text


def sample(pid, metrics):
    status = open(f"/proc/{pid}/status", encoding="ascii").read()
    field = lambda name: int(re.search(rf"^{name}:\s+(\d+)", status, re.M)[1])
    buckets = [(float(bound), int(count)) for bound, count in re.findall(r'journal_flush_duration_seconds_bucket\{le="([^"]+)"\} (\d+)', metrics)]
    return {"anonymous_mib": field("RssAnon") / 1024, "threads": field("Threads"), "files": len(os.listdir(f"/proc/{pid}/fd")), "flushes": buckets}


def p99_ms(before, after):
    """Below what bound 99 of 100 flushes between two samples were."""
    counts = [(bound, now - then) for (bound, now), (_, then) in zip(after["flushes"], before["flushes"])]
    total = counts[-1][1]
    return next((bound * 1000 for bound, count in counts if total and count >= total * 0.99), None)


def compared(place):
    """Acknowledged messages that a reader has not seen, and messages that one has seen more than once, over all readers."""
    lost = twice = 0
    for name in RATES:
        with open(f"{place}/{name}", "rb") as file:
            taken = file.read()
        for reader in READERS:
            with open(f"{place}/{reader}.{name}", "rb") as file:
                seen = file.read().ljust(len(taken), b"\0")
            lost += sum(one and not times for one, times in zip(taken, seen))
            twice += sum(times > 1 for times in seen)
    return lost, twice


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("polylogue")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--results", default="benches/results/soak.jsonl")
    args = parser.parse_args()
    place = tempfile.mkdtemp(prefix="polylogue-soak-")
    ca, key = f"{place}/ca.pem", f"{place}/key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", ca, "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    listen = [word for name in ("kafka", "amqp", "http") for word in ("--listen", f"{name}+tls=127.0.0.1:0")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POLYLOGUE_")} | {"POLYLOGUE_ADMIN_PASSWORD": PASSWORD}
    tls = ["--set", f"tls.certificate={ca}", "--set", f"tls.key={key}", "--set", "server.login=always", "--set", "server.log_filter=warn"]
    broker = subprocess.Popen([args.polylogue, "serve", "--data", f"{place}/data", *listen, *tls], stdout=subprocess.PIPE, text=True, env=environment)
    clients = []
    try:
        at = {}
        for line in broker.stdout:
            words = line.split()
            if "listening" in words:
                at[words[0].split("+")[0]] = words[3]
            if line.startswith("polylogue ready"):
                break
        api = at["http"]
        ask(api, ca, "PUT", "/api/v1/users/app", {"password": PASSWORD, "tags": []})
        ask(api, ca, "PUT", "/api/v1/vhosts/%2F/permissions/app", {"configure": ".*", "write": ".*", "read": ".*"})
        rules = [("topic", "soak-", "read"), ("topic", "soak-", "write"), ("topic", "soak-", "describe"), ("group", "soak-", "read")]
        rules = [{"resource": kind, "name": name, "pattern": "prefixed", "principal": "User:app", "operation": operation} for kind, name, operation in rules]
        rules.append({"resource": "cluster", "name": "kafka-cluster", "principal": "User:app", "operation": "idempotent-write"})
        ask(api, ca, "POST", "/api/v1/acls", {"acls": rules})
        ask(api, ca, "PUT", "/api/v1/quotas", {"of": {"user": "app", "client_id": "limited"}, "produce_bytes_per_second": 500_000})
        for number in range(20):
            # 800 MB in all, which are there after five minutes: from then on as many files go as come.
            config = {"retention.bytes": "10000000"}
            ask(api, ca, "POST", "/api/v1/topics", {"name": f"soak-{number}", "partitions": 4, "config": config})
        producers = [Client(PRODUCE, at["kafka"], ca, name, rate, f"{place}/{name}") for name, rate in RATES.items()]
        readers = [Client(CONSUME, at["kafka"], ca, name, f"{place}/{name}") for name in READERS]
        queues = Client(QUEUES, *at["amqp"].rsplit(":", 1), ca)
        clients = [*producers, *readers, queues]
        samples, ends = [], time.monotonic() + args.minutes * 60
        while time.monotonic() < ends:
            time.sleep(SAMPLE_SECONDS)
            samples.append(sample(broker.pid, ask(api, ca, "GET", "/metrics")))
            for path in ("/api/v1/status", "/api/v1/topics?limit=50", "/api/v1/groups?limit=50", "/metrics/objects", "/api/v1/topics/soak-1/messages?limit=20"):
                ask(api, ca, "GET", path)
            if any(client.process.poll() is not None for client in clients) or broker.poll() is not None:
                raise SystemExit("a process has ended")
            if len(samples) % 6 == 0:
                last = samples[-1]
                print(f"{len(samples) // 6:3} min  {last['anonymous_mib']:7.1f} MiB  {last['files']:4} files  {last['threads']:3} threads  sent {[p.number() for p in producers]}  read {[r.number() for r in readers]}  queued {queues.number()}", flush=True)
        for client in (*producers, *readers):
            client.finish()
        lost, twice = compared(place)
        memory = [one["anonymous_mib"] for one in samples]
        third = len(samples) // 3
        p99 = [p99_ms(before, after) for before, after in zip(samples, samples[1:])]
        drift = {name: [round(statistics.median(one[name] for one in samples[begin : begin + third]), 1) for begin in (0, third, 2 * third)] for name in ("anonymous_mib", "files", "threads")}
        drift["flush_p99_ms"] = [statistics.median([ms for ms in p99[begin : begin + third] if ms is not None] or [0]) for begin in (0, third, 2 * third)]
        commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        line = {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": commit,
            "machine": {"cores": os.cpu_count(), "kernel": platform.release()}, "minutes": args.minutes, "memory_mib_max": max(memory),
            "thirds": drift, "sent": [p.number() for p in producers], "acknowledged": [p.number(1) for p in producers], "given_up": [p.number(2) for p in producers],
            "read": [r.number() for r in readers], "lost": lost, "twice": twice, "queued": queues.number(),
        }
        print(json.dumps(line))
        with open(args.results, "a", encoding="utf-8") as results:
            results.write(json.dumps(line) + "\n")
        grows = any(thirds[2] > thirds[1] * 1.1 for name, thirds in drift.items() if name != "flush_p99_ms")
        sys.exit(1 if max(memory) > MEMORY_MIB_MAX or grows or lost or twice else 0)
    finally:
        for client in clients:
            client.end()
        broker.terminate()
        broker.wait()
        subprocess.run(["rm", "-rf", place], check=True)


if __name__ == "__main__":
    main()
