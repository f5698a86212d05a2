//! A broker with RabbitMQ's listeners.

use super::amqp::Client;
use super::{Server, TempDir};
use serde_json::Value as Json;
use std::net::SocketAddr;

/// `guest`, whose password everybody knows.
const LOGIN: &str = "Basic Z3Vlc3Q6Z3Vlc3Q=";

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
        let server = Server::start(&dir.0, &[&listen, more].concat());
        let at = |name: &str| server.lines.iter().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap();
        let (amqp, management) = (at("amqp listening on "), at("rabbitmq-http listening on "));
        Rabbit { server, amqp, management, others: Vec::new(), _dir: dir }
    }

    /// A change by RabbitMQ's management API; the status.
    pub(crate) fn manage(&self, method: &str, path: &str, body: &Json) -> u16 {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let request =
            ureq::http::Request::builder().method(method).uri(format!("http://{}/api/{path}", self.management));
        let request = request.header("authorization", LOGIN).body(body.to_string()).unwrap();
        agent.run(request).unwrap().status().as_u16()
    }

    /// What RabbitMQ's management API shows at a path.
    pub(crate) fn get(&self, path: &str) -> Json {
        let agent = ureq::Agent::new_with_defaults();
        let request = agent.get(format!("http://{}/api/{path}", self.management));
        let mut answer = request.header("authorization", LOGIN).call().unwrap();
        serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
    }
}
