import com.rabbitmq.client.*;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Arrays;
import java.util.Base64;
import javax.net.ssl.*;

/** Logins over TLS with RabbitMQ's own Java client. See ../README.md. */
public final class Logins {
    static final String USER = "admin";
    static final String PASSWORD = "admin-password";
    /** Whose certificate says so. */
    static final String ROBOT = "robot";

    static {
        Shared.CASES.put("plain", Logins::plain);
        Shared.CASES.put("wrong_password", Logins::wrongPassword);
        Shared.CASES.put("certificate", Logins::certificate);
        Shared.CASES.put("untrusted", Logins::untrusted);
    }

    static String management;
    static String ca;
    /** Of the robot's certificate and its key, without their endings. */
    static String robot;

    private Logins() {}

    static Certificate read(String path) throws Exception {
        try (var in = Files.newInputStream(Path.of(path))) {
            return CertificateFactory.getInstance("X.509").generateCertificate(in);
        }
    }

    static KeyStore empty() throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        return store;
    }

    /** TLS with who is trusted, and perhaps the robot's certificate to show. */
    static SSLContext secured(boolean certified) throws Exception {
        KeyStore trusted = empty();
        trusted.setCertificateEntry("ca", read(ca));
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        KeyManager[] shown = null;
        if (certified) {
            String pem = Files.readString(Path.of(robot + ".key")).replaceAll("-----.*-----|\\s", "");
            var key = KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem)));
            KeyStore own = empty();
            own.setKeyEntry("robot", key, new char[0], new Certificate[] {read(robot + ".pem")});
            var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(own, new char[0]);
            shown = keys.getKeyManagers();
        }
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(shown, trust.getTrustManagers(), null);
        return context;
    }

    static ConnectionFactory factory(SSLContext context, String password) {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost(Shared.host);
        factory.setPort(Shared.port);
        factory.setUsername(USER);
        factory.setPassword(password);
        factory.setAutomaticRecoveryEnabled(false);
        factory.useSslProtocol(context);
        factory.enableHostnameVerification();
        return factory;
    }

    static void publishAndGet(ConnectionFactory factory) throws Exception {
        try (Connection connection = factory.newConnection()) {
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            String queue = channel.queueDeclare().getQueue();
            byte[] body = "x".repeat(1_000_000).getBytes(StandardCharsets.UTF_8);
            channel.basicPublish("", queue, null, body);
            channel.waitForConfirmsOrDie(Shared.WAIT_MS);
            Shared.check(Arrays.equals(channel.basicGet(queue, true).getBody(), body), "another body came");
        }
    }

    static void refused(ConnectionFactory factory, String mechanism) throws Exception {
        try {
            factory.newConnection().close();
        } catch (AuthenticationFailureException e) {
            Shared.check(e.getMessage().contains("Login was refused using authentication mechanism " + mechanism), e.getMessage());
            return;
        }
        throw new AssertionError("it was let in by " + mechanism);
    }

    static void plain() throws Exception {
        publishAndGet(factory(secured(false), PASSWORD));
    }

    static void wrongPassword() throws Exception {
        refused(factory(secured(false), "wrong"), "PLAIN");
    }

    static void manage(String path, String body) throws Exception {
        String login = Base64.getEncoder().encodeToString((USER + ":" + PASSWORD).getBytes(StandardCharsets.UTF_8));
        var request = HttpRequest.newBuilder(URI.create("http://" + management + "/api/" + path))
            .header("Authorization", "Basic " + login).PUT(HttpRequest.BodyPublishers.ofString(body)).build();
        int status = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
        Shared.check(status < 300, path + ": " + status);
    }

    /** Who has one need say no more; who shows none cannot. */
    static void certificate() throws Exception {
        manage("users/" + ROBOT, "{\"password_hash\": \"\", \"tags\": \"\"}");
        manage("permissions/%2F/" + ROBOT, "{\"configure\": \".*\", \"write\": \".*\", \"read\": \".*\"}");
        ConnectionFactory by = factory(secured(true), "");
        by.setSaslConfig(DefaultSaslConfig.EXTERNAL);
        publishAndGet(by);
        ConnectionFactory anonymous = factory(secured(false), "");
        anonymous.setSaslConfig(DefaultSaslConfig.EXTERNAL);
        refused(anonymous, "EXTERNAL");
    }

    static void untrusted() throws Exception {
        try {
            factory(SSLContext.getDefault(), PASSWORD).newConnection().close();
        } catch (SSLHandshakeException e) {
            return;
        }
        throw new AssertionError("it trusted an unverified server");
    }

    public static void main(String[] arguments) {
        String[] at = arguments[0].split(",");
        if (at.length > 1) {
            management = at[1];
            ca = at[4];
            robot = at[6];
            arguments[0] = at[3];
        }
        Shared.main(arguments);
    }
}
