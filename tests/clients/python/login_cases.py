"""Logins with confluent-kafka (librdkafka), kafka-python and aiokafka: KAFKA,MANAGEMENT (HOST:PORT each) of a broker that asks who its clients
are and whose administrator is `admin` with the password `admin-password`, and names of cases. See ../README.md."""

import asyncio
import base64
import functools
import json
import sys
import time
import urllib.request

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from amqp_shared import WAIT_S, case, fresh, main
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer

KAFKA, MANAGEMENT = (sys.argv[1] + ",").split(",")[:2]
ADMIN = ("admin", "admin-password")
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
NUMBERS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


def settings(user, mechanism, **more):
    name, password = user
    base = {
        "bootstrap.servers": KAFKA,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }
    return {**base, **{key.replace("_", "."): value for key, value in more.items()}}


@functools.cache
def admin():
    """One for all: what it is asked dies with it."""
    return AdminClient(settings(ADMIN, "PLAIN"))


def settle(futures):
    return {key: future.result(WAIT_S) for key, future in futures.items()}


def topic():
    name = fresh("login")
    settle(admin().create_topics([NewTopic(name, 1, 1)]))
    return name


def set_scram(name, password, mechanism):
    info = ScramCredentialInfo(NUMBERS[mechanism], 4096)
    change = UserScramCredentialUpsertion(name, info, password.encode())
    settle(admin().alter_user_scram_credentials([change]))


def round_trip(user, mechanism):
    name = topic()
    producer = Producer(settings(user, mechanism))
    told = []
    producer.produce(name, b"hello", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(WAIT_S) == 0 and told == [None], told
    consumer = Consumer(settings(user, mechanism, group_id=fresh("g"), auto_offset_reset="earliest"))
    consumer.subscribe([name])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert message is not None and message.value() == b"hello", message and message.error()


def refused(user, mechanism):
    """That a client is told that it cannot log in, and is not let in."""
    codes = []
    told = {"error_cb": lambda error: codes.append(error.code())}
    client = AdminClient({**settings(user, mechanism), **told})
    end = time.monotonic() + WAIT_S
    while KafkaError._AUTHENTICATION not in codes:
        assert time.monotonic() < end, f"only {codes} was said to {user[0]} by {mechanism}"
        try:
            client.list_topics(timeout=0.5)
        except KafkaException:
            client.poll(0.1)
        else:
            raise AssertionError(f"{user[0]} was let in by {mechanism}")


@case
def administrator():
    """Each mechanism lets the first administrator in."""
    for mechanism in MECHANISMS:
        round_trip(ADMIN, mechanism)


@case
def scram_users():
    """Users that Kafka's admin client makes log in by their mechanism, and by PLAIN."""
    for mechanism in NUMBERS:
        name = fresh("user")
        set_scram(name, "first", mechanism)
        round_trip((name, "first"), mechanism)
        round_trip((name, "first"), "PLAIN")
        set_scram(name, "second", mechanism)
        round_trip((name, "second"), mechanism)
        refused((name, "first"), mechanism)


@case
def described():
    """What is there is shown, without what is secret, and what is taken away is gone."""
    name = fresh("user")
    set_scram(name, "secret", "SCRAM-SHA-512")
    client = admin()
    shown = settle(client.describe_user_scram_credentials([name]))[name]
    infos = [(info.mechanism, info.iterations) for info in shown.scram_credential_infos]
    assert infos == [(ScramMechanism.SCRAM_SHA_512, 4096)], infos
    everybody = client.describe_user_scram_credentials().result(WAIT_S)
    assert {"admin", name} <= set(everybody), everybody
    gone = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_512)
    settle(client.alter_user_scram_credentials([gone]))
    try:
        settle(client.alter_user_scram_credentials([gone]))
        raise AssertionError("it was there")
    except KafkaException as failure:
        assert failure.args[0].code() == KafkaError.RESOURCE_NOT_FOUND, failure
    refused((name, "secret"), "SCRAM-SHA-512")


@case
def wrong_password():
    for mechanism in MECHANISMS:
        refused(("admin", "wrong"), mechanism)
        refused((fresh("nobody"), "admin-password"), mechanism)


@case
def nobody():
    """Who does not log in is served nothing."""
    client = AdminClient({"bootstrap.servers": KAFKA})
    try:
        client.list_topics(timeout=3)
        raise AssertionError("it was served")
    except KafkaException as failure:
        assert failure.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT), failure


@case
def only_administrators_manage_users():
    name = fresh("user")
    set_scram(name, "secret", "SCRAM-SHA-256")
    client = AdminClient(settings((name, "secret"), "SCRAM-SHA-256"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    try:
        settle(client.alter_user_scram_credentials([UserScramCredentialUpsertion("admin", info, b"mine")]))
        raise AssertionError("it was let")
    except KafkaException as failure:
        assert failure.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED, failure
    round_trip(ADMIN, "SCRAM-SHA-256")


@case
def users_of_the_management_api():
    """A password that RabbitMQ's API sets is one of Kafka's clients."""
    name = fresh("rabbit")
    body = json.dumps({"password": "secret", "tags": ""}).encode()
    request = urllib.request.Request(f"http://{MANAGEMENT}/api/users/{name}", body, method="PUT")
    token = base64.b64encode(":".join(ADMIN).encode()).decode()
    request.add_header("Authorization", f"Basic {token}")
    with urllib.request.urlopen(request, timeout=WAIT_S) as response:
        assert response.status == 201, response.status
    for mechanism in MECHANISMS:
        round_trip((name, "secret"), mechanism)


@case
def kafka_python():
    for mechanism in MECHANISMS:
        name = topic()
        login = {
            "bootstrap_servers": KAFKA,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": ADMIN[0],
            "sasl_plain_password": ADMIN[1],
        }
        producer = KafkaProducer(**login)
        producer.send(name, b"hello").get(WAIT_S)
        producer.close()
        consumer = KafkaConsumer(name, auto_offset_reset="earliest", consumer_timeout_ms=WAIT_S * 1000, **login)
        assert next(consumer).value == b"hello"
        consumer.close()


@case
def aiokafka():
    async def go(mechanism, name):
        login = {
            "bootstrap_servers": KAFKA,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": ADMIN[0],
            "sasl_plain_password": ADMIN[1],
        }
        async with AIOKafkaProducer(**login) as producer:
            await producer.send_and_wait(name, b"hello")
        async with AIOKafkaConsumer(name, auto_offset_reset="earliest", **login) as consumer:
            message = await asyncio.wait_for(consumer.getone(), WAIT_S)
            assert message.value == b"hello"
        wrong = AIOKafkaProducer(**{**login, "sasl_plain_password": "wrong"})
        try:
            await wrong.start()
            raise AssertionError("it was let in")
        except AioKafkaError:
            pass
        finally:
            await wrong.stop()

    for mechanism in MECHANISMS:
        asyncio.run(go(mechanism, topic()))


main(lambda function: function())
