"""Time from starting the broker on an empty directory to the first acknowledged write, and its memory when idle.

    start.py target/release/polylogue [RUNS]

Speaks the protocol over a bare socket, so that no client library's own start counts. Prints one JSON line.
"""

import json
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def string(text):
    return struct.pack(">h", len(text)) + text.encode()


def batch(value):
    record = bytes([0, 0, 0, 1, len(value) << 1]) + value + b"\0"
    body = struct.pack(">hiqqqhii", 0, 0, 1000, 1000, -1, -1, -1, 1) + bytes([len(record) << 1]) + record
    tail = struct.pack(">ibI", -1, 2, crc32c(body)) + body
    return struct.pack(">qi", 0, len(tail)) + tail


def ask(stream, key, version, body):
    frame = struct.pack(">hhi", key, version, 7) + string("start") + body
    stream.sendall(struct.pack(">i", len(frame)) + frame)
    need, got = 4, b""
    while len(got) < need:
        got += stream.recv(65536)
        if len(got) >= 4:
            need = 4 + struct.unpack(">i", got[:4])[0]
    return got[8:]


def one_run(binary):
    place = tempfile.mkdtemp()
    began = time.perf_counter()
    broker = subprocess.Popen(
        [binary, "serve", "--data", f"{place}/d", "--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    port = None
    for line in broker.stdout:
        if line.startswith("kafka listening on "):
            port = int(line.split()[3].rsplit(":", 1)[1])
        if line.startswith("polylogue ready"):
            break
    ready = time.perf_counter()
    stream = socket.create_connection(("127.0.0.1", port))
    records = batch(b"hello")
    error = 1
    while error:
        ask(stream, 3, 4, struct.pack(">i", 1) + string("first") + b"\1")
        produce = struct.pack(">hhii", -1, -1, 30000, 1) + string("first") + struct.pack(">iii", 1, 0, len(records))
        answer = ask(stream, 0, 3, produce + records)
        error = struct.unpack(">h", answer[4 + 2 + 5 + 4 + 4 :][:2])[0]
    acknowledged = time.perf_counter()
    time.sleep(1)
    with open(f"/proc/{broker.pid}/status") as status:
        rss = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    broker.send_signal(signal.SIGTERM)
    broker.wait(30)
    shutil.rmtree(place)
    return (ready - began) * 1000, (acknowledged - began) * 1000, rss / 1024


def main(binary, runs=9):
    results = [one_run(binary) for _ in range(int(runs))]
    names = ["ready_ms", "first_ack_ms", "idle_rss_mib"]
    medians = {name: round(statistics.median(r[i] for r in results), 1) for i, name in enumerate(names)}
    spread = {f"{name}_max": round(max(r[i] for r in results), 1) for i, name in enumerate(names)}
    print(json.dumps({"bench": "start", "runs": len(results), "cores": os.cpu_count(), **medians, **spread}))


if __name__ == "__main__":
    main(*sys.argv[1:])
