"""The tasks of celery_cases.py, for its workers and for itself."""

import json
import os
import time

from celery import Celery

# Celery's own settings as JSON, for a worker, which is a process of its own.
SETTINGS = "CELERY_CASES"
ORDER = []


def add(x, y):
    return x + y


def total(numbers):
    return sum(numbers)


def now():
    return time.time()


def fails():
    raise ValueError("as it should")


def in_order(name):
    """Which tasks this process was given so far."""
    ORDER.append(name)
    return list(ORDER)


def third_time(self):
    """Fails twice and asks to be tried again a little later."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.2, max_retries=2)
    return self.request.retries, self.request.delivery_info["redelivered"]


def held(self, folder):
    """Says that it began, and ends when the file `go` is there. Gives whether the broker handed it out before."""
    with open(os.path.join(folder, f"began-{self.request.id}"), "a") as began:
        began.write(f"{os.getpid()}\n")
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.02)
    return self.request.delivery_info["redelivered"]


def build(settings):
    app = Celery("cases", set_as_current=False)
    app.conf.update(settings)
    for task in (add, total, now, fails, in_order):
        app.task(task, name=task.__name__)
    app.task(third_time, name="third_time", bind=True)
    app.task(held, name="held", bind=True, acks_late=True, reject_on_worker_lost=True)
    return app


if SETTINGS in os.environ:
    app = build(json.loads(os.environ[SETTINGS]))
