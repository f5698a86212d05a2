//! Connections that do nothing: what a broker takes for each, and how fast it takes them.
//!
//! Each is greeted as far as its protocol greets before anything is asked: AMQP's handshake (and then a channel), Kafka's versions, Pulsar's
//! CONNECT. `RocketMQ` and `TubeMQ` have no greeting: there a connection is one of TCP to the broker.

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

/// Connections that come and go before those that count: what a broker loads for its first ones is not theirs.
const FIRST_CONNECTIONS: u32 = 20;
/// How long connections do nothing before their memory is read: what a broker took to make them, and does not need, may have gone by then.
const QUIET: Duration = Duration::from_secs(6);
const KIB: f64 = 1_024.0;
/// The longest answer to Pulsar's CONNECT that is taken. Bytes.
const GREETING_BYTES_MAX: u32 = 64 << 10;
/// The number of Pulsar's answer, CONNECTED, in its first field.
const CONNECTED: [u8; 2] = [0x08, 3];

/// A connection that is held.
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

/// Pulsar's CONNECT, written by hand: type 2, and in field 2 the client's version (1) and the protocol's (4).
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

    /// The same when nothing has come for a while.
    fn quiet_kib(&mut self) -> Result<f64> {
        if !self.line.quick {
            std::thread::sleep(QUIET);
        }
        self.anonymous_kib()
    }

    /// Holds connections that do nothing; of AMQP without a channel and with one.
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
