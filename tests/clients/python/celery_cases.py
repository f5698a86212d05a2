"""Cases of a task queue with Celery (over kombu and py-amqp): HOST:PORT of the amqp listener, and names of cases. See ../README.md.

Workers are processes of their own. Results come back over AMQP (`rpc://`), which Celery does not offer chords with: those keep their
results in files (`file://`), so that their messages are still all that the broker carries.
"""

import atexit
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime, timedelta, timezone

import celery_tasks
from amqp_shared import WAIT_S, Way, address, case, fresh, main, until
from celery import chain, chord, group, uuid
from celery.exceptions import TaskRevokedError

HERE = os.path.dirname(os.path.abspath(__file__))
ONE = ("-P", "solo")
TWO = ("-P", "prefork", "-c", "2")
# What a worker must not say of its broker.
TROUBLE = re.compile(r"Traceback|Connection to broker lost|Cannot connect|Unrecoverable|PreconditionFailed|\[\S+ \S+: (ERROR|CRITICAL)/MainProcess\]")


def settings(**more):
    host, port = more.pop("broker", address())
    return {
        "broker_url": f"amqp://guest:guest@{host}:{port}//",
        "result_backend": "rpc://",
        "task_default_queue": fresh("celery"),
        "broker_connection_retry_on_startup": True,
        "broker_transport_options": {"confirm_publish": True},
        **more,
    }


class Worker:
    """A worker in a process of its own, which says what it did into a file."""

    def __init__(self, of, *options):
        self.folder = tempfile.mkdtemp(prefix="celery-worker-")
        self.said = os.path.join(self.folder, "said")
        command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "-l", "INFO", "-n", fresh("w") + "@%h", *options]
        environment = {**os.environ, celery_tasks.SETTINGS: json.dumps(of), "PYTHONPATH": HERE, "PYTHONWARNINGS": "ignore"}
        with open(self.said, "wb") as said:
            self.process = subprocess.Popen(
                command, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )
        atexit.register(self.kill)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.stop()
            else:
                sys.stderr.write(self.log())
        finally:
            self.kill()

    def log(self):
        with open(self.said) as said:
            return said.read()

    def until_ready(self):
        until("the worker is ready", lambda: " ready." in self.log())

    def stop(self, trouble=TROUBLE):
        """Lets it end its tasks. Fails where that or the broker gave it trouble."""
        os.kill(self.process.pid, signal.SIGTERM)
        self.process.wait(WAIT_S)
        found = trouble and trouble.search(self.log())
        assert not found, f"the worker said {found[0]!r}:\n{self.log()}"

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Shared:
    """The app and the worker of the cases that need nothing else: started once."""

    app = None
    worker = None


def shared():
    if Shared.worker is None:
        of = settings(worker_send_task_events=True)
        Shared.app, Shared.worker = celery_tasks.build(of), Worker(of, *TWO)
    return Shared.app


def delay(app, name, *arguments, **options):
    return app.tasks[name].apply_async(arguments, **options)


def get(result):
    return result.get(timeout=WAIT_S)


def ready(app, queue):
    with app.connection_for_read() as connection:
        return connection.default_channel.queue_declare(queue, passive=True).message_count


@case
def smoke():
    app = shared()
    results = [delay(app, "add", i, i) for i in range(50)]
    assert [get(result) for result in results] == [2 * i for i in range(50)]
    failed = delay(app, "fails")
    try:
        get(failed)
        raise AssertionError("a task that fails did not")
    except ValueError as error:
        assert str(error) == "as it should"


@case
def retry():
    began = time.monotonic()
    assert get(delay(shared(), "third_time")) == [2, False]
    assert time.monotonic() - began >= 0.4


@case
def eta():
    app = shared()
    at = datetime.now(timezone.utc) + timedelta(seconds=1)
    later, soon = delay(app, "now", eta=at), delay(app, "now")
    assert get(soon) < at.timestamp() <= get(later) < at.timestamp() + 10
    try:
        get(delay(app, "now", countdown=0.5, expires=0.1))
        raise AssertionError("a task ran after its time")
    except TaskRevokedError:
        pass


@case
def canvas():
    app = shared()
    add, total = app.tasks["add"], app.tasks["total"]
    assert get(chain(add.s(1, 2), add.s(3), add.s(4)).apply_async()) == 10
    assert get(group(add.s(i, i) for i in range(20)).apply_async()) == [2 * i for i in range(20)]
    # The reply queue is set explicitly: by default it would be that of the worker, which sends the task.
    then = add.s(5)
    after = then.freeze()
    assert get(add.apply_async((1, 1), link=then)) == 2 and get(after) == 7
    assert get(total.delay([1, 2, 3])) == 6


@case
def chords():
    with tempfile.TemporaryDirectory() as folder:
        of = settings(result_backend=f"file://{folder}", result_chord_retry_interval=0.1)
        app = celery_tasks.build(of)
        add, total = app.tasks["add"], app.tasks["total"]
        with Worker(of, *TWO):
            assert get(chord((add.s(i, i) for i in range(10)), total.s()).apply_async()) == 90
            after = chain(group(add.s(i, 1) for i in range(5)), total.s(), add.s(100))
            assert get(after.apply_async()) == 115


@case
def killed_worker():
    """A task that is acknowledged late runs again when its worker is killed, and knows it."""
    of = settings()
    app = celery_tasks.build(of)
    with tempfile.TemporaryDirectory() as folder:
        result = delay(app, "held", folder)
        began = os.path.join(folder, f"began-{result.id}")
        first = Worker(of, *ONE)
        until("the task begins", lambda: os.path.exists(began))
        first.kill()
        with open(os.path.join(folder, "go"), "w"):
            pass
        with Worker(of, *ONE):
            assert get(result) is True
        with open(began) as pids:
            assert len(set(pids)) > 1 and ready(app, of["task_default_queue"]) == 0


@case
def priorities():
    of = settings(task_queue_max_priority=10, worker_prefetch_multiplier=1)
    app = celery_tasks.build(of)
    results = [delay(app, "in_order", str(priority), priority=priority) for priority in (1, 9, 0, 5)]
    with Worker(of, *ONE):
        assert max((get(result) for result in results), key=len) == ["9", "5", "1", "0"]


@case
def prefetch():
    """Two processes with two tasks each are given four of ten, and the rest stays in the queue."""
    of = settings()
    app = celery_tasks.build(of)
    queue = of["task_default_queue"]
    with tempfile.TemporaryDirectory() as folder, Worker(of, *TWO, "--prefetch-multiplier", "2"):
        results = [delay(app, "held", folder) for _ in range(10)]
        until("two begin", lambda: len(glob.glob(f"{folder}/began-*")) == 2)
        until("two more are held", lambda: ready(app, queue) <= 6)
        time.sleep(0.3)
        assert ready(app, queue) == 6
        with open(os.path.join(folder, "go"), "w"):
            pass
        assert [get(result) for result in results] == [False] * 10


@case
def remote_control():
    """Commands to all workers go through a fanout exchange, and their answers through queues of the one who asks."""
    app = shared()
    Shared.worker.until_ready()
    environment = {**os.environ, celery_tasks.SETTINGS: json.dumps({"broker_url": app.conf.broker_url}), "PYTHONPATH": HERE}
    command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "inspect", "-t", "5", "ping"]
    said = subprocess.run(command, env=environment, cwd=HERE, capture_output=True, text=True, timeout=WAIT_S)
    assert said.returncode == 0 and "pong" in said.stdout and "1 node online" in said.stdout, said
    [answer] = app.control.inspect(timeout=5).active_queues().values()
    assert [queue["name"] for queue in answer] == [app.conf.task_default_queue], answer
    revoked = delay(app, "add", 1, 1, countdown=3)
    app.control.revoke(revoked.id, reply=True, timeout=5)
    try:
        get(revoked)
        raise AssertionError("a revoked task ran")
    except TaskRevokedError:
        pass


@case
def events():
    """A worker's task events go through a topic exchange to all listeners."""
    app = shared()
    Shared.worker.until_ready()
    wanted, seen, listening = uuid(), [], threading.Event()

    def note(event):
        if event.get("uuid") == wanted:
            seen.append(event["type"])

    def listen():
        with app.connection_for_read() as of:
            receiver = app.events.Receiver(of, handlers={"*": note})
            with receiver.consumer_context() as (connection, _, _):
                listening.set()
                while "task-succeeded" not in seen:
                    connection.drain_events(timeout=WAIT_S)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    assert listening.wait(WAIT_S)
    get(delay(app, "add", 1, 2, task_id=wanted))
    listener.join(WAIT_S)
    assert seen == ["task-received", "task-started", "task-succeeded"], seen


@case
def quorum_queues():
    """Celery's queues as quorum queues: late times wait in Celery's own 28 queues, which hand on what expires."""
    of = settings(task_default_queue_type="quorum", task_default_exchange_type="topic", worker_detect_quorum_queues=True)
    app = celery_tasks.build(of)
    with Worker(of, *TWO) as worker:
        worker.until_ready()
        at = time.time() + 3
        later = delay(app, "now", countdown=3)
        assert [get(delay(app, "add", i, 1)) for i in range(5)] == [1, 2, 3, 4, 5]
        assert at - 1 <= get(later) < at + 10


@case
def comes_back():
    """A worker whose connection is cut connects again and goes on."""
    way = Way()
    of = settings(broker=way.address, broker_connection_retry=True)
    app = celery_tasks.build({**of, "broker_url": settings()["broker_url"]})
    worker = Worker(of, *ONE)
    try:
        worker.until_ready()
        assert get(delay(app, "add", 1, 1)) == 2
        way.cut()
        until("the worker sees it", lambda: "Connection to broker lost" in worker.log())
        result = delay(app, "add", 2, 2)
        way.mend()
        assert get(result) == 4
        worker.stop(trouble=None)
    finally:
        worker.kill()


main(lambda function: function())
