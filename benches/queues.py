"""Queues in trouble: what they cost, and what the others notice.

    queues.py target/release/polylogue [CASE ...]

Cases, all of them unless some are named:

    backlog      BACKLOG messages of 100 bytes in a queue without consumers
    never-acks   a consumer that takes messages and acknowledges none
    queues       QUEUES durable queues: declared, a message in each, killed, started again
    hot          a queue at full speed beside COLD others
    connections  CONNECTIONS connections with a channel each, then with a consumer each
    lookups      basic.get of an empty queue, and logins, beside a connection that declares QUEUES queues without waiting
    lateness     messages that live for 20 and 100 ms, and when each is in the queue where dead ones go

Each case prints JSON lines: rates, memory of the broker, and latencies of a probe on a queue of its own (a publisher that waits for its confirm
and a consumer that acknowledges, 200 messages a second). Latencies count from when a message was due, so that one that had to wait for the one
before it shows that. BACKLOG, QUEUES, COLD, CONNECTIONS and SECONDS are variables of the environment. Each line says when, where and of
which commit it is.
Speaks AMQP 0-9-1 over bare sockets with frames that are encoded before, so that no client library is what is measured.
"""

import contextlib
import functools
import json
import multiprocessing
import os
import select
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

BACKLOG = int(os.environ.get("BACKLOG", "10000000"))
QUEUES = int(os.environ.get("QUEUES", "10000"))
COLD = int(os.environ.get("COLD", "1000"))
CONNECTIONS = int(os.environ.get("CONNECTIONS", "2000"))
SECONDS = float(os.environ.get("SECONDS", "10"))
BODY = b"x" * 100
# Messages that are sent at once, and such batches on their way.
BATCH = 1000
BATCHES_MAX = 20
# How long a message of the probe may take.
PATIENCE_S = 60


def short(text):
    raw = text.encode()
    return bytes([len(raw)]) + raw


def method(channel, number, arguments):
    payload = struct.pack(">HH", *number) + arguments
    return struct.pack(">BHI", 1, channel, len(payload)) + payload + b"\xce"


def publish(queue, body):
    """A persistent message for a queue."""
    header = struct.pack(">HHQHB", 60, 0, len(body), 1 << 12, 2)
    frames = method(1, (60, 40), struct.pack(">H", 0) + short("") + short(queue) + b"\0")
    frames += struct.pack(">BHI", 2, 1, len(header)) + header + b"\xce"
    return frames + struct.pack(">BHI", 3, 1, len(body)) + body + b"\xce"


class Amqp:
    """A connection with one channel."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = bytearray()
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.expect((10, 10))
        start = struct.pack(">I", 0) + short("PLAIN") + struct.pack(">I", 12) + b"\0guest\0guest" + short("en_US")
        self.socket.sendall(method(0, (10, 11), start))
        self.expect((10, 30))
        self.socket.sendall(method(0, (10, 31), struct.pack(">HIH", 2047, 131072, 0)))
        self.ask(0, (10, 40), short("/") + short("") + b"\0")
        self.ask(1, (20, 10), short(""))

    def read(self):
        data = self.socket.recv(1 << 20)
        assert data, "the broker closed the connection"
        self.input += data

    def frame(self):
        """Type and payload of the next frame; None as long as it is not there."""
        if len(self.input) < 7:
            return None
        kind, _, size = struct.unpack_from(">BHI", self.input)
        if len(self.input) < size + 8:
            return None
        payload = bytes(self.input[7 : 7 + size])
        del self.input[: size + 8]
        return kind, payload

    def expect(self, number):
        while True:
            frame = self.frame()
            if frame is None:
                self.read()
                continue
            got = struct.unpack_from(">HH", frame[1])
            assert got == number, f"{got} instead of {number}: {frame[1]}"
            return frame[1]

    def ask(self, channel, number, arguments, answers=1):
        """Asks and waits for the answer, whose number is the next one."""
        self.socket.sendall(method(channel, number, arguments))
        return self.expect((number[0], number[1] + answers))

    def declare(self, queue, **arguments):
        self.ask(1, (50, 10), declaration(queue, arguments))

    def confirms(self):
        self.ask(1, (85, 10), b"\0")

    def consume(self, queue, no_ack=False, prefetch=0):
        self.ask(1, (60, 10), struct.pack(">IH", 0, prefetch) + b"\0")
        arguments = struct.pack(">H", 0) + short(queue) + short("c") + bytes([2 if no_ack else 0]) + struct.pack(">I", 0)
        self.ask(1, (60, 20), arguments)


def declaration(queue, arguments=None):
    """A durable queue, with arguments that are texts or numbers; their names say `_` for `-`."""
    table = b""
    for name, value in (arguments or {}).items():
        table += short(name.replace("_", "-"))
        table += struct.pack(">cq", b"l", value) if isinstance(value, int) else struct.pack(">cI", b"S", len(value)) + value.encode()
    return struct.pack(">H", 0) + short(queue) + bytes([2]) + struct.pack(">I", len(table)) + table


class Broker:
    def __init__(self, binary, place):
        self.binary, self.place = binary, place
        self.start()

    def start(self):
        began = time.perf_counter()
        listen = [part for name in ("amqp", "http") for part in ("--listen", f"{name}=127.0.0.1:0")]
        command = [self.binary, "serve", "--data", f"{self.place}/d", *listen]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("amqp listening on "):
                self.port = int(line.split()[3].rsplit(":", 1)[1])
            if line.startswith("polylogue ready"):
                self.ready_s = time.perf_counter() - began
                return
        raise SystemExit("the broker did not start")

    def status(self, field):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(field))

    def rss_mib(self):
        return round(self.status("VmRSS") / 1024, 1)

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(120)

    def restart(self, how):
        self.end(how)
        self.start()
        return round(self.ready_s, 3)


@contextlib.contextmanager
def broker(binary):
    place = tempfile.mkdtemp(dir=os.environ.get("BENCH_DIR"))
    running = Broker(binary, place)
    try:
        yield running
    finally:
        running.end(signal.SIGKILL)
        shutil.rmtree(place)


@functools.cache
def commit():
    """The commit of this checkout, with a + when something was changed; results that grew change nothing."""
    here = os.path.dirname(os.path.abspath(__file__))

    def git(*arguments):
        return subprocess.run(["git", "-C", here, *arguments], capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)benches/results")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


@functools.cache
def machine():
    """As the lines of polylogue-bench tell it. Nothing here names it."""
    with open("/proc/cpuinfo") as info:
        models = [line.split(": ", 1)[1].strip() for line in info if line.startswith("model name")]
    with open("/proc/meminfo") as info:
        kib = next(int(line.split()[1]) for line in info if line.startswith("MemTotal:"))
    processor = models[0] if models else "unknown"
    return {"cores": len(os.sched_getaffinity(0)), "processor": processor, "memory_bytes": kib * 1024, "kernel": os.uname().release}


def say(case, state, **figures):
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    origin = {"bench": "queues", "date": date, "commit": commit(), "machine": machine()}
    print(json.dumps({**origin, "case": case, "state": state, **figures}), flush=True)


def percentiles(samples, name):
    samples = sorted(samples)
    at = lambda share: round(samples[min(len(samples) - 1, int(len(samples) * share))] * 1000, 3)
    return {f"{name}_p50_ms": at(0.5), f"{name}_p99_ms": at(0.99), f"{name}_max_ms": at(1.0)}


def probe(port, seconds, queues=("probe",), rate=200):
    """Latencies of messages sent one by one to these queues in turn: from when each was due until its confirm, and until its delivery."""
    sender, taker = Amqp(port), Amqp(port)
    for queue in queues:
        sender.declare(queue)
    sender.confirms()
    for queue in queues:
        arguments = struct.pack(">H", 0) + short(queue) + short(queue) + bytes([0]) + struct.pack(">I", 0)
        taker.ask(1, (60, 20), arguments)
    messages = [publish(queue, BODY) for queue in queues]
    confirmed, delivered = [], []
    poll = select.poll()
    for client in (sender, taker):
        poll.register(client.socket, select.POLLIN)
    next_at = time.perf_counter()
    for turn in range(int(seconds * rate)):
        next_at += 1 / rate
        time.sleep(max(0, next_at - time.perf_counter()))
        sender.socket.sendall(messages[turn % len(messages)])
        waits = {sender.socket.fileno(), taker.socket.fileno()}
        late = time.perf_counter() + PATIENCE_S
        while waits:
            if time.perf_counter() > late:
                raise SystemExit(f"message {turn} of the probe got no confirm or no delivery in {PATIENCE_S} s")
            for ready, _ in poll.poll(1_000):
                client = sender if ready == sender.socket.fileno() else taker
                client.read()
                # From when it was due: what the one before it held up is waited for by this one too.
                took = time.perf_counter() - next_at
                while frame := client.frame():
                    kind, payload = frame
                    if kind == 3:
                        delivered.append(took)
                        waits.discard(ready)
                    elif kind == 1 and struct.unpack_from(">HH", payload) == (60, 80):
                        confirmed.append(took)
                        waits.discard(ready)
                    elif kind == 1:
                        tag_at = 5 + payload[4]
                        tag = payload[tag_at : tag_at + 8]
                        taker.socket.sendall(method(1, (60, 80), tag + b"\0"))
    return {**percentiles(confirmed, "confirm"), **percentiles(delivered, "delivery")}


class Flood:
    """Publishes as fast as confirms allow."""

    def __init__(self, port, queue):
        self.amqp = Amqp(port)
        self.amqp.declare(queue)
        self.amqp.confirms()
        self.batch = publish(queue, BODY) * BATCH
        self.sent = self.confirmed = 0

    def step(self):
        self.amqp.socket.sendall(self.batch)
        self.sent += BATCH
        self.settle(BATCHES_MAX * BATCH)

    def settle(self, open_max=0):
        while self.sent - self.confirmed > open_max:
            frame = self.amqp.frame()
            if frame is None:
                self.amqp.read()
                continue
            number = struct.unpack_from(">HH", frame[1])
            assert number == (60, 80), frame
            tag, multiple = struct.unpack_from(">QB", frame[1], 4)
            self.confirmed = max(self.confirmed, tag) if multiple else self.confirmed + 1


def fill(port, queue, count, each=None):
    """So many messages; `each` hears how many there are, a hundred times."""
    flood = Flood(port, queue)
    while flood.sent < count:
        flood.step()
        if each and flood.sent % max(BATCH, count // 100) < BATCH:
            each(flood.sent)
    flood.settle()


def at_full_speed(port, queue, consume, stop, rate):
    """A publisher and perhaps a consumer, in a process of their own."""
    taker = multiprocessing.Process(target=drain, args=(port, queue), daemon=True) if consume else None
    flood = Flood(port, queue)
    if taker:
        taker.start()
    began = time.perf_counter()
    while not stop.is_set():
        flood.step()
    rate.value = flood.confirmed / (time.perf_counter() - began)
    if taker:
        taker.kill()


def drain(port, queue):
    """Takes messages and looks at none."""
    amqp = Amqp(port)
    amqp.consume(queue, no_ack=True)
    while amqp.socket.recv(1 << 20):
        pass


@contextlib.contextmanager
def beside(port, queue, consume):
    stop, rate = multiprocessing.Event(), multiprocessing.Value("d", 0)
    process = multiprocessing.Process(target=at_full_speed, args=(port, queue, consume, stop, rate))
    process.start()
    time.sleep(1)
    yield rate
    stop.set()
    process.join(60)


def backlog(binary):
    with broker(binary) as running:
        say("backlog", "empty", rss_mib=running.rss_mib(), **probe(running.port, SECONDS))
        memory, cpu = [], running.cpu_s()
        began = time.perf_counter()
        process = multiprocessing.Process(target=fill, args=(running.port, "backlog", BACKLOG))
        process.start()
        during = []
        while process.is_alive():
            during.append(probe(running.port, min(SECONDS, 5)))
            memory.append(running.rss_mib())
        took = time.perf_counter() - began
        worst = {key: max(one[key] for one in during) for key in during[0]}
        typical = {f"median_of_{key}": round(statistics.median(one[key] for one in during), 3) for key in during[0]}
        say("backlog", "filling", messages=BACKLOG, per_s=round(BACKLOG / took), rss_mib_max=max(memory),
            broker_cpu_s_per_million=round((running.cpu_s() - cpu) * 1e6 / BACKLOG, 2), **worst, **typical)
        say("backlog", "full", messages=BACKLOG, rss_mib=running.rss_mib(), **probe(running.port, SECONDS))
        say("backlog", "after a kill", ready_s=running.restart(signal.SIGKILL), rss_mib=running.rss_mib(),
            **probe(running.port, SECONDS))
        took = time.perf_counter()
        amqp, left = Amqp(running.port), 200_000
        amqp.consume("backlog", no_ack=True)
        while left > 0:
            amqp.read()
            while frame := amqp.frame():
                left -= frame[0] == 3
        say("backlog", "reading the oldest", per_s=round(200_000 / (time.perf_counter() - took)), rss_mib=running.rss_mib())


def never_acks(binary):
    with broker(binary) as running:
        taker = Amqp(running.port)
        taker.declare("stuck")
        taker.consume("stuck")
        before = running.rss_mib()
        fill(running.port, "stuck", 1_000_000)
        held = 0
        taker.socket.settimeout(3)
        with contextlib.suppress(TimeoutError):
            while True:
                taker.read()
                while frame := taker.frame():
                    held += frame[0] == 3
        say("never-acks", "1 million published", held=held, rss_mib_before=before, rss_mib=running.rss_mib(),
            **probe(running.port, SECONDS))
        with beside(running.port, "stuck", consume=False) as rate:
            figures = probe(running.port, SECONDS)
            rss = running.rss_mib()
        say("never-acks", "its queue filling on", per_s=round(rate.value), rss_mib=rss, **figures)


def queues(binary):
    with broker(binary) as running:
        before, amqp = running.rss_mib(), Amqp(running.port)
        names = [f"queue-{i}" for i in range(QUEUES)]
        began, cpu, tenths = time.perf_counter(), running.cpu_s(), []
        for at, name in enumerate(names):
            if at % (QUEUES // 10) == 0:
                tenths.append(time.perf_counter())
            amqp.declare(name)
        declared = time.perf_counter()
        tenth = QUEUES // 10
        say("queues", "declared", queues=QUEUES, per_s=round(QUEUES / (declared - began)),
            per_s_first_tenth=round(tenth / (tenths[1] - tenths[0])), per_s_last_tenth=round(tenth / (declared - tenths[9])),
            broker_cpu_us_each=round((running.cpu_s() - cpu) * 1e6 / QUEUES), rss_mib_before=before, rss_mib=running.rss_mib())
        amqp.confirms()
        began = time.perf_counter()
        for at in range(0, QUEUES, BATCH):
            amqp.socket.sendall(b"".join(publish(name, BODY) for name in names[at : at + BATCH]))
        confirmed = 0
        while confirmed < QUEUES:
            tag, multiple = struct.unpack_from(">QB", amqp.expect((60, 80)), 4)
            confirmed = max(confirmed, tag) if multiple else confirmed + 1
        took = time.perf_counter() - began
        say("queues", "a message in each", per_s=round(QUEUES / took), rss_mib=running.rss_mib(), **probe(running.port, SECONDS))
        for how, name in ((signal.SIGKILL, "after a kill"), (signal.SIGTERM, "after a stop")):
            say("queues", name, queues=QUEUES, ready_s=running.restart(how), rss_mib=running.rss_mib(), **probe(running.port, 2))


def hot(binary):
    with broker(binary) as running:
        names = tuple(f"cold-{i}" for i in range(COLD))
        say("hot", "the cold ones alone", cold=COLD, **probe(running.port, SECONDS, names))
        with beside(running.port, "hot", consume=True) as rate:
            figures = probe(running.port, SECONDS, names)
        say("hot", "beside the hot one", cold=COLD, hot_per_s=round(rate.value), rss_mib=running.rss_mib(), **figures)


def connections(binary):
    with broker(binary) as running:
        warm = [Amqp(running.port) for _ in range(50)]
        before = running.status("VmRSS")
        began = time.perf_counter()
        many = [Amqp(running.port) for _ in range(CONNECTIONS)]
        took = time.perf_counter() - began
        time.sleep(1)
        kib = (running.status("VmRSS") - before) / CONNECTIONS
        say("connections", "with a channel", connections=CONNECTIONS, per_s=round(CONNECTIONS / took), kib_each=round(kib, 2))
        for i, amqp in enumerate(many):
            amqp.declare(f"c{i}")
        declared = running.status("VmRSS")
        for i, amqp in enumerate(many):
            amqp.consume(f"c{i}", prefetch=10)
        time.sleep(1)
        kib = (running.status("VmRSS") - declared) / CONNECTIONS
        say("connections", "with a consumer, beside that", kib_each=round(kib, 2), **probe(running.port, 2))
        del warm


def declare_all(port, count, done):
    """Declares queues without waiting for each, in a process of its own."""
    amqp = Amqp(port)
    for at in range(0, count, BATCH):
        amqp.socket.sendall(b"".join(method(1, (50, 10), declaration(f"queue-{i}")) for i in range(at, at + BATCH)))
        for _ in range(BATCH):
            amqp.expect((50, 11))
    done.set()


def look_up(port, until):
    """Latencies of basic.get of an empty queue one after the other, and of logins, until it is time."""
    amqp, gets, logins = Amqp(port), [], []
    amqp.declare("empty")
    while not until() or len(gets) < 1_000:
        for _ in range(20):
            began = time.perf_counter()
            amqp.ask(1, (60, 70), struct.pack(">H", 0) + short("empty") + b"\1", answers=2)
            gets.append(time.perf_counter() - began)
            time.sleep(0.001)
        began = time.perf_counter()
        Amqp(port).socket.close()
        logins.append(time.perf_counter() - began)
    return {"gets": len(gets), **percentiles(gets, "get"), "logins": len(logins), **percentiles(logins, "login")}


def lookups(binary):
    with broker(binary) as running:
        say("lookups", "alone", **look_up(running.port, lambda: True))
        done = multiprocessing.Event()
        process = multiprocessing.Process(target=declare_all, args=(running.port, QUEUES, done))
        began = time.perf_counter()
        process.start()
        figures = look_up(running.port, done.is_set)
        process.join()
        say("lookups", "beside declarations", queues=QUEUES, declared_per_s=round(QUEUES / (time.perf_counter() - began)), **figures)


def late(port, queue, ttl_ms, seconds, rate=200):
    """How much later than its life each message of a queue is with the consumer of the dead, of messages that are sent when they are due."""
    sender, taker = Amqp(port), Amqp(port)
    taker.declare(f"{queue}-dead")
    sender.declare(queue, x_message_ttl=ttl_ms, x_dead_letter_exchange="", x_dead_letter_routing_key=f"{queue}-dead")
    taker.consume(f"{queue}-dead", no_ack=True)
    lateness, total, sent = [], int(seconds * rate), 0
    began = time.perf_counter()
    while len(lateness) < total:
        next_at = began + sent / rate if sent < total else began + seconds + PATIENCE_S
        now = time.perf_counter()
        if now >= next_at:
            if sent >= total:
                raise SystemExit(f"{total - len(lateness)} messages never died")
            sender.socket.sendall(publish(queue, struct.pack(">d", time.perf_counter())))
            sent += 1
            continue
        if not select.select([taker.socket], [], [], next_at - now)[0]:
            continue
        taker.read()
        now = time.perf_counter()
        while frame := taker.frame():
            if frame[0] == 3:
                lateness.append(now - struct.unpack(">d", frame[1])[0] - ttl_ms / 1000)
    return {"messages": total, "late_min_ms": round(min(lateness) * 1000, 3), **percentiles(lateness, "late")}


def lateness(binary):
    with broker(binary) as running:
        for ttl_ms in (20, 100):
            say("lateness", "nothing else", ttl_ms=ttl_ms, **late(running.port, f"lives-{ttl_ms}", ttl_ms, SECONDS))
        with beside(running.port, "hot", consume=True) as rate:
            figures = {ttl_ms: late(running.port, f"lives-too-{ttl_ms}", ttl_ms, SECONDS) for ttl_ms in (20, 100)}
        for ttl_ms, one in figures.items():
            say("lateness", "beside a hot queue", ttl_ms=ttl_ms, hot_per_s=round(rate.value), **one)


CASES = {
    "backlog": backlog,
    "never-acks": never_acks,
    "queues": queues,
    "hot": hot,
    "connections": connections,
    "lookups": lookups,
    "lateness": lateness,
}

if __name__ == "__main__":
    for case in sys.argv[2:] or CASES:
        CASES[case](sys.argv[1])
