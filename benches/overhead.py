#!/usr/bin/env python3
"""What logins, access control lists and TLS cost the broker while messages go through it: processor time a message, and a profile of it.

    overhead.py POLYLOGUE [--rounds 3] [--messages 400000] [--rate 20000] [--durability sync] [--bare BARE_TLS] [--results benches/results/overhead.jsonl]

Needs confluent-kafka (run it with the Python of build/clients/python, which `make test` makes), openssl, two cores, and perf for the profile. librdkafka writes
messages of 1 KiB in batches of at most 64 KiB and reads them, in turns over three listeners of brokers with the same settings:

    open       no login
    login      SASL_PLAINTEXT with SCRAM-SHA-256, 1,000 bindings of access control lists, a scrape of /metrics each second
    tls        the same as SASL_SSL

The broker has the first core and the client the second. Without a rate the client is as fast as it can be, which over TLS is slower: then fewer
batches share a flush, and that is in the difference, too; with the durability `async` it is not.

Prints a line a run, and adds one line of results: medians of processor time, in user space and in the kernel, and from one more run each under
`perf record` which share of the samples is whose code. With the program of crates/server/examples/bare_tls.rs each round also tells what TLS costs
one who does nothing else: that is what is to be compared with `tls` less `login`."""

import argparse
import base64
import datetime
import http.client
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading

PASSWORD = "overhead-password"
KINDS = ("open", "login", "tls")
# Whose code a symbol is, by what its name has in it; one of the kernel is the kernel's.
OWNERS = {
    "tls": re.compile(r"rustls|aws_lc|aes_gcm|aesni|gcm_|tokio_rustls|net4link"),
    "auth": re.compile(r"polylogue_auth|session6access|session4sasl|session5quota"),
    "metrics": re.compile(r"prometheus|http7metrics|net7metrics|Histogram|histogram"),
    "copies": re.compile(r"mem(cpy|move|set)"),
}

LOAD = """
import json, sys, time
from confluent_kafka import Consumer, Producer
config, topic, messages, rate = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
producer = Producer({**config, "linger.ms": 5, "batch.size": 65536, "queue.buffering.max.messages": 20000, "enable.idempotence": True})
failed = 0
def reported(error, _):
    global failed
    failed += error is not None
began = time.monotonic()
for number in range(messages):
    while rate and number % 20 == 0 and number / rate > time.monotonic() - began:
        producer.poll(0.001)
    while True:
        try:
            producer.produce(topic, b"x" * 1024, partition=number % 10, on_delivery=reported)
            break
        except BufferError:
            producer.poll(0.01)
    producer.poll(0)
producer.flush()
consumer, read = Consumer({**config, "group.id": "overhead-" + topic, "auto.offset.reset": "earliest"}), 0
consumer.subscribe([topic])
while read < messages:
    read += sum(message.error() is None for message in consumer.consume(2000, 1))
consumer.close()
sys.exit(1 if failed else 0)
"""


def ask(api, method, path, body=None):
    connection = http.client.HTTPConnection(api, timeout=30)
    headers = {"content-type": "application/json", "authorization": "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode()}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status >= 300:
        raise SystemExit(f"{method} {path}: {answer.status} {text[:300]}")


class Broker:
    """A broker of one kind, with a topic for each run."""

    def __init__(self, polylogue, kind, durability, place, ca, key):
        self.kind, self.ca, self.runs = kind, ca, 0
        name = "kafka+tls" if kind == "tls" else "kafka"
        listen = ["--listen", f"{name}=127.0.0.1:0", "--listen", "http=127.0.0.1:0"]
        sets = ["--set", f"server.login={'never' if kind == 'open' else 'always'}", "--set", f"log.durability={durability}"]
        if kind == "tls":
            sets += ["--set", f"tls.certificate={ca}", "--set", f"tls.key={key}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("POLYLOGUE_")} | {"POLYLOGUE_ADMIN_PASSWORD": PASSWORD}
        log = open(f"{place}/{kind}.log", "w", encoding="utf-8")
        self.process = subprocess.Popen(["taskset", "-c", "0", polylogue, "serve", "--data", f"{place}/{kind}", *listen, *sets], stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        at = {}
        for line in self.process.stdout:
            words = line.split()
            if "listening" in words:
                at[words[0].split("+")[0]] = words[3]
            if line.startswith("polylogue ready"):
                break
        self.api, self.kafka = at["http"], at["kafka"]
        if kind != "open":
            ask(self.api, "PUT", "/api/v1/users/app", {"password": PASSWORD, "tags": []})
            rule = lambda resource, name, operation, pattern="literal": {"resource": resource, "name": name, "pattern": pattern, "principal": "User:app", "operation": operation}
            rules = [rule("topic", f"other-{number}", "read") for number in range(995)]
            rules += [rule("topic", "load-", operation, "prefixed") for operation in ("read", "write", "describe")]
            rules += [rule("group", "overhead-", "read", "prefixed"), rule("cluster", "kafka-cluster", "idempotent-write")]
            ask(self.api, "POST", "/api/v1/acls", {"acls": rules})

    def config(self):
        config = {"bootstrap.servers": self.kafka}
        if self.kind != "open":
            protocol = "SASL_SSL" if self.kind == "tls" else "SASL_PLAINTEXT"
            config |= {"security.protocol": protocol, "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "app", "sasl.password": PASSWORD}
        if self.kind == "tls":
            config["ssl.ca.location"] = self.ca
        return config

    def cpu_seconds(self):
        fields = open(f"/proc/{self.process.pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()
        return [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:13]]

    def run(self, messages, rate):
        """Processor seconds of the broker for a million messages in and out, in user space and in the kernel."""
        self.runs += 1
        topic = f"load-{self.runs}"
        ask(self.api, "POST", "/api/v1/topics", {"name": topic, "partitions": 10})
        done = threading.Event()

        def scrape():
            while not done.wait(1):
                ask(self.api, "GET", "/metrics")

        scraper = threading.Thread(target=scrape, daemon=True)
        if self.kind != "open":
            scraper.start()
        before = self.cpu_seconds()
        subprocess.run(["taskset", "-c", "1", sys.executable, "-c", LOAD, json.dumps(self.config()), topic, str(messages), str(rate)], check=True)
        took = [(now - then) * 1_000_000 / messages for now, then in zip(self.cpu_seconds(), before)]
        done.set()
        ask(self.api, "DELETE", f"/api/v1/topics/{topic}")
        return took

    def profile(self, messages, rate, place):
        """Of 100 samples of the broker, how many are whose code."""
        data = f"{place}/perf.data"
        perf = subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock", "-F", "997", "-o", data, "-p", str(self.process.pid)], stderr=subprocess.DEVNULL)
        self.run(messages, rate)
        perf.send_signal(2)
        perf.wait()
        reported = subprocess.run(["perf", "report", "-i", data, "--stdio", "--no-children", "-F", "overhead,symbol", "--percent-limit", "0"], capture_output=True, text=True, check=False).stdout
        shares, top = dict.fromkeys([*OWNERS, "kernel"], 0.0), []
        for share, space, symbol in re.findall(r"^\s*([\d.]+)%\s+\[(.)\]\s+(.+?)\s*$", reported, re.M):
            owner = "kernel" if space == "k" else next((owner for owner, names in OWNERS.items() if names.search(symbol)), None)
            if owner:
                shares[owner] += float(share)
            top.append((float(share), owner or "", symbol[:100]))
        return {owner: round(share, 2) for owner, share in shares.items()}, sorted(top, reverse=True)[:60]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("polylogue")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--rate", type=float, default=0, help="messages a second; 0: as fast as it goes")
    parser.add_argument("--durability", default="sync", choices=("sync", "async", "memory"))
    parser.add_argument("--bare", help="the program bare_tls: `cargo build --release --locked -p polylogue-server --example bare_tls`")
    parser.add_argument("--top", action="store_true", help="print the symbols with the most samples")
    parser.add_argument("--results", default="benches/results/overhead.jsonl")
    args = parser.parse_args()
    place = tempfile.mkdtemp(prefix="polylogue-overhead-")
    ca, key = f"{place}/ca.pem", f"{place}/key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", ca, "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    brokers = []
    try:
        brokers = [Broker(args.polylogue, kind, args.durability, place, ca, key) for kind in KINDS]
        costs, system, bare = {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}, []
        for number in range(args.rounds + 1):
            for broker in brokers if number % 2 else reversed(brokers):
                user, kernel = broker.run(args.messages, args.rate)
                # The first round warms up.
                if number:
                    costs[broker.kind].append(round(user + kernel, 2))
                    system[broker.kind].append(round(kernel, 2))
                    print(f"round {number}  {broker.kind:6} {user + kernel:6.2f} CPU s per million, {kernel:.2f} of them in the kernel", flush=True)
            if args.bare and number:
                bare.append(json.loads(subprocess.run([args.bare, str(args.messages)], capture_output=True, text=True, check=True).stdout))
                print(f"round {number}  bare   {bare[-1]}", flush=True)
        profiles = {}
        if shutil.which("perf"):
            for broker in brokers:
                profiles[broker.kind], top = broker.profile(args.messages, args.rate, place)
                print(broker.kind, profiles[broker.kind], flush=True)
                for share, owner, symbol in top if args.top else []:
                    print(f"  {share:5.2f} {owner:8} {symbol}")
        commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        line = {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": commit,
            "machine": {"cores": os.cpu_count(), "kernel": platform.release()}, "messages": args.messages, "rate": args.rate, "client": f"librdkafka, 1 KiB, batches of 64 KiB, idempotent, 10 partitions, {args.durability}, cores of their own",
            "cpu_s_per_million": costs, "of_them_kernel": system, "bare": bare, "medians": {kind: round(statistics.median(of), 2) for kind, of in costs.items()}, "percent_of_samples": profiles,
        }
        print(json.dumps(line))
        with open(args.results, "a", encoding="utf-8") as results:
            results.write(json.dumps(line) + "\n")
    finally:
        for broker in brokers:
            broker.process.terminate()
            broker.process.wait()
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
