import com.rabbitmq.client.*;
import com.rabbitmq.client.impl.LongStringHelper;
import java.io.IOException;
import java.net.Socket;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;

/** The cases with RabbitMQ's own Java client. See ../README.md. */
public final class Client {
    static final String REPLY_TO = "amq.rabbitmq.reply-to";

    static {
        Shared.CASES.put("smoke", Client::smoke);
        Shared.CASES.put("confirms", Client::confirms);
        Shared.CASES.put("returns", Client::returns);
        Shared.CASES.put("get", Client::get);
        Shared.CASES.put("qos", Client::qos);
        Shared.CASES.put("exclusive", Client::exclusive);
        Shared.CASES.put("refusals", Client::refusals);
        Shared.CASES.put("cancelled", Client::cancelled);
        Shared.CASES.put("headers", Client::headers);
        Shared.CASES.put("dead_letters", Client::deadLetters);
        Shared.CASES.put("transactions", Client::transactions);
        Shared.CASES.put("replies", Client::replies);
        Shared.CASES.put("nio", Client::nio);
        Shared.CASES.put("large", Client::large);
        Shared.CASES.put("logins", Client::logins);
        Shared.CASES.put("recovery", Client::recovery);
    }

    static ConnectionFactory factory() {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost(Shared.host);
        factory.setPort(Shared.port);
        factory.setAutomaticRecoveryEnabled(false);
        return factory;
    }

    static Connection connect() throws Exception {
        return factory().newConnection();
    }

    static String own(Channel channel, Object... arguments) throws IOException {
        Map<String, Object> of = new HashMap<>();
        for (int i = 0; i < arguments.length; i += 2) of.put((String) arguments[i], arguments[i + 1]);
        return channel.queueDeclare("", false, true, false, of).getQueue();
    }

    static void publish(Channel channel, String queue, String... bodies) throws IOException {
        for (String body : bodies) channel.basicPublish("", queue, MessageProperties.TEXT_PLAIN, Shared.bytes(body));
    }

    static void ready(Channel channel, String queue, int count) throws Exception {
        Shared.until(count + " messages in " + queue, () -> channel.messageCount(queue) == count);
    }

    /** So many deliveries of a queue, acknowledged. */
    static List<Delivery> take(Channel channel, String queue, int count) throws Exception {
        BlockingQueue<Delivery> got = new LinkedBlockingQueue<>();
        String tag = channel.basicConsume(queue, true, (of, delivery) -> got.add(delivery), of -> {});
        List<Delivery> out = new ArrayList<>();
        while (out.size() < count) {
            Delivery next = got.poll(Shared.WAIT_MS, TimeUnit.MILLISECONDS);
            Shared.check(next != null, "only " + out.size() + " of " + count + " messages came");
            out.add(next);
        }
        channel.basicCancel(tag);
        return out;
    }

    /** Runs what the broker must refuse, on a channel of its own. */
    static void refused(Connection connection, int code, String text, Refused act) throws Exception {
        Channel channel = connection.createChannel();
        try {
            act.run(channel);
            // What is refused without an answer is seen by the next one.
            channel.queueDeclare();
        } catch (IOException | AlreadyClosedException e) {
            ShutdownSignalException signal = (ShutdownSignalException) (e instanceof AlreadyClosedException ? e : e.getCause());
            closed(signal, code, text);
            return;
        }
        throw new AssertionError("not refused: " + code + " " + text);
    }

    interface Refused {
        void run(Channel channel) throws Exception;
    }

    static void closed(ShutdownSignalException signal, int code, String text) {
        Method reason = signal.getReason();
        int said = reason instanceof AMQP.Channel.Close c ? c.getReplyCode() : ((AMQP.Connection.Close) reason).getReplyCode();
        String why = reason instanceof AMQP.Channel.Close c ? c.getReplyText() : ((AMQP.Connection.Close) reason).getReplyText();
        Shared.check(said == code && why.contains(text), "refused with " + said + " " + why + " instead of " + code + " " + text);
    }

    static void smoke() throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            Shared.same("RabbitMQ", connection.getServerProperties().get("product").toString(), "product");
            String queue = channel.queueDeclare(Shared.fresh("java"), true, false, false, null).getQueue();
            channel.confirmSelect();
            for (int i = 0; i < 100; i++) {
                AMQP.BasicProperties of = MessageProperties.PERSISTENT_TEXT_PLAIN.builder().headers(Map.of("n", i)).build();
                channel.basicPublish("", queue, of, Shared.bytes("m" + i));
            }
            channel.waitForConfirmsOrDie(Shared.WAIT_MS);
            Shared.same(100L, channel.messageCount(queue), "messages");
            int at = 0;
            for (Delivery delivery : take(channel, queue, 100)) {
                Shared.same("m" + at, Shared.text(delivery.getBody()), "body");
                Shared.same(at++, delivery.getProperties().getHeaders().get("n"), "header");
                Shared.check(!delivery.getEnvelope().isRedeliver(), "redelivered");
            }
            Shared.same(0, channel.queueDelete(queue).getMessageCount(), "left");
        }
    }

    static void confirms() throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            String queue = own(channel, "x-max-length", 50, "x-overflow", "reject-publish");
            ConcurrentNavigableMap<Long, Boolean> waiting = new ConcurrentSkipListMap<>();
            AtomicInteger acks = new AtomicInteger(), nacks = new AtomicInteger();
            channel.confirmSelect();
            channel.addConfirmListener(
                (tag, multiple) -> acks.addAndGet(settle(waiting, tag, multiple)),
                (tag, multiple) -> nacks.addAndGet(settle(waiting, tag, multiple)));
            for (int i = 0; i < 80; i++) {
                waiting.put(channel.getNextPublishSeqNo(), true);
                publish(channel, queue, "m" + i);
            }
            Shared.until("all are confirmed or refused", waiting::isEmpty);
            Shared.same(50, acks.get(), "confirmed");
            Shared.same(30, nacks.get(), "refused");
            Shared.same(50L, channel.messageCount(queue), "messages");
        }
    }

    /** Takes off what a confirm settles. Gives how many these are. */
    static int settle(ConcurrentNavigableMap<Long, Boolean> waiting, long tag, boolean multiple) {
        if (!multiple) return waiting.remove(tag) == null ? 0 : 1;
        Map<Long, Boolean> upTo = waiting.headMap(tag, true);
        int count = upTo.size();
        upTo.clear();
        return count;
    }

    static void returns() throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            List<String> seen = Collections.synchronizedList(new ArrayList<>());
            channel.addReturnListener(r -> seen.add(r.getReplyCode() + " " + r.getReplyText() + " " + r.getRoutingKey() + " " + Shared.text(r.getBody())));
            channel.addConfirmListener((tag, multiple) -> seen.add("ack"), (tag, multiple) -> seen.add("nack"));
            channel.confirmSelect();
            channel.basicPublish("amq.direct", "nowhere", true, MessageProperties.BASIC, Shared.bytes("back"));
            Shared.until("it is confirmed", () -> seen.size() == 2);
            Shared.same(List.of("312 NO_ROUTE nowhere back", "ack"), seen, "what came back");
        }
    }

    static void get() throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            String queue = own(channel);
            publish(channel, queue, "first", "second");
            ready(channel, queue, 2);
            GetResponse first = channel.basicGet(queue, false);
            Shared.same("first 1", Shared.text(first.getBody()) + " " + first.getMessageCount(), "get");
            channel.basicNack(first.getEnvelope().getDeliveryTag(), false, true);
            GetResponse again = channel.basicGet(queue, false);
            Shared.check(again.getEnvelope().isRedeliver() && Shared.text(again.getBody()).equals("first"), "its old place");
            channel.basicReject(again.getEnvelope().getDeliveryTag(), false);
            Shared.same("second", Shared.text(channel.basicGet(queue, true).getBody()), "get");
            Shared.same(null, channel.basicGet(queue, true), "an empty queue");
        }
    }

    static void qos() throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel(); Channel other = connection.createChannel()) {
            String queue = own(other);
            for (int i = 0; i < 20; i++) publish(other, queue, "" + i);
            ready(other, queue, 20);
            BlockingQueue<Delivery> one = new LinkedBlockingQueue<>(), two = new LinkedBlockingQueue<>();
            // In this order: a prefetch for each consumer lifts the one for all together.
            channel.basicQos(3, false);
            channel.basicQos(5, true);
            channel.basicConsume(queue, false, (tag, delivery) -> one.add(delivery), tag -> {});
            channel.basicConsume(queue, false, (tag, delivery) -> two.add(delivery), tag -> {});
            Shared.until("five come", () -> one.size() + two.size() == 5);
            Shared.check(one.size() <= 3 && two.size() <= 3, "a consumer has more than its own prefetch");
            channel.basicAck(0, true);
            Shared.until("five more come", () -> one.size() + two.size() == 10);
        }
    }

    static void exclusive() throws Exception {
        Connection connection = connect();
        try (Connection other = connect()) {
            Channel channel = connection.createChannel();
            String queue = own(channel);
            String text = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '" + queue + "' in vhost '/'";
            refused(other, 405, text, c -> c.queueDeclarePassive(queue));
            refused(other, 405, text, c -> c.basicConsume(queue, new DefaultConsumer(c)));
            refused(other, 405, text, c -> c.basicGet(queue, true));
            refused(other, 405, text, c -> c.queuePurge(queue));
            refused(other, 405, text, c -> c.queueDelete(queue));
            refused(other, 405, text, c -> c.queueBind(queue, "amq.direct", "x"));
            String shared = Shared.fresh("shared");
            channel.queueDeclare(shared, false, false, true, null);
            channel.basicConsume(shared, true, "", false, true, null, new DefaultConsumer(channel));
            refused(other, 403, "in exclusive use", c -> c.basicConsume(shared, new DefaultConsumer(c)));
            connection.close();
            refused(other, 404, "NOT_FOUND - no queue '" + queue + "' in vhost '/'", c -> c.queueDeclarePassive(queue));
        }
    }

    static void refusals() throws Exception {
        try (Connection connection = connect()) {
            refused(connection, 404, "NOT_FOUND - no exchange 'none' in vhost '/'", c -> c.basicPublish("none", "", null, new byte[0]));
            refused(connection, 403, "ACCESS_REFUSED - operation not permitted on the default exchange", c -> c.exchangeDelete(""));
            refused(connection, 406, "PRECONDITION_FAILED - unknown delivery tag 7", c -> c.basicAck(7, false));
            refused(connection, 406, "invalid expiration", c -> c.basicPublish("", "x", new AMQP.BasicProperties.Builder().expiration("soon").build(), null));
            refused(connection, 406, "PRECONDITION_FAILED - channel is not transactional", Channel::txCommit);
            refused(connection, 406, "x-message-ttl", c -> own(c, "x-message-ttl", -1));
        }
        Connection connection = connect();
        BlockingQueue<ShutdownSignalException> ended = new LinkedBlockingQueue<>();
        connection.addShutdownListener(ended::add);
        connection.createChannel().basicPublish("", "x", false, true, null, new byte[0]);
        closed(ended.poll(Shared.WAIT_MS, TimeUnit.MILLISECONDS), 540, "NOT_IMPLEMENTED - immediate=true");
    }

    static void cancelled() throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            String queue = Shared.fresh("gone");
            channel.queueDeclare(queue, false, false, false, null);
            BlockingQueue<String> gone = new LinkedBlockingQueue<>();
            String tag = channel.basicConsume(queue, true, (of, delivery) -> {}, gone::add);
            connection.createChannel().queueDelete(queue);
            Shared.same(tag, gone.poll(Shared.WAIT_MS, TimeUnit.MILLISECONDS), "cancelled");
        }
    }

    static void headers() throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            Map<String, Object> sent = new HashMap<>();
            sent.put("string", LongStringHelper.asLongString("text"));
            sent.put("int", -5);
            sent.put("long", 1L << 40);
            sent.put("short", (short) 7);
            sent.put("byte", (byte) -3);
            sent.put("double", 2.5);
            sent.put("float", 1.5f);
            sent.put("boolean", true);
            sent.put("decimal", new java.math.BigDecimal("12.34"));
            sent.put("time", new Date(1_700_000_000_000L));
            sent.put("void", null);
            sent.put("list", List.of(1, LongStringHelper.asLongString("two"), List.of()));
            sent.put("table", Map.of("inner", Map.of("n", 1)));
            AMQP.BasicProperties of = new AMQP.BasicProperties.Builder().contentType("a/b").contentEncoding("e").headers(sent).deliveryMode(2)
                .priority(3).correlationId("c").replyTo("r").messageId("m").timestamp(new Date(1_700_000_000_000L)).type("t")
                .userId("guest").appId("app").build();
            String queue = own(channel);
            channel.basicPublish("", queue, of, Shared.bytes("x"));
            AMQP.BasicProperties got = take(channel, queue, 1).get(0).getProperties();
            Shared.same(new TreeMap<>(sent).toString(), new TreeMap<>(got.getHeaders()).toString(), "headers");
            Shared.same(of, got, "properties");
            String exchange = Shared.fresh("headers");
            channel.exchangeDeclare(exchange, BuiltinExchangeType.HEADERS, false, true, null);
            channel.queueBind(queue, exchange, "", Map.of("x-match", "all", "int", -5, "boolean", true));
            channel.basicPublish(exchange, "", of, Shared.bytes("all"));
            channel.basicPublish(exchange, "", new AMQP.BasicProperties.Builder().headers(Map.of("int", -5)).build(), Shared.bytes("one"));
            Shared.same("all", Shared.text(take(channel, queue, 1).get(0).getBody()), "matched");
            Shared.same(0L, channel.messageCount(queue), "others");
        }
    }

    @SuppressWarnings("unchecked")
    static void deadLetters() throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            String grave = own(channel);
            String work = own(channel, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", grave, "x-message-ttl", 50);
            publish(channel, work, "late");
            Delivery dead = take(channel, grave, 1).get(0);
            Map<String, Object> headers = dead.getProperties().getHeaders();
            Map<String, Object> death = ((List<Map<String, Object>>) headers.get("x-death")).get(0);
            Shared.same("expired", death.get("reason").toString(), "reason");
            Shared.same(work, death.get("queue").toString(), "queue");
            Shared.same(1L, death.get("count"), "count");
            Shared.check(death.get("time") instanceof Date, "time is no timestamp");
            Shared.same(work, headers.get("x-first-death-queue").toString(), "first queue");
        }
    }

    static void transactions() throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            String queue = own(channel);
            channel.txSelect();
            publish(channel, queue, "rolled back");
            channel.txRollback();
            publish(channel, queue, "one", "two");
            channel.txCommit();
            Shared.same(2L, channel.messageCount(queue), "messages");
            GetResponse got = channel.basicGet(queue, false);
            channel.basicAck(got.getEnvelope().getDeliveryTag(), false);
            channel.txRollback();
            channel.basicRecover();
            Shared.same("one", Shared.text(channel.basicGet(queue, true).getBody()), "after a rollback");
            refused(connection, 406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode", c -> {
                c.txSelect();
                c.confirmSelect();
            });
        }
    }

    static void replies() throws Exception {
        try (Connection serving = connect(); Connection calling = connect()) {
            Channel server = serving.createChannel(), client = calling.createChannel();
            String requests = own(server);
            // Both are of the same program, but the queue is the server's own: it is called through an exchange.
            server.queueBind(requests, "amq.direct", requests);
            server.basicConsume(requests, true, (tag, call) -> {
                AMQP.BasicProperties of = new AMQP.BasicProperties.Builder().correlationId(call.getProperties().getCorrelationId()).build();
                server.basicPublish("", call.getProperties().getReplyTo(), of, Shared.bytes(Shared.text(call.getBody()).toUpperCase()));
            }, tag -> {});
            RpcClient rpc = new RpcClient(new RpcClientParams().channel(client).exchange("amq.direct").routingKey(requests).replyTo(REPLY_TO).timeout(30_000));
            for (int i = 0; i < 20; i++) Shared.same("CALL " + i, rpc.stringCall("call " + i), "answer");
            rpc.close();
        }
    }

    /** Both ways past blocking sockets: the client's own, and Netty. */
    @SuppressWarnings("deprecation")
    static void nio() throws Exception {
        ConnectionFactory own = factory(), netty = factory();
        own.useNio();
        netty.netty();
        for (ConnectionFactory factory : List.of(own, netty)) {
            try (Connection connection = factory.newConnection(); Channel channel = connection.createChannel()) {
                String queue = own(channel);
                channel.confirmSelect();
                byte[] body = new byte[300_000];
                new Random(1).nextBytes(body);
                for (int i = 0; i < 10; i++) channel.basicPublish("", queue, null, body);
                channel.waitForConfirmsOrDie(Shared.WAIT_MS);
                for (Delivery delivery : take(channel, queue, 10)) Shared.check(Arrays.equals(body, delivery.getBody()), "the body changed");
            }
        }
    }

    static void large() throws Exception {
        ConnectionFactory factory = factory();
        factory.setRequestedFrameMax(8192);
        try (Connection connection = factory.newConnection(); Channel channel = connection.createChannel()) {
            Shared.same(8192, connection.getFrameMax(), "frames");
            String queue = own(channel);
            byte[] body = new byte[4_000_000];
            new Random(1).nextBytes(body);
            channel.basicPublish("", queue, null, body);
            Shared.check(Arrays.equals(body, take(channel, queue, 1).get(0).getBody()), "the body changed");
        }
    }

    static void logins() throws Exception {
        ConnectionFactory wrong = factory();
        wrong.setPassword("wrong");
        try {
            wrong.newConnection().close();
            throw new AssertionError("a wrong password was taken");
        } catch (AuthenticationFailureException e) {
            Shared.check(e.getMessage().contains("ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN"), e.getMessage());
        }
        ConnectionFactory nowhere = factory();
        nowhere.setVirtualHost("none");
        try {
            nowhere.newConnection().close();
            throw new AssertionError("a virtual host that is not there was opened");
        } catch (IOException e) {
            closed((ShutdownSignalException) e.getCause(), 530, "NOT_ALLOWED - vhost none not found");
        }
        ConnectionFactory brief = factory();
        brief.setRequestedHeartbeat(1);
        try (Connection connection = brief.newConnection()) {
            Shared.same(1, connection.getHeartbeat(), "heartbeat");
            // Longer than the broker waits for a silent client; the client's own thread sends heartbeats.
            Thread.sleep(3_000);
            connection.createChannel().close();
        }
    }

    /** A connection that breaks comes back with all that was declared through it, and its consumers. */
    static void recovery() throws Exception {
        BlockingQueue<Socket> sockets = new LinkedBlockingQueue<>();
        ConnectionFactory factory = factory();
        factory.setAutomaticRecoveryEnabled(true);
        factory.setTopologyRecoveryEnabled(true);
        factory.setNetworkRecoveryInterval(100);
        factory.setSocketConfigurator(sockets::add);
        try (RecoverableConnection connection = (RecoverableConnection) factory.newConnection("recovery")) {
            Channel channel = connection.createChannel();
            channel.basicQos(7);
            String exchange = Shared.fresh("x"), bound = Shared.fresh("bound");
            channel.exchangeDeclare(exchange, BuiltinExchangeType.TOPIC, false, true, null);
            channel.exchangeDeclare(bound, BuiltinExchangeType.FANOUT, false, true, null);
            channel.exchangeBind(bound, exchange, "#");
            String own = own(channel);
            String durable = channel.queueDeclare(Shared.fresh("durable"), true, false, false, null).getQueue();
            channel.queueBind(own, bound, "");
            channel.queueBind(durable, exchange, "a.*");
            BlockingQueue<String> got = new LinkedBlockingQueue<>();
            channel.basicConsume(own, true, (tag, delivery) -> got.add("own " + Shared.text(delivery.getBody())), tag -> {});
            channel.basicConsume(durable, true, (tag, delivery) -> got.add("durable " + Shared.text(delivery.getBody())), tag -> {});
            BlockingQueue<Recoverable> recovered = new LinkedBlockingQueue<>();
            connection.addRecoveryListener(new RecoveryListener() {
                @Override
                public void handleRecovery(Recoverable of) {
                    recovered.add(of);
                }

                @Override
                public void handleRecoveryStarted(Recoverable of) {}
            });
            for (String body : List.of("before", "after", "at last")) {
                channel.basicPublish(exchange, "a.b", null, Shared.bytes(body));
                Set<String> both = new HashSet<>();
                for (int i = 0; i < 2; i++) both.add(got.poll(Shared.WAIT_MS, TimeUnit.MILLISECONDS));
                Shared.same(Set.of("own " + body, "durable " + body), both, body);
                sockets.take().close();
                Shared.check(recovered.poll(Shared.WAIT_MS, TimeUnit.MILLISECONDS) != null, "it did not come back");
            }
            channel.queueDelete(durable);
        }
    }

    public static void main(String[] arguments) {
        Shared.main(arguments);
    }
}
