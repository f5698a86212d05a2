//! Limits on request bodies that are being received: their number per address, and the time for each.

use super::error::Failure;
use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body, Frame, SizeHint};
use polylogue_net::{Gate, Place};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Bytes received that extend a body's deadline by a millisecond.
const BYTES_PER_MS: u64 = 64;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Limits on bodies being received, over all connections of one protocol.
#[derive(Debug)]
pub(super) struct Bodies {
    gate: Gate,
    patience: Duration,
}

/// Whether a body was aborted because it was too slow.
#[derive(Clone, Debug, Default)]
pub(super) struct Late(Arc<AtomicBool>);

impl Late {
    pub(super) fn is_late(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Bodies {
    /// Allows `per_ip_max` bodies per address, and `patience` for each.
    pub(super) fn new(per_ip_max: usize, patience: Duration) -> Bodies {
        let gate = Gate::new(Arc::default(), usize::MAX).with_bounds(move |_| (usize::MAX, per_ip_max));
        Bodies { gate, patience }
    }

    /// Limits a request's body while it is received. Returns `None` when too many bodies of its address are being received.
    pub(super) fn watch<B: Body>(
        &self,
        request: hyper::Request<B>,
        from: IpAddr,
        late: &Late,
    ) -> Option<hyper::Request<Arriving<B>>> {
        let place = match request.body().is_end_stream() {
            true => None,
            false => Some(self.gate.enter(from).ok()?),
        };
        let clock = place.is_some().then(|| Box::pin(tokio::time::sleep(self.patience)));
        let (since, patience, late) = (Instant::now(), self.patience, late.clone());
        Some(request.map(|body| Arriving { body: Box::pin(body), place, clock, since, patience, received: 0, late }))
    }
}

/// The response when an address has too many bodies in progress.
pub(super) fn too_many() -> Response {
    closing(Failure::busy("too many request bodies of this address are being received (server.http_bodies_per_ip_max)"))
}

/// The response when a body was received too slowly.
pub(super) fn too_slow() -> Response {
    closing(Failure::slow("the body of the request was received too slowly (server.http_body_ms_max)"))
}

fn closing(failure: Failure) -> Response {
    let mut response = failure.into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// See [`Bodies::watch`].
#[derive(Debug)]
pub(super) struct Arriving<B> {
    body: Pin<Box<B>>,
    /// Held until the body has been received whole.
    place: Option<Place>,
    clock: Option<Pin<Box<Sleep>>>,
    since: Instant,
    patience: Duration,
    received: u64,
    late: Late,
}

impl<B> Arriving<B> {
    /// Whether the deadline has passed, given the bytes received so far.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let Some(clock) = &mut self.clock else { return false };
        while clock.as_mut().poll(context).is_ready() {
            let until = self.since + self.patience + Duration::from_millis(self.received / BYTES_PER_MS);
            if until <= Instant::now() {
                return true;
            }
            clock.as_mut().reset(until);
        }
        false
    }
}

impl<B: Body<Data = Bytes>> Body for Arriving<B>
where
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.body.as_mut().poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.received += frame.data_ref().map_or(0, |data| data.len() as u64);
                if self.body.is_end_stream() {
                    (self.place, self.clock) = (None, None);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(end) => {
                (self.place, self.clock) = (None, None);
                Poll::Ready(end.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending if self.is_over(context) => {
                self.late.0.store(true, Ordering::Relaxed);
                (self.place, self.clock) = (None, None);
                Poll::Ready(Some(Err("the body was received too slowly".into())))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
