"""What the programs of AMQP clients share: the names of cases, waiting, a way that can be cut. See ../README.md."""

import socket
import sys
import threading
import time
import traceback
import uuid

WAIT_S = 60
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def fresh(prefix):
    return f"{prefix}-{uuid.uuid4()}"


def address():
    """Host and port of the amqp listener, from the program's arguments."""
    host, port = sys.argv[1].rsplit(":", 1)
    return host, int(port)


def until(what, check):
    end = time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.02)


class Way:
    """A way to the broker that can be cut and opened again: what a client sees of a broker that dies and comes back."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.is_open = True
        self.taken = 0
        self.ends = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            if not self.is_open:
                near.close()
                continue
            far = socket.create_connection(address())
            self.taken += 1
            self.ends += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=pump, args=(one, other), daemon=True).start()

    def cut(self):
        """Ends the connections, and refuses new ones until `mend`."""
        self.is_open = False
        ends, self.ends = self.ends, []
        for end in ends:
            shut(end)

    def mend(self):
        self.is_open = True


def shut(end):
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it was shut by the other side before


def pump(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass  # cut
    shut(one)
    shut(other)


def main(run):
    """Runs the cases that the arguments name, each by `run(case)`."""
    if sys.argv[1:] == ["--list"]:
        print("\n".join(CASES))
        return
    failed = 0
    for name in sys.argv[2:] or CASES:
        try:
            run(CASES[name])
            print(f"ok {name}", flush=True)
        except Exception as error:  # any failure is one of the case
            failed += 1
            traceback.print_exc()
            print(f"FAIL {name}: {error!r}", flush=True)
    sys.exit(failed > 0)
