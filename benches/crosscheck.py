"""The same fixed load by polylogue-bench and by the vendor's own tool, in turns, against one broker: do they measure the same?

    crosscheck.py target/release/polylogue-bench BUILD [--only SYSTEM] [--rounds N] [--seconds N] [--rate N] [--results FILE]

BUILD is the folder in which `polylogue-bench peers install` and `peers workers` have put things; the tools go to BUILD/crosscheck.
Both put 1 KiB messages on one partition or queue at the same rate with the vendor's Java client, batches of up to 128 KiB or 1 ms,
and one reader; the first seconds are thrown away. Prints rate, p50 and p99 of both with the difference, and appends a line for each
round to the results.

    kafka      kafka-producer-perf-test, kafka-consumer-perf-test   publish latency
    pulsar     pulsar-perf produce, pulsar-perf consume             publish latency
    rabbitmq   PerfTest                                             confirm latency, and from producer to consumer

What differs by itself: polylogue-bench counts from the moment when a message should have been sent, the tools from the moment when it
was; and sends each message when it is due, the tools all that is due after a sleep. kafka-producer-perf-test takes whole milliseconds: of its
latencies only the mean is finer than that. PerfTest tells no mean.
"""

import argparse
import contextlib
import datetime
import json
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

SIZE = 1024
BATCH_BYTES = 128 << 10
LINGER_MS = 1
WARMUP_S = 10
UNCONFIRMED, PREFETCH, ACK_EVERY = 1000, 500, 100
JVM = ["java", "-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
TESTCLIENT = "org.apache.pulsar:pulsar-testclient:4.0.8"
PERF_TEST = "2.22.1"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>polylogue</groupId><artifactId>crosscheck</artifactId><version>1</version><dependencies><dependency>
<groupId>com.rabbitmq</groupId><artifactId>perf-test</artifactId><version>%s</version></dependency></dependencies></project>
"""
LOG4J = """<Configuration status="WARN"><Appenders><Console name="out"><PatternLayout pattern="%m%n"/></Console></Appenders>
<Loggers><Root level="info"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""
# Between the tools' end and that of their reader. Seconds.
END_S = 60
# How long a reader's JVM has before messages are sent.
START_S = 4


class Failed(Exception):
    pass


def maven(*arguments):
    if not shutil.which("mvn"):
        raise Failed("install Maven: the vendors' tools come from it")
    done = subprocess.run(["mvn", "-q", "-B", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"Maven fails: {(done.stdout + done.stderr).strip()}")


def find(pattern, text, what):
    """The groups of the last match."""
    matches = list(re.finditer(pattern, text))
    if not matches:
        raise Failed(f"{what} says nothing of its latency:\n{text[-2000:]}")
    return [float(group) for group in matches[-1].groups()]


class Load:
    def __init__(self, arguments):
        self.rate, self.window_s = arguments.rate, arguments.seconds
        self.all_s = WARMUP_S + self.window_s


class Kafka:
    latencies = ["publish"]

    def __init__(self, build):
        self.path = f"{build}/peers/kafka/*"

    def ours(self):
        return []

    def tool(self, load, broker, topic):
        make = ["--bootstrap-server", broker.address, "--create", "--topic", topic, "--partitions", "1"]
        subprocess.run([*JVM, "-cp", self.path, "org.apache.kafka.tools.TopicCommand", *make], check=True, capture_output=True)
        count = load.rate * load.all_s
        reads = [*JVM, "-cp", self.path, "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", broker.address]
        reads += ["--topic", topic, "--num-records", str(count), "--timeout", str((load.all_s + END_S) * 1000), "--hide-header"]
        with running(reads) as reader:
            command = [*JVM, "-cp", self.path, "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", broker.address]
            command += ["--topic", topic, "--num-records", str(count), "--warmup-records", str(load.rate * WARMUP_S)]
            command += ["--throughput", str(load.rate), "--record-size", str(SIZE), "--command-property", "acks=all"]
            command += [f"batch.size={BATCH_BYTES}", f"linger.ms={LINGER_MS}"]
            said = output(command)
            read = rest(reader)
        pattern = r"([\d.]+) records/sec .*?([\d.]+) ms avg latency, .*?(\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th"
        rate, mean, p50, p99 = find(pattern, said, "kafka-producer-perf-test")
        received = [line.split(", ") for line in read.splitlines() if line.count(", ") >= 9]
        if not received or float(received[-1][4]) < count:
            raise Failed(f"kafka-consumer-perf-test has not read all:\n{read[-2000:]}")
        return {"per_s": rate, "publish": {"mean_ms": mean, "p50_ms": p50, "p99_ms": p99}}


class Pulsar:
    latencies = ["publish"]

    def __init__(self, build):
        self.place = build / "crosscheck/pulsar"
        self.path = f"{self.place}:{self.place}/*:{build}/peers/pulsar/*"
        if not list(self.place.glob("pulsar-testclient-*.jar")):
            maven("dependency:copy", f"-Dartifact={TESTCLIENT}", f"-DoutputDirectory={self.place}")
        (self.place / "empty.conf").write_text("")
        (self.place / "log4j2.xml").write_text(LOG4J)

    def ours(self):
        return []

    def perf(self, broker, *arguments):
        opens = ["--add-opens=java.base/sun.net=ALL-UNNAMED", "-Dio.netty.tryReflectionSetAccessible=true"]
        command = [*JVM, *opens, "-cp", self.path, "org.apache.pulsar.testclient.PulsarPerfTestTool", str(self.place / "empty.conf")]
        return [*command, arguments[0], "-u", f"pulsar://{broker.address}", *map(str, arguments[1:])]

    def tool(self, load, broker, topic):
        pending = max(BATCH_BYTES // SIZE * 5, 1)
        sends = ["produce", "-r", load.rate, "-s", SIZE, "-b", LINGER_MS, "-bb", BATCH_BYTES, "-bm", BATCH_BYTES // SIZE, "-o", pending]
        sends += ["--warmup-time", WARMUP_S, "-i", 5, "-m", load.rate * load.all_s, topic]
        reads = ["consume", "-ss", "reads", "-sp", "Earliest", "-m", load.rate * load.all_s, topic]
        with running(self.perf(broker, *reads)) as reader:
            said = output(self.perf(broker, *sends))
            read = rest(reader)
        pattern = r"Aggregated latency stats --- Latency: mean:\s+([\d.]+) ms - med:\s+([\d.]+) - 95pct:\s+[\d.]+ - 99pct:\s+([\d.]+)"
        mean, p50, p99 = find(pattern, said, "pulsar-perf produce")
        # Its mean rate is that until a tick after the end: the ticks before are what was sent, the first one with its start in it.
        ticks = [float(rate) for rate in re.findall(r"Throughput produced:\s+\d+ msg ---\s+([\d.]+) msg/s", said)]
        if not ticks:
            raise Failed(f"pulsar-perf produce says nothing of its rate:\n{said[-2000:]}")
        if "Aggregated" not in read:
            raise Failed(f"pulsar-perf consume has not read all:\n{read[-2000:]}")
        return {"per_s": statistics.median(ticks[1:] or ticks), "publish": {"mean_ms": mean, "p50_ms": p50, "p99_ms": p99}}


class Rabbitmq:
    latencies = ["publish", "end_to_end"]

    def __init__(self, build):
        place = build / "crosscheck/rabbitmq"
        self.path = f"{place}/*"
        if not list(place.glob("perf-test-*.jar")):
            place.mkdir(parents=True, exist_ok=True)
            (place / "pom.xml").write_text(POM % PERF_TEST)
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={place}"]
            maven("-f", str(place / "pom.xml"), *goal)

    def ours(self):
        return ["--in-flight", str(UNCONFIRMED), "--prefetch", str(PREFETCH), "--ack-every", str(ACK_EVERY)]

    def tool(self, load, broker, topic):
        command = [*JVM, "-cp", self.path, "com.rabbitmq.perf.PerfTest", "-h", f"amqp://guest:guest@{broker.address}", "-u", topic]
        command += ["-x", 1, "-y", 1, "-s", SIZE, "-r", load.rate, "-c", UNCONFIRMED, "-q", PREFETCH, "-A", ACK_EVERY]
        # Each tick tells of itself alone: the first one is the warm-up, the second one is measured.
        command += ["-f", "persistent", "-ad", "false", "-i", load.window_s, "-z", 2 * load.window_s + 2]
        said = output([str(part) for part in command])
        ticks = [line for line in said.splitlines() if line.lstrip().startswith("id:") and "latency" in line]
        if len(ticks) < 2:
            raise Failed(f"PerfTest has not reported two ticks:\n{said[-2000:]}")
        return self.tick(ticks[1], said)

    @staticmethod
    def tick(line, said):
        rate = find(r"sent: ([\d.]+) msg/s", line, "PerfTest")[0]
        reported = {"per_s": rate}
        for name, key in (("confirm", "publish"), ("consumer", "end_to_end")):
            found = re.search(rf"{name} latency: \d+/(\d+)/\d+/\d+/(\d+) (\S+)", line)
            if not found:
                raise Failed(f"PerfTest says nothing of its {name} latency:\n{said[-2000:]}")
            unit = 1 if found[3].startswith("ms") else 1000
            reported[key] = {"p50_ms": int(found[1]) / unit, "p99_ms": int(found[2]) / unit}
        return reported


SYSTEMS = {"kafka": Kafka, "pulsar": Pulsar, "rabbitmq": Rabbitmq}


@contextlib.contextmanager
def running(command):
    """A reader, which has the time to get to its messages before there are any: its start is not to be measured."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(START_S)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def rest(process):
    """What a reader says until it has read everything."""
    try:
        return process.communicate(timeout=END_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failed(f"the reader has not come to its end:\n{process.communicate()[0][-2000:]}") from None


def output(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise Failed(f"{command[0]} fails:\n{done.stdout[-2000:]}")
    return done.stdout


class Broker:
    """A peer that `peers run` keeps up until the end of the block."""

    def __init__(self, bench, build, system):
        self.command = [bench, "--build", str(build), "peers", "run", system]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline()
        found = re.search(r"listening on (\S+?)(?:, administered at (\S+))?$", said.strip())
        if not found:
            raise Failed(f"the broker does not start: {said}")
        self.address, self.admin = found[1], found[2]
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def ours(bench, build, system, tool, load, broker, topic):
    command = [bench, "--json", "--build", str(build), "run", "--target", f"{system}={broker.address}", "--client", "java"]
    command += ["--topic", topic, "--rate", str(load.rate), "--message-bytes", str(SIZE), "--batch-bytes", str(BATCH_BYTES)]
    command += ["--linger", f"{LINGER_MS}ms", "--warmup", f"{WARMUP_S}s", "--window", f"{load.window_s}s", *tool.ours()]
    if broker.admin:
        command += ["--admin", broker.admin]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failed(f"polylogue-bench fails: {done.stdout}")
    said = json.loads(done.stdout.splitlines()[-1])
    return {"per_s": said["per_s"], **{name: said[name] for name in tool.latencies}}


def compared(tool, mine, theirs):
    rows = [("rate", mine["per_s"], theirs["per_s"])]
    for name in tool.latencies:
        figures = [p for p in ("mean", "p50", "p99") if f"{p}_ms" in theirs[name]]
        rows += [(f"{name} {p}", mine[name][f"{p}_ms"], theirs[name][f"{p}_ms"]) for p in figures]
    return rows


def difference(mine, theirs):
    return f"{(mine / theirs - 1) * 100:+.1f} %" if mine is not None and theirs else "-"


def tell(system, what, rows):
    for name, mine, theirs in rows:
        shown = "-" if mine is None else f"{mine:.3f}"
        print(f"{system:<9} {what:<8} {name:<15} {shown:>12} {theirs:>12.3f} {difference(mine, theirs):>9}", flush=True)


def crosscheck(system, arguments, load):
    build = pathlib.Path(arguments.build).resolve()
    tool = SYSTEMS[system](build)
    all_rows = []
    with Broker(arguments.bench, build, system) as broker:
        for number in range(1, arguments.rounds + 1):
            turns = {
                "polylogue-bench": lambda: ours(arguments.bench, build, system, tool, load, broker, f"ours{number}"),
                "vendor": lambda: tool.tool(load, broker, f"theirs{number}"),
            }
            order = list(turns)[:: 1 if number % 2 else -1]
            reported = {who: turns[who]() for who in order}
            rows = compared(tool, reported["polylogue-bench"], reported["vendor"])
            tell(system, f"round {number}", rows)
            all_rows.append(rows)
            line = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "system": system}
            line |= {"round": number, "rate": load.rate, "window_s": load.window_s, **reported}
            with open(arguments.results, "a") as results:
                results.write(json.dumps(line) + "\n")
    medians = []
    for place, (name, _, _) in enumerate(all_rows[0]):
        sides = [[rows[place][side] for rows in all_rows if rows[place][side] is not None] for side in (1, 2)]
        medians.append((name, *(statistics.median(values) if values else None for values in sides)))
    tell(system, "medians", medians)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("build")
    parser.add_argument("--only", choices=SYSTEMS, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20, help="the window of a round; before it 10 s are thrown away")
    parser.add_argument("--rate", type=int, default=10_000, help="messages a second")
    parser.add_argument("--results", default="benches/results/crosscheck.jsonl")
    arguments = parser.parse_args()
    print(f"{'system':<9} {'':<8} {'':<15} {'polylogue-bench':>12} {'vendor':>9} {'difference':>9}")
    failed = False
    for system in arguments.only or SYSTEMS:
        try:
            crosscheck(system, arguments, Load(arguments))
        except Failed as why:
            print(f"{system}: {why}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
