//! What TLS costs a thread that does nothing else: a thread takes messages off a socket, and another time sends as many out of a file, over TLS and
//! without, with the library, the sizes and the system calls of the broker. `benches/overhead.py --bare` runs it beside the broker.
//!
//! ```text
//!   in    plain   read 64 KiB                  tls   read 32 KiB, decrypt, copy out
//!   out   plain   sendfile 256 KiB             tls   pread 64 KiB, encrypt, write
//! ```
//!
//! `bare_tls [MESSAGES]` prints one line of JSON: processor seconds of that thread for a million messages of 1 KiB. The peer at the other end of
//! the socket has a thread that is not counted.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measuring program works on the real machine"
)]

use rustix::time::{ClockId, clock_gettime};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::error::Error;
use std::fs::File;
use std::io::{Read, Seek as _, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const MESSAGE_BYTES: usize = 1 << 10;
/// What a producer sends at a time.
const BATCH_BYTES: usize = 64 << 10;
/// What is taken at a time of plain bytes.
const READ_BYTES: usize = 64 << 10;
/// What is taken off a socket with TLS at a time.
const SEALED_BYTES: usize = 32 << 10;
/// What goes out of a file at a time without TLS.
const FILE_STEP_BYTES: usize = 256 << 10;
/// What goes into TLS at a time.
const PIECE_BYTES: usize = 64 << 10;

/// The processor time of this thread so far. Seconds.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Takes so many bytes off a socket.
fn take(socket: &mut TcpStream, bytes: usize) -> Result<()> {
    let (mut left, mut into) = (bytes, vec![0; READ_BYTES]);
    while left > 0 {
        match socket.read(&mut into)? {
            0 => return Err("the other end has gone".into()),
            read => left -= read,
        }
    }
    Ok(())
}

/// The same over TLS.
fn take_sealed(socket: &mut TcpStream, tls: &mut ServerConnection, bytes: usize) -> Result<()> {
    let (mut left, mut into, mut sealed) = (bytes, vec![0; READ_BYTES], vec![0; SEALED_BYTES]);
    while left > 0 {
        let read = socket.read(&mut sealed)?;
        let mut rest = sealed.get(..read).unwrap_or_default();
        if rest.is_empty() {
            return Err("the other end has gone".into());
        }
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            let state = tls.process_new_packets()?;
            let mut waiting = state.plaintext_bytes_to_read();
            while waiting > 0 {
                let taken = tls.reader().read(&mut into)?;
                waiting -= taken;
                left = left.saturating_sub(taken);
            }
        }
    }
    Ok(())
}

/// Sends so many bytes of a file.
fn send(socket: &TcpStream, file: &File, bytes: usize) -> Result<()> {
    let mut sent = 0;
    while sent < bytes {
        let mut position = sent as u64;
        sent += rustix::fs::sendfile(socket, file, Some(&mut position), FILE_STEP_BYTES.min(bytes - sent))?;
    }
    Ok(())
}

/// The same over TLS.
fn send_sealed(socket: &mut TcpStream, tls: &mut ServerConnection, file: &File, bytes: usize) -> Result<()> {
    let (mut sent, mut piece) = (0, vec![0; PIECE_BYTES]);
    tls.set_buffer_limit(Some(PIECE_BYTES));
    while sent < bytes {
        let step = PIECE_BYTES.min(bytes - sent);
        let piece = piece.get_mut(..step).unwrap_or_default();
        file.read_exact_at(piece, sent as u64)?;
        tls.writer().write_all(piece)?;
        while tls.wants_write() {
            tls.write_tls(socket)?;
        }
        sent += step;
    }
    Ok(())
}

/// A peer that sends what is taken, says so, and takes what is sent.
fn other_end(mut stream: impl Read + Write, bytes: usize) -> Result<()> {
    let batch = vec![b'x'; BATCH_BYTES];
    for _ in 0..bytes / BATCH_BYTES {
        stream.write_all(&batch)?;
    }
    stream.flush()?;
    let (mut left, mut into) = (bytes, vec![0; READ_BYTES]);
    while left > 0 {
        match stream.read(&mut into)? {
            0 => return Err("the broker's end has gone".into()),
            read => left = left.saturating_sub(read),
        }
    }
    Ok(())
}

/// What both ends have to know for TLS.
fn configs() -> Result<(Arc<ServerConfig>, Arc<ClientConfig>)> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let client = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let server = server.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key)?;
    Ok((Arc::new(server), Arc::new(client.with_root_certificates(roots).with_no_client_auth())))
}

/// Processor seconds for taking and for sending so many bytes.
fn measure(file: &File, bytes: usize, tls: Option<(Arc<ServerConfig>, Arc<ClientConfig>)>) -> Result<(f64, f64)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    let (server, client) = tls.unzip();
    let other = std::thread::spawn(move || -> Result<()> {
        let stream = TcpStream::connect(at)?;
        match client {
            None => other_end(stream, bytes),
            Some(client) => {
                let tls = ClientConnection::new(client, ServerName::try_from("localhost")?)?;
                other_end(StreamOwned::new(tls, stream), bytes)
            }
        }
    });
    let (mut socket, _) = listener.accept()?;
    let costs = if let Some(server) = server {
        let mut tls = ServerConnection::new(server)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        let before = cpu_seconds();
        take_sealed(&mut socket, &mut tls, bytes)?;
        let between = cpu_seconds();
        send_sealed(&mut socket, &mut tls, file, bytes)?;
        (between - before, cpu_seconds() - between)
    } else {
        let before = cpu_seconds();
        take(&mut socket, bytes)?;
        let between = cpu_seconds();
        send(&socket, file, bytes)?;
        (between - before, cpu_seconds() - between)
    };
    other.join().map_err(|_| "the other end panicked")??;
    Ok(costs)
}

fn main() -> Result<()> {
    let messages: usize = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    // Whole batches of it.
    let bytes = (messages * MESSAGE_BYTES).next_multiple_of(BATCH_BYTES);
    let path = std::env::temp_dir().join(format!("polylogue-bare-tls-{}", std::process::id()));
    // As large as what is sent, and read back from the disk: in the page cache, and not in the processor's.
    let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    let batch = vec![b'x'; BATCH_BYTES];
    for _ in 0..bytes / BATCH_BYTES {
        file.write_all(&batch)?;
    }
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    file.rewind()?;
    std::io::copy(&mut file, &mut std::io::sink())?;
    let configs = configs()?;
    let per_million = |seconds: f64| seconds * 1e6 * MESSAGE_BYTES as f64 / bytes as f64;
    let (taken, sent) = measure(&file, bytes, None)?;
    let (unsealed, sealed) = measure(&file, bytes, Some(configs))?;
    let [taken, sent, unsealed, sealed] = [taken, sent, unsealed, sealed].map(per_million);
    println!(
        "{{\"messages\": {messages}, \"plain_in\": {taken:.3}, \"plain_out\": {sent:.3}, \"tls_in\": {unsealed:.3}, \"tls_out\": {sealed:.3}}}"
    );
    Ok(())
}
