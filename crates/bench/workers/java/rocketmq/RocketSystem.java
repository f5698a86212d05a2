import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.CommandUtil;

/**
 * rocketmq-client, which speaks RocketMQ's remoting protocol. A partition is a queue. Messages are sent asynchronously. With room for
 * several in batch_bytes the client's own batching is on (autoBatch): batch_bytes is batchMaxBytes and linger_us is batchMaxDelayMs,
 * at least 1 ms. in_flight full batches are the messages that may be unanswered; without batching that is in_flight messages.
 * commit_ms is persistConsumerOffsetInterval. A group is one of push consumers, as in the driver of the OpenMessaging Benchmark, but
 * each hands over with one thread, so that messages stay in order, and 32 at a time.
 *
 * <p>The broker appends what one producer has sent in the order in which its threads get to it, unless the producer waits for each
 * answer: messages that are pipelined may come out of order.
 */
final class RocketSystem implements Client {
    private static final int TAKEN_AT_A_TIME = 32;
    private static final long BUSY_WAIT_MS = 10;

    private final JsonNode spec;
    private final String topic;
    private final int partitions;
    private final boolean batches;

    RocketSystem(JsonNode spec) {
        this.spec = spec;
        Client.oneTopic(spec);
        Client.noSettings(spec);
        topic = spec.get("topic").asText();
        partitions = spec.get("partitions").asInt();
        batches = Client.recordsPerBatch(spec) > 1 && spec.get("in_flight").asInt() > 1;
    }

    private String servers() {
        return spec.get("bootstrap").asText();
    }

    private DefaultMQAdminExt admin() throws MQClientException {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(servers());
        admin.setInstanceName("bench-admin-" + System.nanoTime());
        admin.setVipChannelEnabled(false);
        admin.start();
        return admin;
    }

    /** The one broker, which has no copies. */
    private static String broker(DefaultMQAdminExt admin) throws Exception {
        String cluster = admin.examineBrokerClusterInfo().getClusterAddrTable().keySet().iterator().next();
        return CommandUtil.fetchMasterAddrByClusterName(admin, cluster).iterator().next();
    }

    @Override
    public void create() throws Exception {
        DefaultMQAdminExt admin = admin();
        try {
            TopicConfig config = new TopicConfig(topic);
            config.setReadQueueNums(partitions);
            config.setWriteQueueNums(partitions);
            admin.createAndUpdateTopicConfig(broker(admin), config);
            long until = System.nanoTime() + 30_000_000_000L;
            while (true) {
                try {
                    if (admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getWriteQueueNums() == partitions) {
                        break;
                    }
                } catch (MQClientException e) {
                    // The name server does not know it yet.
                    if (System.nanoTime() > until) {
                        throw e;
                    }
                }
                Thread.sleep(50);
            }
            allocate(admin);
        } finally {
            Client.endAside(admin::shutdown);
        }
    }

    /** Sends a message to a topic of its own: with its first message a broker makes its first file, and refuses what comes meanwhile. */
    private void allocate(DefaultMQAdminExt admin) throws Exception {
        TopicConfig config = new TopicConfig("bench-first");
        config.setReadQueueNums(1);
        config.setWriteQueueNums(1);
        admin.createAndUpdateTopicConfig(broker(admin), config);
        DefaultMQProducer producer = new DefaultMQProducer("bench-first-" + RUN);
        producer.setNamesrvAddr(servers());
        producer.setInstanceName("bench-first-" + System.nanoTime());
        producer.setVipChannelEnabled(false);
        producer.start();
        try {
            long until = System.nanoTime() + 30_000_000_000L;
            while (true) {
                try {
                    producer.send(new Message("bench-first", new byte[16]), 10_000);
                    return;
                } catch (MQBrokerException | MQClientException e) {
                    if (System.nanoTime() > until) {
                        throw e;
                    }
                    Thread.sleep(50);
                }
            }
        } finally {
            Client.endAside(producer::shutdown);
        }
    }

    @Override
    public int pendingMax() {
        return batches ? Client.pending(spec) : spec.get("in_flight").asInt();
    }

    @Override
    public Producer producer(int number) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench-producer-" + Client.RUN + "-" + number);
        producer.setNamesrvAddr(servers());
        // A name of its own gives it a connection of its own.
        producer.setInstanceName("bench-producer-" + System.nanoTime());
        producer.setVipChannelEnabled(false);
        // A message that is sent again could be there twice.
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setMaxMessageSize(Math.max(4 << 20, 2 * spec.get("message_bytes").asInt()));
        producer.setSendMsgTimeout(30_000);
        producer.setAutoBatch(batches);
        producer.start();
        if (batches) {
            producer.batchMaxBytes(spec.get("batch_bytes").asLong());
            producer.batchMaxDelayMs((int) Math.max(spec.get("linger_us").asLong() / 1_000, 1));
            producer.totalBatchMaxBytes(Math.max(32L << 20, (long) partitions * spec.get("batch_bytes").asLong()));
        }
        List<MessageQueue> found = producer.fetchPublishMessageQueues(topic);
        MessageQueue[] queues = new MessageQueue[partitions];
        for (MessageQueue queue : found) {
            queues[queue.getQueueId()] = queue;
        }
        return new Sending(producer, queues);
    }

    private final class Sending implements Producer {
        private final DefaultMQProducer producer;
        private final MessageQueue[] queues;

        Sending(DefaultMQProducer producer, MessageQueue[] queues) {
            this.producer = producer;
            this.queues = queues;
        }

        @Override
        public void send(int partition, byte[] message, Answer answer) throws Exception {
            producer.send(new Message(topic, message), queues[partition], new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answer.came(result.getSendStatus() == SendStatus.SEND_OK ? null : result.getSendStatus());
                }

                @Override
                public void onException(Throwable refused) {
                    if (refused instanceof MQBrokerException stated && stated.getResponseCode() == ResponseCode.SYSTEM_BUSY) {
                        again(partition, message, answer);
                    } else {
                        answer.came(refused);
                    }
                }
            });
        }

        /** A broker that is busy has not taken the message: it is sent again a little later, and its latency goes on. */
        private void again(int partition, byte[] message, Answer answer) {
            CompletableFuture.delayedExecutor(BUSY_WAIT_MS, TimeUnit.MILLISECONDS).execute(() -> {
                try {
                    send(partition, message, answer);
                } catch (Exception e) {
                    answer.came(e);
                }
            });
        }

        @Override
        public void close(long millisMax) {
            Client.endAside(producer::shutdown);
        }
    }

    /** Has a new group start where the spec says. The broker by itself would start at the front of a topic that is young. */
    @Override
    public void group(int group) throws Exception {
        DefaultMQAdminExt admin = admin();
        try {
            // The broker would make the group when it first sees it, but takes no offsets of one that it has not seen.
            SubscriptionGroupConfig config = new SubscriptionGroupConfig();
            config.setGroupName(Client.groupName(group));
            admin.createAndUpdateSubscriptionGroupConfig(broker(admin), config);
            Set<MessageQueue> queues = admin.examineTopicStats(topic).getOffsetTable().keySet();
            for (MessageQueue queue : queues) {
                long offset = Client.fromEnd(spec) ? admin.maxOffset(queue) : admin.minOffset(queue);
                admin.updateConsumeOffset(broker(admin), Client.groupName(group), queue, offset);
            }
        } finally {
            Client.endAside(admin::shutdown);
        }
    }

    @Override
    public Consumer consumer(int group, int number, Sink sink) throws Exception {
        String name = Client.groupName(group);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(name);
        consumer.setNamesrvAddr(servers());
        consumer.setInstanceName("bench-consumer-" + group + "-" + number + "-" + System.nanoTime());
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.setConsumeMessageBatchMaxSize(TAKEN_AT_A_TIME);
        consumer.setPersistConsumerOffsetInterval((int) Client.commitMs(spec));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                sink.take(message.getQueueId(), message.getBody());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return new Consumer() {
            @Override
            public long assigned() {
                var queues = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet();
                return queues.stream().filter(queue -> queue.getTopic().equals(topic)).count();
            }

            @Override
            public void close() {
                Client.endAside(consumer::shutdown);
            }
        };
    }
}
