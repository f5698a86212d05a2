//! A connection to this broker without a socket: AMQP in memory.

use super::Surroundings;
use bytes::{Buf, Bytes, BytesMut};
use polylogue_amqp_gateway::{Connection, Ends, InternalIdentity};
use polylogue_net::Visitor;
use polylogue_net::handle::{ReplySink, SessionId};
use polylogue_net::mailbox::{Mail, Mailbox};
use polylogue_types::{Chunk, STEPS_PER_TURN};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Capacity of the stream in each direction. Bytes.
const STREAM_BYTES: usize = 256 << 10;
/// Size of one read. Bytes.
const READ_BYTES: usize = 64 << 10;

/// Connects. An `identity` is not authenticated; without one the URI has a password, and `guest` may log in only if `lets_guest` is set.
pub(super) fn connect(around: &Surroundings, identity: Option<InternalIdentity>, lets_guest: bool) -> DuplexStream {
    let (client, server) = tokio::io::duplex(STREAM_BYTES);
    let inside = Inside::new(around, identity, lets_guest);
    tokio::spawn(inside.serve(server));
    client
}

struct Inside {
    around: Surroundings,
    id: SessionId,
    mailbox: Arc<Mailbox>,
    sink: Arc<dyn ReplySink>,
    connection: Connection,
    input: BytesMut,
    output: VecDeque<Bytes>,
    stopping: bool,
}

impl Inside {
    fn new(around: &Surroundings, identity: Option<InternalIdentity>, lets_guest: bool) -> Inside {
        let id = around.broker.new_session();
        let mut seed = [0; 16];
        around.rng.fill(&mut seed);
        let (directory, catalog, now) = (around.directory.clone(), around.broker.catalog(), around.broker.now());
        let seed = u128::from_le_bytes(seed);
        let connection = Connection::new(around.settings.clone(), directory, catalog, id.0, lets_guest, seed, now);
        // There are no ports: the number distinguishes connections in lists.
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (local, peer) = (at(0), at(id.0 as u16));
        let connection = connection.between(Ends { peer, local });
        let connection = match identity {
            Some(identity) => connection.authenticated_as(identity),
            None => connection,
        };
        let mailbox = Arc::new(Mailbox::default());
        around.net.connections.add(Visitor::new(id.0, "amqp", false, (local, peer), now.wall_ms), &mailbox);
        Inside {
            around: around.clone(),
            id,
            sink: mailbox.clone(),
            mailbox,
            connection,
            input: BytesMut::new(),
            output: VecDeque::new(),
            stopping: false,
        }
    }

    /// Serves until either side ends.
    async fn serve(mut self, stream: DuplexStream) {
        let (mut reading, mut writing) = tokio::io::split(stream);
        loop {
            self.turn().await;
            let over = self.connection.close_reason().is_some();
            if self.stopping || (over && self.output.is_empty()) {
                return;
            }
            let wait_ms = self.connection.next_deadline_ms();
            let wait_ms = wait_ms.map(|at| at.saturating_sub(self.around.broker.now().monotonic_ms));
            let sleep = async {
                match wait_ms {
                    Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                    None => std::future::pending().await,
                }
            };
            let is_unfinished = self.connection.unfinished().is_some();
            let (wants_input, front) = (self.connection.wants_input(), self.output.front());
            let (to_write, has_output) = (front.map_or(&[][..], |front| front), front.is_some());
            self.input.reserve(READ_BYTES);
            tokio::select! {
                () = self.mailbox.arrived() => {}
                // Work that exceeds a turn continues in slices, so that no other connection waits for it.
                () = tokio::task::yield_now(), if is_unfinished => {}
                written = writing.write(to_write), if has_output => match written {
                    Ok(written) if written > 0 => self.written(written),
                    _ => return,
                },
                read = reading.read_buf(&mut self.input), if wants_input && !over => match read {
                    Ok(read) if read > 0 => {}
                    _ => return,
                },
                () = sleep => self.connection.on_deadline(self.around.broker.now()),
            }
        }
    }

    fn written(&mut self, bytes: usize) {
        if let Some(front) = self.output.front_mut() {
            front.advance(bytes.min(front.len()));
            if front.is_empty() {
                self.output.pop_front();
            }
        }
    }

    /// Does what is possible without waiting for the other side.
    async fn turn(&mut self) {
        let mut mail = VecDeque::new();
        self.mailbox.take(&mut mail);
        let now = self.around.broker.now();
        self.connection.begin_turn(STEPS_PER_TURN);
        for one in mail {
            match one {
                Mail::Reply(token, reply) => self.connection.on_reply(token, reply, now),
                Mail::Event(event) => self.connection.on_event(event, now),
                Mail::Alarm => self.connection.on_alarm(now),
                Mail::End(why) => self.connection.end(&why, now),
                Mail::Stop => self.stopping = true,
                Mail::Permit(_) | Mail::UserGone(_) | Mail::Fetched => {}
            }
        }
        self.connection.on_bytes(&mut self.input, now);
        self.submit();
        while self.output.is_empty() {
            let mut chunks = Vec::new();
            if !self.connection.poll_output(&mut chunks, now) {
                break;
            }
            self.output.extend(in_memory(chunks).await);
            // Free space in the session may let buffered input continue.
            self.connection.on_bytes(&mut self.input, now);
            self.submit();
        }
    }

    fn submit(&mut self) {
        while let Some((token, request)) = self.connection.poll_request() {
            self.around.broker.submit(&self.sink, self.id, token, request);
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some((token, request)) = self.connection.on_closed() {
            self.around.broker.submit(&self.sink, self.id, token, request);
        }
        self.around.broker.session_gone(self.id);
        self.around.net.connections.remove(self.id.0);
    }
}

/// Reads the chunks into memory; files are read on a thread that may block. A read error ends the connection, as with a socket: the other
/// side receives fewer bytes than announced.
async fn in_memory(chunks: Vec<Chunk>) -> Vec<Bytes> {
    let bytes = |chunks: Vec<Chunk>| {
        let bytes = chunks.iter().map(Chunk::to_bytes).collect::<Result<Vec<_>, _>>();
        let bytes = bytes.inspect_err(|error| tracing::error!(%error, "messages for a shovel cannot be read"));
        bytes.unwrap_or_default().into_iter().filter(|piece| !piece.is_empty()).collect::<Vec<Bytes>>()
    };
    if chunks.iter().all(|chunk| matches!(chunk, Chunk::Bytes(_))) {
        return bytes(chunks);
    }
    tokio::task::spawn_blocking(move || bytes(chunks)).await.unwrap_or_default()
}
