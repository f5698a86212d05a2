//! Connections to the http listener: bounded in number, in time, and in what they may send.

use super::error::Failure;
use super::{App, router};
use crate::net::{pause, stopped};
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// How long the head of a request may take to arrive, and how long a connection may stay open without one.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// How long a request may take from its head to its answer.
const REQUEST_PATIENCE: Duration = Duration::from_secs(30);
/// How long the answer may take to be written after that. A client that does not read holds a place no longer.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(300);
/// The largest head of a request. Bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Bounds of the http listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HttpLimits {
    /// Connections at a time; further ones wait in the system's queue.
    pub connections_max: usize,
    /// The largest body. Bytes.
    pub body_bytes_max: usize,
}

/// Serves until `stop` says true. What is in work by then is not waited for.
pub async fn serve(listener: TcpListener, app: Arc<App>, limits: HttpLimits, mut stop: watch::Receiver<bool>) {
    let router = router(app).layer(DefaultBodyLimit::max(limits.body_bytes_max)).layer(from_fn(in_time));
    let mut failing = false;
    let places = Arc::new(Semaphore::new(limits.connections_max.min(Semaphore::MAX_PERMITS)));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopped(&mut stop) => return,
            // The semaphore is never closed.
            Ok(place) = places.clone().acquire_owned() => tokio::select! {
                biased;
                () = stopped(&mut stop) => return,
                accepted = listener.accept() => accepted.map(|(stream, _)| (stream, place)),
            },
        };
        let (stream, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                pause(&error, "http", &mut failing).await;
                continue;
            }
        };
        failing = false;
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(HEAD_BYTES_MAX);
            let connection = http.serve_connection(TokioIo::new(stream), service);
            // What goes wrong with one connection concerns its client, who sees it.
            let _ = tokio::time::timeout(CONNECTION_PATIENCE, connection).await;
            drop(place);
        });
    }
}

/// Bounds the time of a request, its body included.
async fn in_time(request: Request, next: Next) -> axum::response::Response {
    match tokio::time::timeout(REQUEST_PATIENCE, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Failure::timeout("the request took too long").into_response(),
    }
}
