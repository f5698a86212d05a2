//! Connections to the http listeners, with limits on their number, their time, and the size of requests.

use super::bodies::{self, Bodies, Late};
use super::error::Failure;
use super::login::{Asked, Secured};
use super::origin::Door;
use super::{App, router, starting};
use crate::http::From;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use polylogue_net::tls::Tls;
use polylogue_net::{Gate, NetMetrics, Place, pause, stopped};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Timeout for the head of a connection's first request.
const FIRST_HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// Timeout for the head of a further request: the maximum idle time of a connection.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// Timeout for a request, from its head to its response.
const REQUEST_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum life of a connection; with a streaming response, the maximum time without progress. Frees the place of a client that does not
/// read its response.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(300);
/// When less than this share of the places is free, connections are closed after their response.
const CROWDED_SHARE: usize = 4;
/// While places are scarce, an address may use one place in this many, so that few addresses cannot take the rest.
const CROWDED_ADDRESS_SHARE: usize = 8;
/// Connections without a place that are served at a time; further ones are closed without a response.
pub const SQUEEZED_MAX: usize = 64;
/// The same, per address.
const SQUEEZED_PER_ADDRESS_MAX: usize = 8;
/// How long such a connection waits for a place, unless it requests the health.
const PLACE_PATIENCE: Duration = Duration::from_secs(10);
/// The paths that are served without a place.
const HEALTH: [&str; 2] = ["/healthz", "/readyz"];
/// The response to other requests without a place.
const FULL: &str = "too many connections (server.http_connections_per_ip_max, server.http_connections_max)\n";
/// The maximum size of a request's head. Bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Limits of all http listeners together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HttpLimits {
    /// Connections at a time; some of the further ones wait for a place.
    pub connections_max: usize,
    /// Connections at a time per address; further ones get an error and are closed.
    pub connections_per_ip_max: usize,
    /// The maximum size of a body. Bytes.
    pub body_bytes_max: usize,
    /// Bodies being received at a time per address.
    pub bodies_per_ip_max: usize,
    /// Timeout for a body, extended by a millisecond for each 64 bytes received. Milliseconds.
    pub body_ms_max: u64,
}

/// State shared by the http listeners. Serves health and readiness before the broker has started.
#[derive(Debug)]
pub struct Entrance {
    /// The protocol's name in metrics and logs.
    name: &'static str,
    limits: HttpLimits,
    places: Arc<Semaphore>,
    /// Places for connections that only get the health.
    squeezed: Gate,
    bodies: Bodies,
    gate: Gate,
    metrics: NetMetrics,
    /// Routes before the broker has started.
    starting: Router,
    /// Routes once the broker has started.
    all: OnceLock<Router>,
}

impl Entrance {
    /// Creates the state with these limits. Connections are counted in `metrics`.
    #[must_use]
    pub fn new(limits: HttpLimits, metrics: NetMetrics) -> Entrance {
        Entrance::named("http", limits, metrics, starting())
    }

    /// Creates the state for a protocol of this name, with its own routes for the time before the broker has started.
    #[must_use]
    pub fn named(name: &'static str, limits: HttpLimits, metrics: NetMetrics, starting: Router) -> Entrance {
        let gate = Gate::new(Arc::default(), usize::MAX);
        let places = Arc::new(Semaphore::new(limits.connections_max.min(Semaphore::MAX_PERMITS)));
        let left = places.clone();
        let per_ip_max = move |_| {
            let share = match is_crowded(&left, &limits) {
                true => (limits.connections_max / CROWDED_ADDRESS_SHARE).max(1),
                false => usize::MAX,
            };
            (usize::MAX, limits.connections_per_ip_max.min(share))
        };
        let squeezed = Gate::new(Arc::default(), SQUEEZED_MAX);
        Entrance {
            name,
            limits,
            places,
            squeezed: squeezed.with_bounds(|_| (usize::MAX, SQUEEZED_PER_ADDRESS_MAX)),
            bodies: Bodies::new(limits.bodies_per_ip_max, Duration::from_millis(limits.body_ms_max)),
            gate: gate.with_bounds(per_ip_max),
            metrics,
            starting,
            all: OnceLock::new(),
        }
    }

    /// Serves all routes from now on: the broker has started.
    pub fn open(&self, app: Arc<App>) {
        self.open_with(router(app));
    }

    /// As [`Entrance::open`], with other routes.
    pub fn open_with(&self, all: Router) {
        let body_limit = DefaultBodyLimit::max(self.limits.body_bytes_max);
        self.all.get_or_init(|| all.layer(body_limit).layer(from_fn(in_time)));
    }

    /// Whether free places are scarce: then connections are not kept open between requests, because idle clients would exclude others,
    /// health checks included.
    fn is_crowded(&self) -> bool {
        is_crowded(&self.places, &self.limits)
    }

    fn router(&self) -> Router {
        self.all.get().unwrap_or(&self.starting).clone()
    }
}

fn is_crowded(places: &Semaphore, limits: &HttpLimits) -> bool {
    places.available_permits() < limits.connections_max / CROWDED_SHARE
}

/// Serves until `stop` is true. Requests in progress are not waited for.
pub async fn serve(
    listener: TcpListener,
    door: Door,
    tls: Option<Arc<Tls>>,
    entrance: Arc<Entrance>,
    mut stop: watch::Receiver<bool>,
) {
    let mut failing = false;
    let stamps = Stamps { door, secured: tls.is_some() };
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopped(&mut stop) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                pause(&error, entrance.name, &mut failing).await;
                continue;
            }
        };
        failing = false;
        let of_address = match entrance.gate.enter(peer.ip()) {
            Ok(place) => place,
            Err(refusal) => {
                entrance.metrics.refused(entrance.name, refusal.name());
                squeeze(stream, peer, tls.clone(), stamps.clone(), &entrance, None);
                continue;
            }
        };
        let Ok(place) = entrance.places.clone().try_acquire_owned() else {
            squeeze(stream, peer, tls.clone(), stamps.clone(), &entrance, Some(of_address));
            continue;
        };
        let (entrance, tls, stamps) = (entrance.clone(), tls.clone(), stamps.clone());
        tokio::spawn(async move {
            let counted = entrance.metrics.count(entrance.name);
            let why = match tls {
                None => attend(stream, peer, stamps, entrance).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => attend(stream, peer, stamps, entrance).await,
                    Err(_) => "tls",
                },
            };
            counted.close(why);
            drop((place, of_address));
        });
    }
}

/// Serves a connection without a place, if few enough are being served; otherwise closes it without a response.
fn squeeze(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<Tls>>,
    stamps: Stamps,
    entrance: &Arc<Entrance>,
    of_address: Option<Place>,
) {
    let Ok(place) = entrance.squeezed.enter(peer.ip()) else { return };
    let entrance = entrance.clone();
    tokio::spawn(async move {
        let waits = of_address.is_some();
        match tls {
            None => attend_squeezed(stream, peer, stamps, entrance, waits).await,
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    attend_squeezed(stream, peer, stamps, entrance, waits).await;
                }
            }
        }
        drop((place, of_address));
    });
}

/// Serves the single request of such a connection: health at once, other paths when a place becomes free in time and `waits` allows
/// waiting. Closing without a response would look like a server that is down.
async fn attend_squeezed<S>(stream: S, peer: SocketAddr, stamps: Stamps, entrance: Arc<Entrance>, waits: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let place = Arc::new(Mutex::new(None));
    let (spoke, lasting) = (Arc::new(AtomicBool::new(false)), Lasting::default());
    let service = {
        let (spoke, lasting) = (spoke.clone(), lasting.clone());
        service_fn(move |request: hyper::Request<Incoming>| {
            let (entrance, place, lasting) = (entrance.clone(), place.clone(), lasting.clone());
            let stamps = stamps.clone();
            spoke.store(true, Ordering::Relaxed);
            async move {
                let full = || (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], FULL).into_response();
                if !HEALTH.contains(&request.uri().path()) {
                    if !waits {
                        return Ok::<_, Infallible>(full());
                    }
                    match tokio::time::timeout(PLACE_PATIENCE, entrance.places.clone().acquire_owned()).await {
                        Ok(Ok(taken)) => *place.lock() = Some(taken),
                        _ => return Ok(full()),
                    }
                }
                answer(request, peer, &stamps, &entrance, lasting).await
            }
        })
    };
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(HEAD_BYTES_MAX);
    drive(http.serve_connection(TokioIo::new(stream), service), &spoke, &lasting).await;
}

/// Extensions added to each request of a listener.
#[derive(Clone)]
struct Stamps {
    door: Door,
    secured: bool,
}

impl Stamps {
    fn put<B>(&self, peer: SocketAddr, request: &mut hyper::Request<B>) {
        let is_local = self.door.is_local(peer, request.headers());
        let asks = self.door.asks(request.headers());
        let extensions = request.extensions_mut();
        extensions.insert(From { peer, is_local });
        extensions.insert(self.door.clone());
        if asks {
            extensions.insert(Asked);
        }
        if self.secured {
            extensions.insert(Secured);
        }
    }
}

/// Counts the pieces of streaming responses that the client has received.
#[derive(Clone, Debug, Default)]
pub(super) struct Lasting(Arc<AtomicU64>);

impl Lasting {
    /// Counts a piece.
    pub(super) fn moved(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn pieces(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Passes a request to the current routes.
async fn answer(
    request: hyper::Request<Incoming>,
    peer: SocketAddr,
    stamps: &Stamps,
    entrance: &Entrance,
    lasting: Lasting,
) -> Result<Response, Infallible> {
    let late = Late::default();
    let Some(mut request) = entrance.bodies.watch(request, peer.ip(), &late) else {
        entrance.metrics.refused(entrance.name, "bodies_full");
        return Ok(bodies::too_many());
    };
    request.extensions_mut().insert(lasting);
    stamps.put(peer, &mut request);
    let response = TowerToHyperService::new(entrance.router()).call(request).await?;
    if late.is_late() {
        entrance.metrics.refused(entrance.name, "slow_body");
        return Ok(bodies::too_slow());
    }
    Ok(response)
}

/// Serves one connection; returns the reason for its end.
async fn attend<S>(stream: S, peer: SocketAddr, stamps: Stamps, entrance: Arc<Entrance>) -> &'static str
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (spoke, lasting) = (Arc::new(AtomicBool::new(false)), Lasting::default());
    let service = {
        let (spoke, lasting) = (spoke.clone(), lasting.clone());
        service_fn(move |request: hyper::Request<Incoming>| {
            spoke.store(true, Ordering::Relaxed);
            let (entrance, lasting, stamps) = (entrance.clone(), lasting.clone(), stamps.clone());
            let is_crowded = entrance.is_crowded();
            async move {
                let mut response = answer(request, peer, &stamps, &entrance, lasting).await?;
                if is_crowded {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        })
    };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(HEAD_BYTES_MAX);
    drive(http.serve_connection(TokioIo::new(stream), service), &spoke, &lasting).await
}

/// Drives a connection until it ends or times out; returns the reason.
async fn drive(connection: impl Future, spoke: &AtomicBool, lasting: &Lasting) -> &'static str {
    tokio::pin!(connection);
    // Errors of a connection are not logged: they concern its client, which sees them.
    match tokio::time::timeout(FIRST_HEAD_PATIENCE, connection.as_mut()).await {
        Ok(_) => return "peer",
        Err(_) if !spoke.load(Ordering::Relaxed) => return "silent",
        Err(_) => {}
    }
    let mut pieces = 0;
    while tokio::time::timeout(CONNECTION_PATIENCE, connection.as_mut()).await.is_err() {
        if pieces == lasting.pieces() {
            return "stalled";
        }
        pieces = lasting.pieces();
    }
    "peer"
}

/// Bounds the time of a request, its body included.
async fn in_time(request: axum::extract::Request, next: Next) -> axum::response::Response {
    match tokio::time::timeout(REQUEST_PATIENCE, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Failure::timeout("the request took too long").into_response(),
    }
}
