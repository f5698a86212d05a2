//! The http listener: health, metrics, and polylogue's own API. It has its own runtime, so that it cannot stall broker
//! clients.
//!
//! | path | content |
//! | --- | --- |
//! | `GET /healthz` | liveness |
//! | `GET /readyz` | readiness |
//! | `GET /metrics` | Prometheus |
//! | `GET /metrics/objects` | the same, for single groups, topics and queues |
//! | `GET /metrics/rabbitmq` | the same, under RabbitMQ's names |
//! | `/api/v1/...` | see [`crate::api`] |
//! | `/console/...` | the web console, which uses the API |

mod acls;
mod ask;
mod backup;
mod bindings;
mod bodies;
mod connections;
mod console;
mod error;
mod exchanges;
mod groups;
mod lag;
pub mod login;
mod messages;
mod metrics;
mod moving;
mod objects;
mod openapi;
pub mod origin;
mod page;
mod permissions;
mod publish;
mod queues;
mod quotas;
mod rabbitmq;
mod reports;
mod routes;
mod serve;
mod settings;
mod status;
#[cfg(test)]
mod tests;
mod topics;
mod users;
mod vhosts;

pub use metrics::registry;
pub use origin::{Door, From, Login};
pub use rabbitmq::Setup as RabbitmqSetup;
pub use serve::{Entrance, HttpLimits, SQUEEZED_MAX, serve};

use crate::api::{ListenerStatus, PREFIX};
use axum::Router;
use axum::extract::Request;
use axum::http::{Method, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use error::Failure;
use parking_lot::Mutex;
use polylogue_amqp_gateway::Directory;
use polylogue_auth::{Authority, Tokens};
use polylogue_config::Setting;
use polylogue_env::Rng;
use polylogue_net::Shared;
use polylogue_net::audit::Audit;
use polylogue_net::handle::BrokerHandle;
use polylogue_net::kafka::KafkaShared;
use prometheus_client::registry::Registry;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// State shared by the handlers.
#[derive(Debug)]
pub struct App {
    /// The broker.
    pub broker: Arc<dyn BrokerHandle>,
    /// The Kafka protocol, whose rules for topics apply to all protocols.
    pub kafka: Arc<KafkaShared>,
    /// The AMQP metadata.
    pub directory: Arc<Directory>,
    /// The connections of clients.
    pub net: Arc<Shared>,
    /// The effective options.
    pub settings: Vec<Setting>,
    /// The listeners' addresses.
    pub listeners: Vec<ListenerStatus>,
    /// The metrics registry.
    pub registry: Registry,
    /// Whether the server is ready.
    pub ready: Ready,
    /// Users, if a login is required.
    pub users: Arc<dyn Authority>,
    /// Randomness for salts.
    pub rng: Arc<dyn Rng>,
    /// Directory of the reports shown by the console.
    pub reports: Option<PathBuf>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// Session tokens of the console.
    pub tokens: Mutex<Tokens>,
    /// Configuration values shown in RabbitMQ's metrics.
    pub rabbitmq: RabbitmqSetup,
}

/// Whether the server serves: not before it has started, and not while it stops.
#[derive(Debug, Default)]
pub struct Ready(AtomicBool);

impl Ready {
    /// Sets readiness.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }

    /// Returns readiness.
    #[must_use]
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The routes served before the broker has recovered.
pub fn starting() -> Router {
    Router::new()
        .route("/healthz", get(status::healthz))
        .route("/readyz", get(status::not_ready))
        .route("/metrics", get(metrics::starting))
        .fallback(|| async { Failure::starting() })
}

/// Runs a change to its end even if its client disconnects: a declaration must take effect, and moved messages must
/// leave their source. Getting messages is cancelled instead: messages that were not received must stay.
async fn to_its_end(request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let stops = |_| Failure::internal("the server is stopping".to_owned()).into_response();
    tokio::spawn(next.run(request)).await.unwrap_or_else(stops)
}

/// The router with all routes.
pub fn router(app: Arc<App>) -> Router {
    let api = routes::router(routes::routes(&mut openapi::schemas()));
    let session = get(login::session).post(login::log_in).delete(login::log_out);
    let admit = from_fn_with_state(app.clone(), login::admit);
    // Exempt from the host check: programs read them, and they change nothing.
    let metrics = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/metrics/objects", get(objects::metrics))
        .merge(rabbitmq::routes("/metrics/rabbitmq"))
        .layer(admit.clone());
    let all = Router::new()
        .route("/reports/{name}", get(reports::show))
        .nest(PREFIX, api)
        .layer(admit)
        .layer(from_fn(origin::check))
        .merge(metrics)
        // Outside of the login check, so that refused logins are logged too.
        .layer(from_fn_with_state(app.clone(), login::tell))
        .route(&format!("{PREFIX}/session"), session.layer(from_fn(origin::check)))
        .route(&format!("{PREFIX}/openapi.json"), get(openapi::serve).layer(from_fn(origin::check)))
        .route("/healthz", get(status::healthz))
        .route("/readyz", get(status::readyz))
        .route("/", get(console::root))
        .route(console::PREFIX, get(console::root))
        .route(&format!("{}/", console::PREFIX), get(console::index))
        .route(&format!("{}/{{*name}}", console::PREFIX), get(console::file));
    without_gaps(all).with_state(app)
}

/// Routes of the listener for RabbitMQ's Prometheus metrics: the paths of RabbitMQ's own exporter.
pub fn rabbitmq_router(app: Arc<App>) -> Router {
    let admit = from_fn_with_state(app.clone(), login::admit);
    without_gaps(rabbitmq::routes("/metrics").layer(admit)).with_state(app)
}

/// Answers all other paths and methods with 404.
fn without_gaps(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
        .fallback(|uri: Uri| async move { Failure::not_found(format!("there is nothing at {}", uri.path())) })
        .method_not_allowed_fallback(|uri: Uri| async move {
            Failure::method_not_allowed(format!("{} does not take this method", uri.path()))
        })
}
