"""Logins with confluent-kafka (librdkafka), kafka-python, aiokafka and pika, with and without TLS: KAFKA,MANAGEMENT,KAFKA_TLS,AMQP_TLS (HOST:PORT
each), CA (a file), HTTP (HOST:PORT), ROBOT (a certificate and its key without their endings) and TOKENS (the key with which tokens are signed) of a broker that asks who its clients are and whose administrator is `admin` with the password `admin-password`, and names of
cases. See ../README.md."""

import asyncio
import base64
import functools
import hashlib
import json
import ssl
import sys
import time
import urllib.error
import urllib.request

import pika
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from amqp_shared import WAIT_S, case, fresh, main
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

KAFKA, MANAGEMENT, KAFKA_TLS, AMQP_TLS, CA, HTTP, ROBOT, TOKENS = (sys.argv[1] + ",,,,,,,").split(",")[:8]
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


def over_tls(base):
    return {**base, "bootstrap.servers": KAFKA_TLS, "security.protocol": "SASL_SSL", "ssl.ca.location": CA}


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


def quota(method, path, body):
    request = urllib.request.Request(f"http://{HTTP}/api/v1/quotas{path}", json.dumps(body).encode(), method=method)
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", f"Basic {base64.b64encode(':'.join(ADMIN).encode()).decode()}")
    with urllib.request.urlopen(request, timeout=WAIT_S) as response:
        assert response.status == 204, response.status


def binding(kind, name, user, operation, permission=AclPermissionType.ALLOW, pattern=ResourcePatternType.LITERAL):
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)


def grant(user, topic_name, group):
    """That a user may read and write a topic as a member of a group; an administrator may anyway."""
    if user == ADMIN[0]:
        return
    wanted = [(ResourceType.TOPIC, topic_name, o) for o in (AclOperation.READ, AclOperation.WRITE)]
    wanted.append((ResourceType.GROUP, group, AclOperation.READ))
    settle(admin().create_acls([binding(kind, name, user, operation) for kind, name, operation in wanted]))


def produce(user, mechanism, name):
    """What is said of a message."""
    producer = Producer(settings(user, mechanism, message_timeout_ms=str(WAIT_S * 1000)))
    reported = []
    producer.produce(name, b"hello", on_delivery=lambda error, _: reported.append(error))
    assert producer.flush(WAIT_S) == 0 and len(reported) == 1, reported
    return reported[0]


def round_trip(user, mechanism):
    name, group = topic(), fresh("g")
    grant(user[0], name, group)
    error = produce(user, mechanism, name)
    assert error is None, error
    consumer = Consumer(settings(user, mechanism, group_id=group, auto_offset_reset="earliest"))
    consumer.subscribe([name])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert message is not None and message.value() == b"hello", message and message.error()


def refused(user, mechanism):
    """Asserts that a client is refused with an authentication error."""
    codes = []
    callbacks = {"error_cb": lambda error: codes.append(error.code())}
    client = AdminClient({**settings(user, mechanism), **callbacks})
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
        refused((fresh("unknown-user"), "admin-password"), mechanism)


@case
def not_logged_in():
    """A client that does not authenticate is not served."""
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
def acls():
    """A user may do what ACLs allow and do not deny; all else is refused with Kafka's error codes."""
    name, secret, group, user = topic(), topic(), fresh("g"), fresh("user")
    set_scram(user, "secret", "SCRAM-SHA-256")
    login = ((user, "secret"), "SCRAM-SHA-256")
    client = AdminClient(settings(*login))
    assert name not in client.list_topics(timeout=WAIT_S).topics
    assert produce(*login, name).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    for refused_there in [
        lambda: client.create_topics([NewTopic(fresh("mine"), 1, 1)]),
        lambda: client.delete_topics([name]),
        lambda: client.create_acls([binding(ResourceType.TOPIC, name, user, AclOperation.ALL)]),
    ]:
        try:
            settle(refused_there())
            raise AssertionError("it was let")
        except KafkaException as failure:
            codes = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
            assert failure.args[0].code() in codes, failure
    all_topics = binding(ResourceType.TOPIC, "login", user, AclOperation.ALL, pattern=ResourcePatternType.PREFIXED)
    never = binding(ResourceType.TOPIC, secret, user, AclOperation.WRITE, AclPermissionType.DENY)
    settle(admin().create_acls([all_topics, never]))
    assert produce(*login, name) is None
    assert produce(*login, secret).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer(settings(*login, group_id=group, auto_offset_reset="earliest"))
    consumer.subscribe([name])
    message = consumer.poll(WAIT_S)
    assert message is not None and message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED, message
    consumer.close()
    mine = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert set(admin().describe_acls(mine).result(WAIT_S)) == {all_topics, never}
    assert set(settle(admin().delete_acls([mine]))[mine]) == {all_topics, never}
    assert produce(*login, name).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@case
def quotas():
    """Clients over their quota are throttled and still receive all messages: librdkafka gets the throttle time and waits."""
    user, name, group = fresh("user"), topic(), fresh("g")
    set_scram(user, "secret", "SCRAM-SHA-256")
    login = ((user, "secret"), "SCRAM-SHA-256")
    grant(user, name, group)
    quota("PUT", "", {"of": {"user": user}, "produce_bytes_per_second": 100_000, "fetch_bytes_per_second": 100_000})
    reported = []
    heard = {"throttle_cb": lambda event: reported.append(event.throttle_time), "message.timeout.ms": str(WAIT_S * 1000)}
    producer = Producer({**settings(*login, linger_ms="1"), **heard})
    delivered = []
    for number in range(30):
        producer.produce(name, bytes(10_000), str(number), on_delivery=lambda error, _: delivered.append(error))
        producer.poll(0.02)
    assert producer.flush(WAIT_S) == 0 and delivered == [None] * 30, delivered
    assert sum(reported) > 1, reported
    del reported[:]
    heard = {"throttle_cb": lambda event: reported.append(event.throttle_time)}
    consumer = Consumer({**settings(*login, group_id=group, auto_offset_reset="earliest"), **heard})
    consumer.subscribe([name])
    messages = [consumer.poll(WAIT_S) for _ in range(30)]
    assert all(message is not None and not message.error() for message in messages), messages
    consumer.poll(0.1)
    consumer.close()
    assert sum(reported) > 1, reported
    quota("POST", "/delete", {"user": user})


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


@case
def tls():
    """Each mechanism over TLS: many messages there and back, also those that come off the disk."""
    bodies = [f"{number:06}".encode() + b"x" * 2_000 for number in range(5_000)]
    for mechanism in MECHANISMS:
        name = topic()
        producer = Producer(over_tls(settings(ADMIN, mechanism, linger_ms="5")))
        for body in bodies:
            producer.produce(name, body)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        consumer = Consumer(over_tls(settings(ADMIN, mechanism, group_id=fresh("g"), auto_offset_reset="earliest")))
        consumer.subscribe([name])
        came = []
        end = time.monotonic() + WAIT_S
        while len(came) < len(bodies) and time.monotonic() < end:
            came += [message.value() for message in consumer.consume(500, 1) if message.error() is None]
        consumer.close()
        assert came == bodies, f"{len(came)} messages by {mechanism}"


@case
def tls_others():
    """kafka-python, aiokafka and pika over TLS."""
    context = ssl.create_default_context(cafile=CA)
    name = topic()
    login = {
        "bootstrap_servers": KAFKA_TLS,
        "security_protocol": "SASL_SSL",
        "ssl_context": context,
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": ADMIN[0],
        "sasl_plain_password": ADMIN[1],
    }
    producer = KafkaProducer(**login)
    producer.send(name, b"hello").get(WAIT_S)
    producer.close()

    async def receive():
        async with AIOKafkaConsumer(name, auto_offset_reset="earliest", **login) as consumer:
            return (await asyncio.wait_for(consumer.getone(), WAIT_S)).value

    assert asyncio.run(receive()) == b"hello"
    host, port = AMQP_TLS.rsplit(":", 1)
    options = pika.SSLOptions(context, host)
    credentials = pika.PlainCredentials(*ADMIN)
    parameters = pika.ConnectionParameters(host, int(port), ssl_options=options, credentials=credentials)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    queue = channel.queue_declare("", exclusive=True).method.queue
    body = b"x" * 3_000_000
    channel.basic_publish("", queue, body)
    assert channel.basic_get(queue, auto_ack=True)[2] == body
    connection.close()


@case
def certificates():
    """Whose certificate says who it is need say no more: librdkafka with TLS alone, pika by EXTERNAL. (ROBOT is the start of the names of its files.)"""
    user, name, group = "robot", topic(), fresh("g")
    grant(user, name, group)
    base = {
        "bootstrap.servers": KAFKA_TLS,
        "security.protocol": "SSL",
        "ssl.ca.location": CA,
        "ssl.certificate.location": ROBOT + ".pem",
        "ssl.key.location": ROBOT + ".key",
    }
    producer = Producer(base)
    reported = []
    producer.produce(name, b"hello", on_delivery=lambda error, _: reported.append(error))
    assert producer.flush(WAIT_S) == 0 and reported == [None], reported
    consumer = Consumer({**base, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert message is not None and message.value() == b"hello", message and message.error()
    body = json.dumps({"password_hash": "", "tags": ""}).encode()
    permission = json.dumps({"configure": ".*", "write": ".*", "read": ".*"}).encode()
    for path, content in [(f"users/{user}", body), (f"permissions/%2F/{user}", permission)]:
        request = urllib.request.Request(f"http://{MANAGEMENT}/api/{path}", content, method="PUT")
        token = base64.b64encode(":".join(ADMIN).encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            assert response.status == 201, response.status
    context = ssl.create_default_context(cafile=CA)
    context.load_cert_chain(ROBOT + ".pem", ROBOT + ".key")
    host, port = AMQP_TLS.rsplit(":", 1)
    options = pika.SSLOptions(context, host)
    credentials = pika.credentials.ExternalCredentials()
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(host, int(port), ssl_options=options, credentials=credentials)
    )
    channel = connection.channel()
    channel.confirm_delivery()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, b"hello")
    assert channel.basic_get(queue, auto_ack=True)[2] == b"hello"
    connection.close()


def numbers(der):
    """What a piece of DER has, one by one: whole numbers, and the bytes of anything else."""
    found = []
    while der:
        tag, length, head = der[0], der[1], 2
        if length & 0x80:
            head += length & 0x7F
            length = int.from_bytes(der[2:head], "big")
        content, der = der[head : head + length], der[head + length :]
        found.append(int.from_bytes(content, "big") if tag == 2 else content)
    return found


@functools.cache
def signing_key():
    """Modulus and private exponent of the RSA key in TOKENS (PKCS #8)."""
    with open(TOKENS, encoding="ascii") as file:
        lines = [line for line in file.read().splitlines() if not line.startswith("-")]
    [whole] = numbers(base64.b64decode("".join(lines)))
    [inner] = numbers(numbers(whole)[2])
    return numbers(inner)[1], numbers(inner)[3]


def token(name, scopes="", seconds=600):
    """A token (RS256), signed by hand so that nothing has to be installed for it; and when it expires."""

    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    expires = int(time.time()) + seconds
    claims = {"iss": "testkit", "aud": "polylogue", "sub": name, "scope": scopes, "exp": expires}
    signed = ".".join(part(json.dumps(one).encode()) for one in ({"alg": "RS256", "kid": "1"}, claims))
    n, d = signing_key()
    size = (n.bit_length() + 7) // 8
    digest = bytes.fromhex("3031300d060960864801650304020105000420") + hashlib.sha256(signed.encode()).digest()
    padded = b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest
    signature = pow(int.from_bytes(padded, "big"), d, n).to_bytes(size, "big")
    return f"{signed}.{part(signature)}", expires


def bearer(name, scopes="", seconds=600, wrong=False, **more):
    """Settings of librdkafka, for which each token is made when it is asked for."""

    def give(_):
        given, expires = token(name, scopes, seconds)
        return (given[:-8] + "AAAAAAAA" if wrong else given), float(expires)

    base = {"bootstrap.servers": KAFKA, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    return {**base, "oauth_cb": give, **{key.replace("_", "."): value for key, value in more.items()}}


def logins_by_token():
    request = urllib.request.Request(f"http://{HTTP}/metrics")
    request.add_header("Authorization", f"Bearer {token('boss', 'polylogue.tag:administrator')[0]}")
    with urllib.request.urlopen(request, timeout=WAIT_S) as response:
        lines = response.read().decode().splitlines()
    start = 'polylogue_logins_total{mechanism="OAUTHBEARER",outcome="succeeded"} '
    return next(int(line.removeprefix(start)) for line in lines if line.startswith(start))


@case
def tokens():
    """librdkafka logs in by tokens, with and without TLS: what their bearer may do is what lists say, or everything by a scope."""
    user, name, group = fresh("bearer"), topic(), fresh("g")
    for settings_of in [lambda more: more, over_tls]:
        client = AdminClient(settings_of(bearer("boss", "openid polylogue.tag:administrator")))
        settle(client.create_topics([NewTopic(fresh("login"), 1, 1)]))
        client = AdminClient(settings_of(bearer(user, "openid")))
        try:
            settle(client.create_topics([NewTopic(fresh("login"), 1, 1)]))
            raise AssertionError("it was let")
        except KafkaException as failure:
            codes = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
            assert failure.args[0].code() in codes, failure
        grant(user, name, group)
        reported = []
        producer = Producer(settings_of(bearer(user)))
        producer.produce(name, b"hello", on_delivery=lambda error, _: reported.append(error))
        assert producer.flush(WAIT_S) == 0 and reported == [None], reported
    consumer = Consumer(bearer(user, group_id=group, auto_offset_reset="earliest"))
    consumer.subscribe([name])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert message is not None and message.value() == b"hello", message and message.error()


@case
def tokens_refused():
    """A token without a trusted signature is refused, as is an administrator's name without the scope."""
    for settings_of in [bearer("boss", "polylogue.tag:administrator", wrong=True), bearer("admin")]:
        codes = []
        client = AdminClient({**settings_of, "error_cb": lambda error: codes.append(error.code())})
        end = time.monotonic() + WAIT_S
        while KafkaError._AUTHENTICATION not in codes:
            assert time.monotonic() < end, codes
            try:
                client.list_topics(timeout=0.5)
            except KafkaException:
                client.poll(0.1)
            else:
                raise AssertionError("it was let in")


@case
def tokens_again():
    """A producer whose tokens hold for seconds goes on without an error: it logs in again and again on the connection that it has."""
    user, name = fresh("bearer"), topic()
    grant(user, name, fresh("g"))
    before, reported, sent = logins_by_token(), [], 0
    producer = Producer(bearer(user, seconds=6, linger_ms="1"))
    end = time.monotonic() + WAIT_S
    # Reading the metrics adds no login to the count.
    while logins_by_token() < before + 6:
        assert time.monotonic() < end, f"{logins_by_token() - before} logins"
        producer.produce(name, b"hello", on_delivery=lambda error, _: reported.append(error))
        sent += 1
        producer.poll(0.1)
    assert producer.flush(WAIT_S) == 0 and reported == [None] * sent, reported


@case
def tokens_kafka_others():
    """kafka-python and aiokafka."""

    class Provider(AbstractTokenProvider):
        def token(self):
            return token("boss", "polylogue.tag:administrator")[0]

    class AioProvider(AioTokenProvider):
        async def token(self):
            return token("boss", "polylogue.tag:administrator")[0]

    name = topic()
    login = {"bootstrap_servers": KAFKA, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    producer = KafkaProducer(**login, sasl_oauth_token_provider=Provider())
    producer.send(name, b"hello").get(WAIT_S)
    producer.close()

    async def receive():
        more = {**login, "sasl_oauth_token_provider": AioProvider(), "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(name, **more) as consumer:
            return (await asyncio.wait_for(consumer.getone(), WAIT_S)).value

    assert asyncio.run(receive()) == b"hello"


def token_connection(given):
    host, port = AMQP_TLS.rsplit(":", 1)
    options = pika.SSLOptions(ssl.create_default_context(cafile=CA), host)
    credentials = pika.PlainCredentials("ignored", given)
    return pika.BlockingConnection(
        pika.ConnectionParameters(host, int(port), ssl_options=options, credentials=credentials)
    )


@case
def tokens_pika():
    """A token is the password: its scopes say what may be done, until it expires; another one gives that back."""
    name = fresh("bearer")
    scopes = f"polylogue.configure:%2F/{name}-* polylogue.write:%2F/* polylogue.read:%2F/{name}-*"
    connection = token_connection(token(name, scopes, seconds=5)[0])
    channel = connection.channel()
    channel.confirm_delivery()
    queue = channel.queue_declare(f"{name}-q").method.queue
    channel.basic_publish("", queue, b"hello")
    try:
        connection.channel().queue_declare("other")
        raise AssertionError("it was let")
    except pika.exceptions.ChannelClosedByBroker as failure:
        assert failure.reply_code == 403, failure
    end = time.monotonic() + WAIT_S
    refused = None
    while refused is None:
        assert time.monotonic() < end, "it has not expired"
        try:
            channel.queue_declare(queue)
        except pika.exceptions.ChannelClosedByBroker as failure:
            refused = failure.reply_code
    assert refused == 403, refused
    connection.update_secret(token(name, scopes)[0], "it has expired")
    channel = connection.channel()
    assert channel.basic_get(queue, auto_ack=True)[2] == b"hello"
    channel.queue_delete(queue)
    try:
        connection.update_secret(token("another-user", scopes)[0], "no reason")
        raise AssertionError("it was let")
    except pika.exceptions.ConnectionClosedByBroker as failure:
        assert failure.reply_code == 530, failure
    try:
        token_connection(token(name, scopes)[0][:-8] + "AAAAAAAA")
        raise AssertionError("it was let in")
    except pika.exceptions.ProbableAuthenticationError:
        pass


@case
def tokens_http():
    """Both APIs take a token; administrators are those whose scope says so."""

    def status(at, given):
        request = urllib.request.Request(f"http://{at}")
        request.add_header("Authorization", f"Bearer {given}")
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as response:
                return response.status
        except urllib.error.HTTPError as failure:
            return failure.code

    boss, ann = token("boss", "polylogue.tag:administrator")[0], token("ann", "polylogue.tag:management")[0]
    assert [status(f"{HTTP}/api/v1/topics", given) for given in (boss, ann, "x")] == [200, 403, 401]
    assert [status(f"{MANAGEMENT}/api/whoami", given) for given in (boss, ann, "x")] == [200, 200, 401]
    assert [status(f"{MANAGEMENT}/api/users", given) for given in (boss, ann)] == [200, 401]


@case
def tls_refused():
    """A client that does not trust the broker, or does not use TLS, cannot connect."""
    base = over_tls(settings(ADMIN, "PLAIN"))
    for wrong in [{"ssl.ca.location": None}, {"security.protocol": "SASL_PLAINTEXT", "ssl.ca.location": None}]:
        client = AdminClient({key: value for key, value in {**base, **wrong}.items() if value is not None})
        try:
            client.list_topics(timeout=3)
            raise AssertionError(f"it was served with {wrong}")
        except KafkaException as failure:
            codes = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN)
            assert failure.args[0].code() in codes, failure


main(lambda function: function())
