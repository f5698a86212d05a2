//! A broker with RabbitMQ's listeners.

use super::amqp::Client;
use super::broker::manage;
use super::{Server, TempDir};
use serde_json::Value as Json;
use std::net::SocketAddr;

/// See the module.
pub(crate) struct Rabbit {
    pub(crate) server: Server,
    pub(crate) amqp: SocketAddr,
    management: SocketAddr,
    /// Clients that stay as long as it runs.
    pub(crate) others: Vec<Client>,
    _dir: TempDir,
}

impl Rabbit {
    pub(crate) fn start() -> Rabbit {
        Rabbit::start_with(&[])
    }

    /// One with these arguments, too.
    pub(crate) fn start_with(more: &[&str]) -> Rabbit {
        let dir = TempDir::new();
        let listen = ["--listen", "amqp=127.0.0.1:0", "--listen", "rabbitmq-http=127.0.0.1:0"];
        let more = [&listen, more].concat();
        // The administrator is another user than `guest`, who logs in neither with Kafka's protocol nor at the API.
        let asks = more.contains(&"server.login=always");
        let server = if asks { Server::start_with_admin(&dir.0, &more) } else { Server::start(&dir.0, &more) };
        let at = |name: &str| server.lines.iter().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap();
        let (amqp, management) = (at("amqp listening on "), at("rabbitmq-http listening on "));
        Rabbit { server, amqp, management, others: Vec::new(), _dir: dir }
    }

    /// A change by RabbitMQ's management API; the status.
    pub(crate) fn manage(&self, method: &str, path: &str, body: &Json) -> u16 {
        manage(self.management, method, path, Some(body)).0
    }

    /// What RabbitMQ's management API shows at a path.
    pub(crate) fn get(&self, path: &str) -> Json {
        let (status, answer) = manage(self.management, "GET", path, None);
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }
}
