//! Connections to the http listeners: bounded in number, in time, and in what they may send.

use super::error::Failure;
use super::login::{Asked, Secured};
use super::origin::Door;
use super::{App, router, starting};
use crate::net::tls::Tls;
use crate::net::{Gate, NetMetrics, pause, stopped};
use crate::rabbitmq_http::From;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// How long the head of a connection's first request may take to arrive: whoever connects has something to say.
const FIRST_HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// How long the head of a further request may take to arrive, and how long a connection may stay open without one.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// How long a request may take from its head to its answer.
const REQUEST_PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection may last, or of one whose answer is a stream, how long nothing of it may be taken. A client that does not read
/// its answer holds a place no longer.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(300);
/// When fewer than this part of the places are free, connections end with their answer.
const CROWDED_SHARE: usize = 4;
/// Connections of one address too many that are answered at a time; further ones are closed without a word.
const REFUSALS_MAX: usize = 32;
/// What these hear.
const FULL: &str = "too many connections from this address (server.http_connections_per_ip_max)\n";
/// The largest head of a request. Bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Bounds of all http listeners together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HttpLimits {
    /// Connections at a time; further ones wait in the system's queue.
    pub connections_max: usize,
    /// Connections at a time from one address; further ones are told so and closed.
    pub connections_per_ip_max: usize,
    /// The largest body. Bytes.
    pub body_bytes_max: usize,
}

/// What the http listeners share. It answers before there is a broker: that the process lives, and that it is not ready.
#[derive(Debug)]
pub struct Entrance {
    /// The name in metrics and logs.
    name: &'static str,
    limits: HttpLimits,
    places: Arc<Semaphore>,
    /// Places of those who are told that there is no place.
    refusals: Arc<Semaphore>,
    gate: Gate,
    metrics: NetMetrics,
    /// What is served without a broker.
    starting: Router,
    /// What is served with one.
    all: OnceLock<Router>,
}

impl Entrance {
    /// For these bounds. Connections are counted in `metrics`.
    #[must_use]
    pub fn new(limits: HttpLimits, metrics: NetMetrics) -> Entrance {
        Entrance::named("http", limits, metrics, starting())
    }

    /// For these bounds, and for a protocol of this name, which answers so as long as there is no broker.
    #[must_use]
    pub fn named(name: &'static str, limits: HttpLimits, metrics: NetMetrics, starting: Router) -> Entrance {
        let gate = Gate::new(Arc::default(), usize::MAX);
        Entrance {
            name,
            limits,
            places: Arc::new(Semaphore::new(limits.connections_max.min(Semaphore::MAX_PERMITS))),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            gate: gate.with_bounds(move |_| (usize::MAX, limits.connections_per_ip_max)),
            metrics,
            starting,
            all: OnceLock::new(),
        }
    }

    /// There is a broker: from now on all paths are served.
    pub fn open(&self, app: Arc<App>) {
        self.open_with(router(app));
    }

    /// As [`Entrance::open`], with paths of one's own.
    pub fn open_with(&self, all: Router) {
        let body_limit = DefaultBodyLimit::max(self.limits.body_bytes_max);
        self.all.get_or_init(|| all.layer(body_limit).layer(from_fn(in_time)));
    }

    /// Whether so few places are left that nobody is to keep one between two requests: whoever sits on them would keep others out, those
    /// too that only ask whether this lives.
    fn is_crowded(&self) -> bool {
        self.places.available_permits() < self.limits.connections_max / CROWDED_SHARE
    }

    fn router(&self) -> Router {
        self.all.get().unwrap_or(&self.starting).clone()
    }
}

/// Serves until `stop` says true, and where the listener asks for a login administrators only. What is in work by then is not waited for.
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
                turn_away(stream, tls.clone(), &entrance);
                continue;
            }
        };
        let place = tokio::select! {
            biased;
            () = stopped(&mut stop) => return,
            // The semaphore is never closed.
            Ok(place) = entrance.places.clone().acquire_owned() => place,
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

/// Answers the first request of a connection that is one too many: a client that is only closed cannot tell that from a server that is gone.
fn turn_away(stream: TcpStream, tls: Option<Arc<Tls>>, entrance: &Entrance) {
    let Ok(place) = entrance.refusals.clone().try_acquire_owned() else { return };
    tokio::spawn(async move {
        let answer = async {
            match tls {
                None => refuse(stream).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        refuse(stream).await;
                    }
                }
            }
        };
        // Who says nothing is given up as one who has a place.
        let _ = tokio::time::timeout(FIRST_HEAD_PATIENCE, answer).await;
        drop(place);
    });
}

async fn refuse<S>(stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|_: hyper::Request<Incoming>| async {
        Ok::<_, Infallible>((StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], FULL).into_response())
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(HEAD_BYTES_MAX);
    // What goes wrong concerns its client, who sees it.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

/// What stands at each request that came in at a listener.
#[derive(Clone)]
struct Stamps {
    door: Door,
    secured: bool,
}

impl Stamps {
    fn put(&self, peer: SocketAddr, request: &mut hyper::Request<Incoming>) {
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

/// Counts the pieces of streams that a connection's client has taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Lasting(Arc<AtomicU64>);

impl Lasting {
    /// One more is on its way.
    pub(super) fn moved(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn pieces(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Serves one connection, and says why it ended.
async fn attend<S>(stream: S, peer: SocketAddr, stamps: Stamps, entrance: Arc<Entrance>) -> &'static str
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (spoke, lasting) = (Arc::new(AtomicBool::new(false)), Lasting::default());
    let service = {
        let (spoke, lasting) = (spoke.clone(), lasting.clone());
        service_fn(move |mut request: hyper::Request<Incoming>| {
            stamps.put(peer, &mut request);
            request.extensions_mut().insert(lasting.clone());
            spoke.store(true, Ordering::Relaxed);
            let (is_crowded, answer) =
                (entrance.is_crowded(), TowerToHyperService::new(entrance.router()).call(request));
            async move {
                let mut response = answer.await?;
                if is_crowded {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        })
    };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(HEAD_BYTES_MAX);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // What goes wrong with one connection concerns its client, who sees it.
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
