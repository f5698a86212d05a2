import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.amqp.AmqpRejectAndDontRequeueException;
import org.springframework.amqp.core.*;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.rabbit.AsyncRabbitTemplate;
import org.springframework.amqp.rabbit.config.RetryInterceptorBuilder;
import org.springframework.amqp.rabbit.connection.*;
import org.springframework.amqp.rabbit.core.*;
import org.springframework.amqp.rabbit.listener.*;
import org.springframework.amqp.rabbit.listener.adapter.MessageListenerAdapter;
import org.springframework.amqp.rabbit.listener.api.ChannelAwareMessageListener;
import org.springframework.amqp.rabbit.retry.*;

/** The cases with Spring AMQP: templates, listener containers, the admin. See ../README.md. */
public final class Spring {
    static {
        Shared.CASES.put("smoke", Spring::smoke);
        Shared.CASES.put("admin", Spring::admin);
        Shared.CASES.put("confirms_and_returns", Spring::confirmsAndReturns);
        Shared.CASES.put("replies", Spring::replies);
        Shared.CASES.put("reply_queue", Spring::replyQueue);
        Shared.CASES.put("simple_container", () -> container(Spring::simple));
        Shared.CASES.put("direct_container", () -> container(Spring::direct));
        Shared.CASES.put("retries", () -> {
            retries(Spring::simple);
            retries(Spring::direct);
        });
        Shared.CASES.put("requeue", Spring::requeue);
        Shared.CASES.put("batches", Spring::batches);
        Shared.CASES.put("transactions", Spring::transactions);
        Shared.CASES.put("queue_deleted", Spring::queueDeleted);
    }

    static CachingConnectionFactory factory() {
        return new CachingConnectionFactory(Shared.host, Shared.port);
    }

    /** What a case does with a connection factory, which ends with it. */
    interface With {
        void run(CachingConnectionFactory factory, RabbitAdmin admin, RabbitTemplate template) throws Exception;
    }

    static void with(CachingConnectionFactory factory, With act) throws Exception {
        try {
            act.run(factory, new RabbitAdmin(factory), new RabbitTemplate(factory));
        } finally {
            factory.destroy();
        }
    }

    static SimpleMessageListenerContainer simple(ConnectionFactory factory) {
        SimpleMessageListenerContainer container = new SimpleMessageListenerContainer(factory);
        container.setConcurrentConsumers(2);
        container.setReceiveTimeout(100);
        return container;
    }

    static DirectMessageListenerContainer direct(ConnectionFactory factory) {
        DirectMessageListenerContainer container = new DirectMessageListenerContainer(factory);
        container.setConsumersPerQueue(2);
        return container;
    }

    /** A queue of this connection alone, which stays while it is not consumed. */
    static String own(RabbitAdmin admin) {
        return admin.declareQueue(QueueBuilder.nonDurable(Shared.fresh("own")).exclusive().build());
    }

    interface Containers {
        AbstractMessageListenerContainer of(ConnectionFactory factory);
    }

    /** Runs a container with this listener while the rest goes on. */
    static void listening(AbstractMessageListenerContainer container, String queue, ChannelAwareMessageListener listener, Shared.Case rest) throws Exception {
        container.setQueueNames(queue);
        container.setMessageListener(listener);
        container.afterPropertiesSet();
        container.start();
        try {
            rest.run();
        } finally {
            container.stop();
            container.destroy();
        }
    }

    static void smoke() throws Exception {
        with(factory(), (factory, admin, template) -> {
            String queue = own(admin);
            for (int i = 0; i < 50; i++) {
                int n = i;
                template.convertAndSend("", queue, "m" + i, message -> {
                    message.getMessageProperties().setHeader("n", n);
                    return message;
                });
            }
            for (int i = 0; i < 50; i++) {
                Message got = template.receive(queue, Shared.WAIT_MS);
                Shared.same("m" + i, new String(got.getBody()), "body");
                Shared.same(i, got.getMessageProperties().getHeader("n"), "header");
            }
            template.convertAndSend("", queue, Map.of("key", List.of(1, 2, 3)).toString());
            Shared.same("{key=[1, 2, 3]}", template.receiveAndConvert(queue, Shared.WAIT_MS), "converted");
            Shared.same(null, template.receive(queue), "an empty queue");
        });
    }

    static void admin() throws Exception {
        with(factory(), (factory, admin, template) -> {
            TopicExchange topic = new TopicExchange(Shared.fresh("topic"), true, false);
            HeadersExchange headers = new HeadersExchange(Shared.fresh("headers"), false, true);
            FanoutExchange fanout = ExchangeBuilder.fanoutExchange(Shared.fresh("fanout")).alternate(topic.getName()).build();
            Queue classic = QueueBuilder.durable(Shared.fresh("classic")).ttl(60_000).maxLength(100L).overflow(QueueBuilder.Overflow.rejectPublish)
                .deadLetterExchange("").deadLetterRoutingKey("grave").maxPriority(5).build();
            Queue quorum = QueueBuilder.durable(Shared.fresh("quorum")).quorum().deliveryLimit(3).build();
            Queue active = QueueBuilder.nonDurable(Shared.fresh("active")).singleActiveConsumer().expires(60_000).lazy().build();
            for (Exchange exchange : List.of(topic, headers, fanout)) admin.declareExchange(exchange);
            for (Queue queue : List.of(classic, quorum, active)) Shared.same(queue.getName(), admin.declareQueue(queue), "declared");
            admin.declareBinding(BindingBuilder.bind(classic).to(topic).with("a.*"));
            admin.declareBinding(BindingBuilder.bind(quorum).to(headers).whereAll(Map.of("kind", "q")).match());
            admin.declareBinding(BindingBuilder.bind(active).to(fanout));
            admin.declareBinding(BindingBuilder.bind(topic).to(fanout));
            template.convertAndSend(fanout.getName(), "a.b", "to all");
            template.convertAndSend(headers.getName(), "", "by header", message -> {
                message.getMessageProperties().setHeader("kind", "q");
                return message;
            });
            for (Queue queue : List.of(classic, quorum, active)) {
                Shared.until("one message in " + queue.getName(), () -> admin.getQueueInfo(queue.getName()).getMessageCount() == 1);
                Shared.same(0, admin.getQueueInfo(queue.getName()).getConsumerCount(), "consumers");
            }
            Shared.same(1, admin.purgeQueue(classic.getName()), "purged");
            admin.removeBinding(BindingBuilder.bind(classic).to(topic).with("a.*"));
            for (Queue queue : List.of(classic, quorum, active)) Shared.check(admin.deleteQueue(queue.getName()), "not deleted");
            for (Exchange exchange : List.of(topic, headers, fanout)) Shared.check(admin.deleteExchange(exchange.getName()), "not deleted");
            Shared.same(null, admin.getQueueProperties(classic.getName()), "a queue that is gone");
        });
    }

    static void confirmsAndReturns() throws Exception {
        CachingConnectionFactory correlated = factory();
        correlated.setPublisherConfirmType(CachingConnectionFactory.ConfirmType.CORRELATED);
        correlated.setPublisherReturns(true);
        with(correlated, (factory, admin, template) -> {
            template.setMandatory(true);
            String queue = own(admin);
            List<CorrelationData> sent = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                CorrelationData of = new CorrelationData("" + i);
                template.convertAndSend("", i == 50 ? "nowhere" : queue, "m" + i, of);
                sent.add(of);
            }
            for (CorrelationData of : sent) {
                Shared.check(of.getFuture().get(Shared.WAIT_MS, TimeUnit.MILLISECONDS).ack(), "not confirmed");
                Shared.same(of.getId().equals("50"), of.getReturned() != null, "returned " + of.getId());
            }
            Shared.same(312, sent.get(50).getReturned().getReplyCode(), "code");
            CorrelationData lost = new CorrelationData("lost");
            template.convertAndSend("no-such-exchange", "x", "m", lost);
            CorrelationData.Confirm confirm = lost.getFuture().get(Shared.WAIT_MS, TimeUnit.MILLISECONDS);
            Shared.check(!confirm.ack() && confirm.reason().contains("NOT_FOUND - no exchange 'no-such-exchange'"), confirm.toString());
        });
        CachingConnectionFactory simple = factory();
        simple.setPublisherConfirmType(CachingConnectionFactory.ConfirmType.SIMPLE);
        with(simple, (factory, admin, template) -> {
            String queue = own(admin);
            boolean all = template.invoke(operations -> {
                for (int i = 0; i < 100; i++) operations.convertAndSend("", queue, "m" + i);
                return operations.waitForConfirms(Shared.WAIT_MS);
            });
            Shared.check(all, "not confirmed");
        });
    }

    /** A listener that answers, and who asks it by direct reply-to, which is what a template does by itself. */
    static void replies() throws Exception {
        with(factory(), (factory, admin, template) -> {
            String queue = own(admin);
            MessageListenerAdapter answering = new MessageListenerAdapter(new Object() {
                public String handleMessage(String asked) {
                    return asked.toUpperCase();
                }
            });
            listening(simple(factory), queue, answering, () -> {
                template.setReplyTimeout(Shared.WAIT_MS);
                for (int i = 0; i < 20; i++) Shared.same("CALL " + i, template.convertSendAndReceive("", queue, "call " + i), "answer");
                template.setUseDirectReplyToContainer(false);
                Shared.same("ONCE", template.convertSendAndReceive("", queue, "once"), "answer on a channel of its own");
                AsyncRabbitTemplate async = new AsyncRabbitTemplate(template);
                async.start();
                List<CompletableFuture<String>> asked = new ArrayList<>();
                for (int i = 0; i < 20; i++) asked.add(async.convertSendAndReceive("", queue, "later " + i));
                for (int i = 0; i < 20; i++) Shared.same("LATER " + i, asked.get(i).get(Shared.WAIT_MS, TimeUnit.MILLISECONDS), "answer");
                async.stop();
            });
            template.stop();
        });
    }

    /** The same with a queue for the answers. */
    static void replyQueue() throws Exception {
        with(factory(), (factory, admin, template) -> {
            String queue = own(admin);
            template.setUseTemporaryReplyQueues(true);
            template.setReplyTimeout(Shared.WAIT_MS);
            listening(direct(factory), queue, new MessageListenerAdapter(new Object() {
                public String handleMessage(String asked) {
                    return asked.toUpperCase();
                }
            }), () -> Shared.same("CALL", template.convertSendAndReceive("", queue, "call"), "answer"));
        });
    }

    static void container(Containers containers) throws Exception {
        with(factory(), (factory, admin, template) -> {
            String queue = admin.declareQueue(QueueBuilder.durable(Shared.fresh("spring")).build());
            AbstractMessageListenerContainer container = containers.of(factory);
            Set<String> got = ConcurrentHashMap.newKeySet();
            listening(container, queue, (message, channel) -> got.add(new String(message.getBody())), () -> {
                for (int i = 0; i < 500; i++) template.convertAndSend("", queue, "m" + i);
                Shared.until("all 500 come", () -> got.size() == 500);
                Shared.until("two consumers", () -> admin.getQueueInfo(queue).getConsumerCount() == 2);
            });
            Shared.until("all are acknowledged", () -> {
                QueueInformation left = admin.getQueueInfo(queue);
                return left.getMessageCount() == 0 && left.getConsumerCount() == 0;
            });
            admin.deleteQueue(queue);
        });
    }

    /** Three attempts in the client, then the queue of those that failed: by rejecting them, and by publishing them there. */
    static void retries(Containers containers) throws Exception {
        with(factory(), (factory, admin, template) -> {
            String grave = admin.declareQueue(QueueBuilder.durable(Shared.fresh("grave")).build());
            String work = admin.declareQueue(QueueBuilder.durable(Shared.fresh("work")).quorum().deadLetterExchange("").deadLetterRoutingKey(grave).build());
            for (MessageRecoverer last : List.of(new RejectAndDontRequeueRecoverer(), new RepublishMessageRecoverer(template, "", grave))) {
                AtomicInteger attempts = new AtomicInteger();
                AbstractMessageListenerContainer container = containers.of(factory);
                container.setAdviceChain(RetryInterceptorBuilder.stateless().maxRetries(2).backOffOptions(10, 1, 10).recoverer(last).build());
                listening(container, work, (message, channel) -> {
                    attempts.incrementAndGet();
                    throw new IllegalStateException("on purpose");
                }, () -> {
                    template.convertAndSend("", work, "poison");
                    Message dead = template.receive(grave, Shared.WAIT_MS);
                    Shared.same("poison", new String(dead.getBody()), "body");
                    Shared.same(3, attempts.get(), "attempts");
                    if (last instanceof RejectAndDontRequeueRecoverer) {
                        Map<String, ?> death = dead.getMessageProperties().getXDeathHeader().get(0);
                        Shared.same("rejected " + work, death.get("reason") + " " + death.get("queue"), "death");
                    } else {
                        Shared.same("on purpose", dead.getMessageProperties().getHeader("x-exception-message"), "why it failed, in " + dead);
                    }
                });
            }
            admin.deleteQueue(work);
            admin.deleteQueue(grave);
        });
    }

    /** A listener that fails has its message again, marked, until it tells the container to give it up. */
    static void requeue() throws Exception {
        with(factory(), (factory, admin, template) -> {
            String queue = own(admin);
            List<Boolean> seen = Collections.synchronizedList(new ArrayList<>());
            listening(direct(factory), queue, (message, channel) -> {
                seen.add(message.getMessageProperties().isRedelivered());
                if (seen.size() < 3) throw new IllegalStateException("on purpose");
                throw new AmqpRejectAndDontRequeueException("enough");
            }, () -> {
                template.convertAndSend("", queue, "again");
                Shared.until("three times", () -> seen.size() == 3);
                Shared.until("it is gone", () -> admin.getQueueInfo(queue).getMessageCount() == 0);
            });
            Shared.same(List.of(false, true, true), seen, "redelivered");
            Shared.same(0, (int) admin.getQueueInfo(queue).getMessageCount(), "left");
        });
    }

    static void batches() throws Exception {
        with(factory(), (factory, admin, template) -> {
            String queue = own(admin);
            SimpleMessageListenerContainer container = new SimpleMessageListenerContainer(factory);
            container.setConsumerBatchEnabled(true);
            container.setBatchSize(10);
            container.setPrefetchCount(20);
            container.setQueueNames(queue);
            List<Integer> sizes = Collections.synchronizedList(new ArrayList<>());
            container.setMessageListener((org.springframework.amqp.core.BatchMessageListener) messages -> sizes.add(messages.size()));
            for (int i = 0; i < 50; i++) template.convertAndSend("", queue, "m" + i);
            Shared.until("all are there", () -> admin.getQueueInfo(queue).getMessageCount() == 50);
            container.afterPropertiesSet();
            container.start();
            Shared.until("all come", () -> sizes.stream().mapToInt(n -> n).sum() == 50);
            container.stop();
            container.destroy();
            Shared.check(sizes.get(0) == 10 && sizes.stream().allMatch(n -> n <= 10), "batches of " + sizes);
        });
    }

    static void transactions() throws Exception {
        with(factory(), (factory, admin, template) -> {
            String from = own(admin), to = own(admin);
            template.setChannelTransacted(true);
            AtomicInteger attempts = new AtomicInteger();
            SimpleMessageListenerContainer container = simple(factory);
            container.setChannelTransacted(true);
            listening(container, from, (message, channel) -> {
                channel.basicPublish("", to, null, message.getBody());
                if (attempts.incrementAndGet() < 3) throw new IllegalStateException("roll back");
            }, () -> {
                template.convertAndSend("", from, "once");
                Shared.same("once", new String(template.receive(to, Shared.WAIT_MS).getBody()), "body");
            });
            Shared.same(3, attempts.get(), "attempts");
            Shared.same(null, template.receive(to), "what was rolled back");
        });
    }

    /** A container whose queue is deleted says so and consumes again when it is back. */
    static void queueDeleted() throws Exception {
        with(factory(), (factory, admin, template) -> {
            Queue queue = new Queue(Shared.fresh("fleeting"), false, false, false);
            admin.declareQueue(queue);
            SimpleMessageListenerContainer container = simple(factory);
            container.setRecoveryInterval(100);
            container.setFailedDeclarationRetryInterval(100);
            container.setMissingQueuesFatal(false);
            BlockingQueue<String> got = new LinkedBlockingQueue<>();
            listening(container, queue.getName(), (message, channel) -> got.add(new String(message.getBody())), () -> {
                template.convertAndSend("", queue.getName(), "before");
                Shared.same("before", got.poll(Shared.WAIT_MS, TimeUnit.MILLISECONDS), "message");
                admin.deleteQueue(queue.getName());
                admin.declareQueue(queue);
                template.convertAndSend("", queue.getName(), "after");
                Shared.same("after", got.poll(Shared.WAIT_MS, TimeUnit.MILLISECONDS), "message");
            });
            admin.deleteQueue(queue.getName());
        });
    }

    public static void main(String[] arguments) {
        Shared.main(arguments);
    }
}
