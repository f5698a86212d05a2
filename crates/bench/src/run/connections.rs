//! Idle connections: a broker's memory for each, and the rate at which it accepts them.
//!
//! Each connection does its protocol's handshake: AMQP's (and then opens a channel), Kafka's ApiVersions, Pulsar's CONNECT. `RocketMQ` and
//! `TubeMQ` have none: their connections are plain TCP.

use super::OneSide;
use crate::amqp::wire::Wire as AmqpWire;
use crate::clock::{monotonic_ns, seconds};
use crate::contract::System;
use crate::error::{BenchError, Context, Result};
use crate::sample::Sample;
use crate::wire::{Wire, open};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Connections opened and closed before those that count: they make a broker load its code.
const FIRST_CONNECTIONS: u32 = 20;
/// Idle time before the memory is read: memory used only for opening connections may have been released by then.
const QUIET: Duration = Duration::from_secs(6);
const KIB: f64 = 1_024.0;
/// The maximum size of the response to Pulsar's CONNECT. Bytes.
const GREETING_BYTES_MAX: u32 = 64 << 10;
/// The type of Pulsar's response, CONNECTED, as its first field.
const CONNECTED: [u8; 2] = [0x08, 3];

/// An open connection.
enum Held {
    Amqp(Box<AmqpWire>),
    Kafka(#[allow(dead_code, reason = "it is held")] Box<Wire>),
    Other(#[allow(dead_code, reason = "it is held")] TcpStream),
}

impl Held {
    fn greet(server: &str, system: System) -> Result<Held> {
        match system {
            System::Rabbitmq => AmqpWire::connect(server).map(|wire| Held::Amqp(Box::new(wire))),
            System::Kafka => Wire::connect(server).map(|wire| Held::Kafka(Box::new(wire))),
            System::Pulsar => pulsar(server).map(Held::Other),
            System::RabbitmqStream | System::Rocketmq | System::Tubemq => {
                open(server).map(|(_, stream)| Held::Other(stream))
            }
        }
    }
}

/// Pulsar's CONNECT, encoded manually: type 2, and in field 2 the client's version (1) and the protocol's (4).
fn greeting() -> Vec<u8> {
    let client = b"polylogue-bench";
    let mut connect = vec![0x0a, client.len() as u8];
    connect.extend_from_slice(client);
    connect.extend_from_slice(&[0x20, 19]);
    let mut command = vec![0x08, 2, 0x12, connect.len() as u8];
    command.extend_from_slice(&connect);
    let size = command.len() as u32;
    [&(size + 4).to_be_bytes()[..], &size.to_be_bytes(), &command].concat()
}

fn pulsar(server: &str) -> Result<TcpStream> {
    let (_, mut stream) = open(server)?;
    let said = || format!("{server} does not greet as Pulsar does");
    stream.write_all(&greeting()).context(said)?;
    let mut size = [0; 4];
    stream.read_exact(&mut size).context(said)?;
    let size = u32::from_be_bytes(size);
    if size > GREETING_BYTES_MAX {
        return Err(BenchError::new(format!("{server} answers CONNECT with {size} bytes")));
    }
    let mut answer = vec![0; size as usize];
    stream.read_exact(&mut answer).context(said)?;
    if answer.get(4..6) != Some(&CONNECTED) {
        return Err(BenchError::new(said()));
    }
    Ok(stream)
}

impl OneSide<'_> {
    fn anonymous_kib(&mut self) -> Result<f64> {
        let sample: Option<Sample> = self.idle()?;
        let sample =
            sample.ok_or_else(|| BenchError::new("the memory of a running broker that was named is unknown"))?;
        Ok(sample.anonymous_bytes as f64 / KIB)
    }

    /// Returns the memory after an idle time.
    fn quiet_kib(&mut self) -> Result<f64> {
        if !self.line.quick {
            std::thread::sleep(QUIET);
        }
        self.anonymous_kib()
    }

    /// Opens idle connections; with AMQP without a channel and with one.
    pub(super) fn connections(&mut self) -> Result<()> {
        let (server, count) = (self.running.listens().to_owned(), self.load.connections.max(1));
        let system = self.system;
        for _ in 0..FIRST_CONNECTIONS {
            if let Held::Amqp(mut wire) = Held::greet(&server, system)? {
                wire.open_channel()?;
            }
        }
        let before = self.quiet_kib()?;
        let began = monotonic_ns();
        let mut held = Vec::new();
        for _ in 0..count {
            self.around.interrupt.check()?;
            held.push(Held::greet(&server, system)?);
        }
        self.figure("connections_per_s", f64::from(count) / seconds(monotonic_ns() - began));
        let without = self.quiet_kib()?;
        self.figure("kib_a_connection", (without - before) / f64::from(count));
        let mut has_channels = false;
        for one in &mut held {
            if let Held::Amqp(wire) = one {
                wire.open_channel()?;
                has_channels = true;
            }
        }
        if has_channels {
            let with = self.quiet_kib()?;
            self.figure("kib_a_connection_with_channel", (with - before) / f64::from(count));
        }
        if let Some(sample) = self.idle()? {
            self.figure("anonymous_mib", sample.anonymous_bytes as f64 / KIB / KIB);
            self.figure("files", sample.files as f64);
            self.figure("threads", sample.threads as f64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_is_framed_twice() {
        let greeting = greeting();
        assert_eq!(greeting.len(), 4 + 4 + 4 + 2 + 15 + 2);
        assert_eq!(greeting[..8], [0, 0, 0, 27, 0, 0, 0, 23]);
        assert_eq!(greeting[8..14], [0x08, 2, 0x12, 19, 0x0a, 15]);
    }
}
