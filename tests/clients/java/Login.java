import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.security.*;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.*;
import org.apache.kafka.common.security.oauthbearer.*;
import org.apache.kafka.common.serialization.*;

/** Logins with the official Java client: KAFKA,... of a broker that asks, whose administrator is `admin`. See ../README.md. */
public final class Login {
    static final Duration WAIT = Duration.ofSeconds(60);
    static final String PASSWORD = "admin-password";
    static final List<String> MECHANISMS = List.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512");

    interface Case {
        void run(Login cluster) throws Exception;
    }

    static final Map<String, Case> CASES = new LinkedHashMap<>();

    static {
        CASES.put("administrator", Login::administrator);
        CASES.put("scram_users", Login::scramUsers);
        CASES.put("wrong_password", Login::wrongPassword);
        CASES.put("only_administrators_manage_users", Login::onlyAdministrators);
        CASES.put("acls", Login::acls);
        CASES.put("tls", Login::tls);
        CASES.put("tokens", Login::tokens);
        CASES.put("tokens_again", Login::tokensAgain);
    }

    final String bootstrap;
    /** Of a listener that speaks TLS, and who signs for it. */
    final String secured;
    final String ca;
    /** The key with which tokens are signed. */
    static Path key;

    Login(String[] at) {
        bootstrap = at[0];
        secured = at[2];
        ca = at[4];
        key = Path.of(at[7]);
    }

    Map<String, Object> settings(String user, String password, String mechanism) {
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        String jaas = "org.apache.kafka.common.security." + module + " required username=\"" + user + "\" password=\""
            + password + "\";";
        return new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "security.protocol", "SASL_PLAINTEXT",
            "sasl.mechanism", mechanism,
            "sasl.jaas.config", jaas));
    }

    Admin admin(String user, String password, String mechanism) {
        return Admin.create(settings(user, password, mechanism));
    }

    String topic() throws Exception {
        String topic = "login-" + UUID.randomUUID();
        try (Admin admin = admin("admin", PASSWORD, "PLAIN")) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        }
        return topic;
    }

    static AclBinding allow(String user, ResourceType kind, String name, AclOperation operation) {
        return new AclBinding(
            new ResourcePattern(kind, name, PatternType.LITERAL),
            new AccessControlEntry("User:" + user, "*", operation, AclPermissionType.ALLOW));
    }

    void roundTrip(String user, String password, String mechanism) throws Exception {
        String topic = topic();
        try (Admin admin = admin("admin", PASSWORD, "PLAIN")) {
            admin.createAcls(List.of(
                allow(user, ResourceType.TOPIC, topic, AclOperation.READ),
                allow(user, ResourceType.TOPIC, topic, AclOperation.WRITE),
                allow(user, ResourceType.GROUP, topic, AclOperation.READ))).all().get();
        }
        Map<String, Object> settings = settings(user, password, mechanism);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "hello")).get();
        }
        settings.put("group.id", topic);
        settings.put("auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + WAIT.toNanos();
            while (System.nanoTime() < end) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    if (record.value().equals("hello")) return;
                    throw new AssertionError(record.value());
                }
            }
            throw new AssertionError("nothing came");
        }
    }

    void setScram(String user, String password, ScramMechanism mechanism) throws Exception {
        try (Admin admin = admin("admin", PASSWORD, "SCRAM-SHA-512")) {
            var info = new ScramCredentialInfo(mechanism, 8192);
            byte[] bytes = password.getBytes(StandardCharsets.UTF_8);
            admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(user, info, bytes))).all().get();
        }
    }

    static void refused(Class<?> expected, Admin admin) throws Exception {
        try (admin) {
            admin.describeCluster().clusterId().get();
        } catch (ExecutionException e) {
            if (expected.isInstance(e.getCause())) return;
            throw e;
        }
        throw new AssertionError("it was let in");
    }

    void administrator() throws Exception {
        for (String mechanism : MECHANISMS) roundTrip("admin", PASSWORD, mechanism);
    }

    void scramUsers() throws Exception {
        for (ScramMechanism mechanism : List.of(ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)) {
            String user = "user-" + UUID.randomUUID();
            setScram(user, "secret", mechanism);
            roundTrip(user, "secret", mechanism.mechanismName());
            try (Admin admin = admin("admin", PASSWORD, "PLAIN")) {
                var shown = admin.describeUserScramCredentials(List.of(user)).all().get().get(user).credentialInfos();
                if (!shown.equals(List.of(new ScramCredentialInfo(mechanism, 8192)))) throw new AssertionError(shown);
                admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion(user, mechanism))).all().get();
            }
            refused(SaslAuthenticationException.class, admin(user, "secret", mechanism.mechanismName()));
        }
    }

    void wrongPassword() throws Exception {
        for (String mechanism : MECHANISMS) {
            refused(SaslAuthenticationException.class, admin("admin", "wrong", mechanism));
        }
    }

    void onlyAdministrators() throws Exception {
        setScram("new-user", "secret", ScramMechanism.SCRAM_SHA_256);
        try (Admin admin = admin("new-user", "secret", "SCRAM-SHA-256")) {
            admin.describeUserScramCredentials().all().get();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof ClusterAuthorizationException) return;
            throw e;
        }
        throw new AssertionError("it was let");
    }

    void tls() throws Exception {
        String topic = topic();
        for (String mechanism : MECHANISMS) {
            var settings = settings("admin", PASSWORD, mechanism);
            settings.putAll(Map.of("bootstrap.servers", secured, "security.protocol", "SASL_SSL",
                "ssl.truststore.type", "PEM", "ssl.truststore.location", ca));
            try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                for (int i = 0; i < 2000; i++) producer.send(new ProducerRecord<>(topic, mechanism + i + "x".repeat(1000)));
            }
            settings.putAll(Map.of("group.id", topic + mechanism, "auto.offset.reset", "earliest"));
            try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of(topic));
                int came = 0;
                long end = System.nanoTime() + WAIT.toNanos();
                while (came < 2000 && System.nanoTime() < end) {
                    for (var record : consumer.poll(Duration.ofMillis(200))) if (record.value().startsWith(mechanism)) came++;
                }
                if (came != 2000) throw new AssertionError(came + " messages by " + mechanism);
            }
        }
    }

    interface Action {
        void run() throws Exception;
    }

    static void denied(Class<?> expected, Action action) throws Exception {
        try {
            action.run();
        } catch (ExecutionException e) {
            if (expected.isInstance(e.getCause())) return;
            throw e;
        }
        throw new AssertionError("it was let");
    }

    void acls() throws Exception {
        String topic = topic(), user = "user-" + UUID.randomUUID();
        setScram(user, "secret", ScramMechanism.SCRAM_SHA_256);
        var settings = settings(user, "secret", "SCRAM-SHA-256");
        var binding = allow(user, ResourceType.TOPIC, topic, AclOperation.WRITE);
        try (Admin admin = admin("admin", PASSWORD, "PLAIN"); Admin mine = Admin.create(settings)) {
            denied(TopicAuthorizationException.class, () -> mine.describeTopics(List.of(topic)).allTopicNames().get());
            denied(TopicAuthorizationException.class, () -> mine.deleteTopics(List.of(topic)).all().get());
            denied(ClusterAuthorizationException.class, () -> mine.createAcls(List.of(binding)).all().get());
            denied(ClusterAuthorizationException.class, () -> mine.describeAcls(AclBindingFilter.ANY).values().get());
            if (mine.listTopics().names().get().contains(topic)) throw new AssertionError("it is seen");
            admin.createAcls(List.of(binding)).all().get();
            try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                producer.send(new ProducerRecord<>(topic, "hello")).get();
            }
            var options = new DescribeTopicsOptions().includeAuthorizedOperations(true);
            var described = mine.describeTopics(List.of(topic), options).allTopicNames().get().get(topic);
            if (!described.authorizedOperations().equals(Set.of(AclOperation.WRITE, AclOperation.DESCRIBE))) {
                throw new AssertionError(described.authorizedOperations());
            }
            var shown = admin.describeAcls(binding.toFilter()).values().get();
            if (!List.copyOf(shown).equals(List.of(binding))) throw new AssertionError(shown);
            var gone = admin.deleteAcls(List.of(binding.toFilter())).all().get();
            if (!List.copyOf(gone).equals(List.of(binding))) throw new AssertionError(gone);
            try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                denied(TopicAuthorizationException.class, () -> producer.send(new ProducerRecord<>(topic, "x")).get());
            }
        }
    }

    /** Gives the client a token for the name and the scopes that its JAAS configuration has, which holds for so many seconds. */
    public static final class Tokens implements AuthenticateCallbackHandler {
        static volatile int given;
        Map<String, ?> options;

        @Override
        public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
            options = entries.get(0).getOptions();
        }

        @Override
        public void close() {}

        @Override
        public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
            for (Callback callback : callbacks) {
                if (callback instanceof OAuthBearerTokenCallback asks) asks.token(token());
                else if (!(callback instanceof SaslExtensionsCallback)) throw new UnsupportedCallbackException(callback);
            }
        }

        OAuthBearerToken token() {
            String name = options.get("name").toString();
            long start = System.currentTimeMillis();
            long end = start / 1000 + Long.parseLong(options.get("seconds").toString());
            String claims = String.format(
                "{\"iss\":\"testkit\",\"aud\":[\"polylogue\"],\"sub\":\"%s\",\"scope\":\"%s\",\"exp\":%d}",
                name, options.get("scopes"), end);
            String value = signed(claims);
            if (options.containsKey("wrong")) value = value.substring(0, value.length() - 8) + "AAAAAAAA";
            given++;
            String token = value;
            return new OAuthBearerToken() {
                public String value() { return token; }
                public Set<String> scope() { return Set.of(); }
                public long lifetimeMs() { return end * 1000; }
                public String principalName() { return name; }
                public Long startTimeMs() { return start; }
            };
        }

        static String signed(String claims) {
            try {
                String pem = Files.readString(key).replaceAll("-----[A-Z ]+-----|\\s", "");
                var spec = new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem));
                var encoder = Base64.getUrlEncoder().withoutPadding();
                String head = encoder.encodeToString("{\"alg\":\"RS256\",\"kid\":\"1\"}".getBytes(StandardCharsets.UTF_8));
                String body = head + "." + encoder.encodeToString(claims.getBytes(StandardCharsets.UTF_8));
                Signature signature = Signature.getInstance("SHA256withRSA");
                signature.initSign(KeyFactory.getInstance("RSA").generatePrivate(spec));
                signature.update(body.getBytes(StandardCharsets.UTF_8));
                return body + "." + encoder.encodeToString(signature.sign());
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }
    }

    Map<String, Object> bearer(String name, String scopes, int seconds, String more) {
        String jaas = String.format(
            "%s required name=\"%s\" scopes=\"%s\" seconds=\"%d\" %s;",
            OAuthBearerLoginModule.class.getName(), name, scopes, seconds, more);
        return new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "security.protocol", "SASL_PLAINTEXT",
            "sasl.mechanism", "OAUTHBEARER",
            "sasl.jaas.config", jaas,
            "sasl.login.callback.handler.class", Tokens.class.getName(),
            "sasl.login.refresh.min.period.seconds", (short) 0,
            "sasl.login.refresh.buffer.seconds", (short) 0));
    }

    /** A token says who its bearer is, and by a scope that it may do everything; an unsigned token is refused. */
    void tokens() throws Exception {
        String topic = topic();
        var boss = bearer("boss", "openid polylogue.tag:administrator", 600, "");
        try (Admin admin = Admin.create(boss)) {
            admin.createTopics(List.of(new NewTopic(topic + "-2", 1, (short) 1))).all().get();
            admin.createAcls(List.of(allow("bearer", ResourceType.TOPIC, topic, AclOperation.WRITE))).all().get();
        }
        try (var producer = new KafkaProducer<>(
                bearer("bearer", "", 600, ""), new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "hello")).get();
            denied(TopicAuthorizationException.class, () -> producer.send(new ProducerRecord<>(topic + "-2", "x")).get());
        }
        refused(SaslAuthenticationException.class, Admin.create(bearer("boss", "polylogue.tag:administrator", 600, "wrong=\"1\"")));
    }

    /** A producer whose tokens hold for seconds logs in again on the connection that it has, and nothing of it is lost. */
    void tokensAgain() throws Exception {
        String topic = topic();
        int before = Tokens.given;
        var settings = bearer("boss", "polylogue.tag:administrator", 6, "");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            long end = System.nanoTime() + WAIT.toNanos();
            double again = 0;
            while (again < 2 || Tokens.given < before + 3) {
                if (System.nanoTime() > end) throw new AssertionError(again + " times, " + Tokens.given + " tokens");
                producer.send(new ProducerRecord<>(topic, "hello")).get();
                again = producer.metrics().entrySet().stream()
                    .filter(metric -> metric.getKey().name().equals("successful-reauthentication-total"))
                    .mapToDouble(metric -> (Double) metric.getValue().metricValue()).sum();
            }
        }
    }

    public static void main(String[] args) {
        if (args.length > 0 && args[0].equals("--list")) {
            CASES.keySet().forEach(System.out::println);
            return;
        }
        Login cluster = new Login(args[0].split(","));
        List<String> wanted = args.length > 1 ? Arrays.asList(args).subList(1, args.length) : List.copyOf(CASES.keySet());
        boolean failed = false;
        for (String name : wanted) {
            try {
                CASES.get(name).run(cluster);
                System.out.println("ok " + name);
            } catch (Throwable e) {
                System.out.println("FAIL " + name + ": " + e);
                e.printStackTrace();
                failed = true;
            }
        }
        System.exit(failed ? 1 : 0);
    }
}
