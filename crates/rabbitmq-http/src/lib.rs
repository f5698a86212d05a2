//! RabbitMQ's management HTTP API, for its tools and client libraries. docs/protocols/rabbitmq-http.md lists the supported paths.
//!
//! ```text
//!   request ── target (path, query) ── call (user, definitions) ── a module by subject ── answer
//!                                                        │  requests of a user in a virtual host: gateway::Principal
//!                                                        └─ changes of users, policies, ...: gateway::managed
//! ```
//!
//! Layer 5: sees the broker through `net::handle`, serves HTTP with `admin`, shows the status of `bridges`, and reads no configuration file.
//!
//! Requests are authenticated before their body is read. The total size of bodies in memory is bounded. The API has its own thread.

mod answer;
mod ask;
mod bindings;
mod body;
mod call;
mod clients;
mod definitions;
mod error;
mod exchanges;
mod federation;
mod flags;
mod heads;
mod health;
mod limits;
mod list;
mod memory;
mod messages;
mod overview;
mod parameters;
mod permissions;
mod policies;
mod queues;
mod rates;
mod shapes;
mod shovels;
mod slow;
mod still;
mod target;
#[cfg(test)]
mod tests;
mod users;
mod vhosts;

pub use rates::watch as watch_rates;

use answer::Answer;
use axum::Router;
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use body::Body;
use bytes::Bytes;
use call::Call;
use error::Failure;
use polylogue_admin::api::ListenerStatus;
use polylogue_admin::basic::credentials;
pub use polylogue_admin::http::From;
use polylogue_admin::http::{RabbitmqSetup, origin};
use polylogue_amqp::settings::AmqpSettings;
use polylogue_amqp_gateway::{Directory, FIRST_USER};
use polylogue_amqp_model::DEFINITIONS_BYTES_MAX;
use polylogue_auth::{Authority, NoUsers};
use polylogue_bridges::federation::Federation;
use polylogue_bridges::shovel::Shovels;
use polylogue_env::Rng;
use polylogue_net::Shared;
use polylogue_net::audit::Audit;
use polylogue_net::handle::BrokerHandle;
use rates::Rates;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use target::Query;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The maximum size of a body, except for an import of definitions. Fits the largest message in base64. Bytes.
const BODY_BYTES_MAX: usize = 24 << 20;
/// The maximum size of all bodies in memory together; further requests wait. Bytes.
const BODIES_BYTES_MAX: usize = 64 << 20;

/// Bodies up to this size are not counted: the number of connections bounds them. Bytes.
const FREE_BYTES: usize = 64 << 10;

/// State shared by the handlers.
#[derive(Debug)]
pub struct Management {
    /// The broker.
    pub broker: Arc<dyn BrokerHandle>,
    /// Queues and connections.
    pub directory: Arc<Directory>,
    /// The server properties.
    pub settings: Arc<AmqpSettings>,
    /// The client connections.
    pub net: Arc<Shared>,
    /// The listeners' addresses.
    pub listeners: Vec<ListenerStatus>,
    /// Randomness for salts.
    pub rng: Arc<dyn Rng>,
    /// The receiver of failed logins.
    pub(crate) users: Arc<dyn Authority>,
    /// The audit log.
    audit: Option<Arc<Audit>>,
    /// Status of shovels.
    pub(crate) shovels: Arc<Shovels>,
    /// Status of federation links.
    pub(crate) federation: Arc<Federation>,
    /// Configuration values that are shown.
    setup: RabbitmqSetup,
    /// Free bytes for bodies.
    bodies: Semaphore,
    /// Rates of counters.
    pub(crate) rates: Rates,
}

impl Management {
    /// Creates the state for this broker.
    #[must_use]
    pub fn new(
        broker: Arc<dyn BrokerHandle>,
        directory: Arc<Directory>,
        settings: Arc<AmqpSettings>,
        net: Arc<Shared>,
        listeners: Vec<ListenerStatus>,
        rng: Arc<dyn Rng>,
    ) -> Management {
        let bodies = Semaphore::new(BODIES_BYTES_MAX);
        let (shovels, federation, setup, rates) = Default::default();
        let users = Arc::new(NoUsers);
        let audit = None;
        Management {
            broker,
            directory,
            settings,
            net,
            listeners,
            rng,
            users,
            audit,
            shovels,
            federation,
            setup,
            bodies,
            rates,
        }
    }

    /// Adds the authority that throttles failed logins.
    #[must_use]
    pub fn with_users(self, users: Arc<dyn Authority>) -> Management {
        Management { users, ..self }
    }

    /// Adds the audit log.
    #[must_use]
    pub fn with_audit(self, audit: Arc<Audit>) -> Management {
        Management { audit: Some(audit), ..self }
    }

    /// Adds the configuration values to show.
    #[must_use]
    pub fn with_setup(self, setup: RabbitmqSetup) -> Management {
        Management { setup, ..self }
    }

    /// Adds the shovels and federation links to show.
    #[must_use]
    pub fn with_movers(self, shovels: Arc<Shovels>, federation: Arc<Federation>) -> Management {
        Management { shovels, federation, ..self }
    }

    /// Returns the node's name.
    fn node(&self) -> String {
        format!("polylogue@{}", self.broker.catalog().cluster().node.0)
    }
}

/// The router with all routes.
pub fn router(management: Arc<Management>) -> Router {
    Router::new().fallback(serve).with_state(management)
}

/// Creates the missing topics of queues, left over by a stop between a declaration and the creation of its topic. Must complete before
/// clients are served: messages to a queue without a topic are lost.
///
/// # Errors
/// Why that is not possible now.
pub async fn make_topics(management: &Management) -> Result<(), String> {
    ask::make_topics(management).await.map_err(|failure| failure.reason)
}

/// The routes served before the broker has recovered.
pub fn starting() -> Router {
    Router::new().fallback(|| async { Failure::starting() })
}

/// Whether a request is cancelled when its client disconnects: it only reads, or gets messages, which must stay if not received.
fn ends_with_its_client(request: &Request) -> bool {
    let gets = |path: Vec<String>| matches!(path.as_slice(), [first, _, _, last] if first == "queues" && last == "get");
    match *request.method() {
        Method::GET | Method::HEAD => true,
        _ => target::segments(request.uri().path()).is_ok_and(gets),
    }
}

async fn serve(State(app): State<Arc<Management>>, request: Request) -> Response {
    let answered = if ends_with_its_client(&request) {
        answer(&app, request).await
    } else {
        // A change runs to its end even if the client disconnects, so that a declaration takes effect.
        let doing = tokio::spawn(async move { answer(&app, request).await });
        doing.await.unwrap_or_else(|_| Err(Failure::internal("the server is stopping")))
    };
    answered.unwrap_or_else(IntoResponse::into_response)
}

/// The method of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Get,
    Put,
    Post,
    Delete,
}

async fn answer(app: &Management, request: Request) -> Result<Response, Failure> {
    // guest's password is well known: without this check any site's page could act as guest in a browser on this machine.
    let is_guest = credentials(request.headers()).is_some_and(|(name, _)| name == FIRST_USER);
    origin::judged(&request, is_guest).map_err(|why| Failure::not_authorised(&why))?;
    let verb = match *request.method() {
        Method::GET | Method::HEAD => Verb::Get,
        Method::PUT => Verb::Put,
        Method::POST => Verb::Post,
        Method::DELETE => Verb::Delete,
        Method::OPTIONS => return Ok(StatusCode::OK.into_response()),
        _ => return Err(Failure::method_not_allowed("HEAD, GET, PUT, POST, DELETE, OPTIONS")),
    };
    let path = target::segments(request.uri().path()).map_err(|_| Failure::not_found())?;
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let query = query.map_err(|_| Failure::bad("the query is malformed"))?;
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let from = request.extensions().get::<From>().copied();
    let tell = |user: Option<&str>, what: &str, status: StatusCode| {
        let address = from.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.peer.ip().to_canonical());
        if let Some(audit) = app.audit.as_ref().filter(|_| verb != Verb::Get) {
            audit.tell(user, address, "rabbitmq-http", what, status.as_str());
        }
    };
    let what = format!("{} {}", request.method(), request.uri().path());
    let call = match Call::open(app, request.headers(), from, verb, query).await {
        Ok(call) => call,
        Err(failure) => {
            let claimed = credentials(request.headers()).map(|(name, _)| name);
            tell(claimed.as_deref(), &what, failure.status);
            return Err(failure);
        }
    };
    let (parts, body) = request.into_parts();
    let max = match path.first() {
        Some(&"definitions" | &"all-configuration") => DEFINITIONS_BYTES_MAX,
        _ => BODY_BYTES_MAX,
    };
    let (body, room) = match verb {
        Verb::Get => (Bytes::new(), None),
        _ => read(app, body, max).await?,
    };
    let answer = dispatch(&call, &path, &parts.headers, &body).await;
    drop(room);
    let answer = answer.and_then(|answer| answer.into_response(&call));
    tell(Some(&call.user.name), &what, answer.as_ref().map_or_else(|failure| failure.status, Response::status));
    answer
}

/// Reads a body, and holds its share of the limit on all bodies.
async fn read(
    app: &Management,
    body: axum::body::Body,
    max: usize,
) -> Result<(Bytes, Option<SemaphorePermit<'_>>), Failure> {
    // A chunked body may have any length up to the limit.
    let len = body.size_hint().upper().map_or(max, |len| usize::try_from(len).unwrap_or(usize::MAX));
    if len > max {
        return Err(Failure::too_large());
    }
    let room = match len {
        0..=FREE_BYTES => None,
        // The semaphore is never closed.
        _ => app.bodies.acquire_many(len as u32).await.ok(),
    };
    let bytes = axum::body::to_bytes(body, len).await.map_err(|_| Failure::too_large())?;
    let mut room = room;
    if let Some(room) = &mut room {
        drop(room.split(len - bytes.len()));
    }
    Ok((bytes, room))
}

/// Dispatches by the first part of the path.
async fn dispatch(
    call: &Call<'_>,
    path: &[&str],
    headers: &axum::http::HeaderMap,
    bytes: &[u8],
) -> Result<Answer, Failure> {
    let Some((first, rest)) = path.split_first() else { return Err(Failure::not_found()) };
    if matches!(*first, "definitions" | "all-configuration") {
        return definitions::serve(call, rest, headers, bytes).await;
    }
    let body = Body::parse(bytes)?;
    match *first {
        "overview" | "version" | "whoami" | "nodes" | "cluster-name" => overview::serve(call, path, &body).await,
        "extensions" | "feature-flags" | "deprecated-features" | "auth" | "rebalance" => still::serve(call, path),
        "reset" => still::serve(call, path),
        "shovels" => shovels::serve(call, rest).await,
        "federation-links" => federation::serve(call, rest),
        "health" | "healthchecks" | "aliveness-test" => health::serve(call, path).await,
        "vhosts" => vhosts::serve(call, rest, &body).await,
        "users" => users::serve(call, rest, &body).await,
        "permissions" => permissions::serve(call, rest, &body).await,
        "topic-permissions" => permissions::serve_topics(call, rest, &body).await,
        "exchanges" => exchanges::serve(call, rest, &body).await,
        "queues" => queues::serve(call, rest, &body).await,
        "bindings" => bindings::serve(call, rest, &body).await,
        "policies" => policies::serve(call, rest, &body, false).await,
        "operator-policies" => policies::serve(call, rest, &body, true).await,
        "parameters" => parameters::serve(call, rest, &body).await,
        "global-parameters" => parameters::serve_global(call, rest, &body).await,
        "vhost-limits" => limits::serve_vhosts(call, rest, &body).await,
        "user-limits" => limits::serve_users(call, rest, &body).await,
        "connections" => clients::serve_connections(call, rest, headers).await,
        "channels" => clients::serve_channels(call, rest),
        "consumers" => clients::serve_consumers(call, rest),
        _ => Err(Failure::not_found()),
    }
}
