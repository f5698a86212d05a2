//! A backup of the whole broker, as a stream ([`crate::backup`]).

use super::App;
use super::error::Failure;
use super::serve::Lasting;
use crate::backup::{CONTENT_TYPE, Encoder};
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use polylogue_broker::{Backup, BackupPiece, Error, ErrorKind};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Pieces buffered for the client.
const PIECES_AHEAD: usize = 2;

/// The response body.
struct Stream(mpsc::Receiver<Bytes>, Lasting);

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Stream(pieces, lasting) = &mut *self;
        pieces.poll_recv(cx).map(|piece| {
            lasting.moved();
            piece.map(|bytes| Ok(Frame::data(bytes)))
        })
    }
}

fn refused(e: Error) -> Failure {
    match e.kind {
        ErrorKind::Busy => Failure::conflict("backup_running", &e.text),
        ErrorKind::StorageFull => Failure::conflict("no_room", &e.text),
        _ => Failure::internal(e.text),
    }
}

/// Runs blocking disk work on another thread.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Failure::internal("the server is stopping".to_owned()))
}

pub(super) async fn begin(
    State(app): State<Arc<App>>,
    lasting: Option<Extension<Lasting>>,
) -> Result<Response, Failure> {
    let broker = app.broker.clone();
    let begun = aside(move || broker.begin_backup()).await?;
    let backup = begun.inspect_err(|e| tracing::warn!("a backup was refused: {e}")).map_err(refused)?;
    let lasting = lasting.map(|Extension(lasting)| lasting).unwrap_or_default();
    let (to, stream) = mpsc::channel(PIECES_AHEAD);
    tokio::spawn(send(backup, to));
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], Body::new(Stream(stream, lasting))).into_response())
}

/// Sends all pieces until the backup ends or the client disconnects; waits for the broker and the client.
async fn send(mut backup: Backup, to: mpsc::Sender<Bytes>) {
    let mut encoder = Encoder::default();
    let mut last = vec![Encoder::begin(backup.files(), backup.bytes())];
    loop {
        for bytes in last.drain(..).filter(|bytes| !bytes.is_empty()) {
            if to.send(bytes).await.is_err() {
                return tracing::warn!("the client of a backup has gone; the backup is aborted");
            }
        }
        let next = aside(move || {
            let piece = backup.next_piece();
            (backup, piece)
        });
        let Ok((same, piece)) = next.await else { return };
        backup = same;
        match piece {
            Ok(Some(piece)) => {
                let len = if let BackupPiece::Bytes(bytes) = &piece { bytes.len() as u64 } else { 0 };
                last.extend(encoder.piece(piece));
                tokio::time::sleep(backup.pause(len)).await;
            }
            Ok(None) => return drop(to.send(encoder.end()).await),
            Err(e) => {
                tracing::warn!("{e}");
                return drop(to.send(Encoder::broken(&e.text)).await);
            }
        }
    }
}
