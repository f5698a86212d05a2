//! Requests in `RocketMQ`'s remoting protocol, for creating and deleting topics.
//!
//! ```text
//!   +---------------+--------------------------+-------------+------+
//!   | length of all | kind 0, length of header | header JSON | body |     lengths are 4 bytes, big endian; the first is not counted
//!   +---------------+--------------------------+-------------+------+
//! ```

use crate::error::{BenchError, Context, Result};
use serde_json::{Map, Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The maximum size of a response. Bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Timeout for a response.
const PATIENCE: Duration = Duration::from_secs(10);
/// Request codes.
const MAKE_TOPIC: u32 = 17;
const ROUTE_OF_TOPIC: u32 = 105;
const DELETE_TOPIC_IN_BROKER: u32 = 215;
const DELETE_TOPIC_IN_NAMES: u32 = 216;
/// A topic created to test that topics can be created.
const READY: &str = "bench-ready";

/// Checks that topics can be created: creates one at the broker, checks that the name server knows it, and always removes it.
///
/// A broker that has just started may not be registered at the name server yet, or its registration may have failed because a topic
/// was created meanwhile. It retries the registration after 10 or 40 s, but at once with each new topic.
///
/// # Errors
/// A step fails; retry until it succeeds.
pub fn check_topic_creation(names: &str, broker: &str) -> Result<()> {
    let topic = [("topic", READY)];
    let settings = [
        ("defaultTopic", "TBW102"),
        ("readQueueNums", "1"),
        ("writeQueueNums", "1"),
        ("perm", "6"),
        ("topicFilterType", "SINGLE_TAG"),
        ("topicSysFlag", "0"),
        ("order", "false"),
    ];
    let all: Vec<(&str, &str)> = topic.into_iter().chain(settings).collect();
    ask(broker, MAKE_TOPIC, &all)?;
    let known = ask(names, ROUTE_OF_TOPIC, &topic);
    ask(broker, DELETE_TOPIC_IN_BROKER, &topic)?;
    known?;
    ask(names, DELETE_TOPIC_IN_NAMES, &topic)
}

fn ask(server: &str, code: u32, fields: &[(&str, &str)]) -> Result<()> {
    let said = || format!("remoting request to {server} failed");
    let fields: Map<String, Value> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
    let header = json!({"code": code, "language": "OTHER", "version": 0, "opaque": 1, "flag": 0, "extFields": fields});
    let mut stream = TcpStream::connect(server).context(said)?;
    stream.set_read_timeout(Some(PATIENCE)).context(said)?;
    stream.write_all(&frame(header.to_string().as_bytes())).context(said)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).context(said)?;
    let length = u32::from_be_bytes(length) as usize;
    if !(4..=ANSWER_BYTES_MAX).contains(&length) {
        return Err(BenchError::new(format!(
            "{server} returned a frame of {length} bytes, which is not a remoting response"
        )));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).context(said)?;
    match code_of(&answer) {
        Some(0) => Ok(()),
        _ => {
            let stated = String::from_utf8_lossy(&answer);
            Err(BenchError::new(format!(
                "{server} rejected request code {code}: {}",
                stated.trim_start_matches(char::is_control)
            )))
        }
    }
}

fn frame(header: &[u8]) -> Vec<u8> {
    let header_bytes = header.len() as u32;
    let mut frame = (header_bytes + 4).to_be_bytes().to_vec();
    frame.extend(header_bytes.to_be_bytes());
    frame.extend(header);
    frame
}

/// Returns the code of a response; 0 is success.
fn code_of(answer: &[u8]) -> Option<u64> {
    let (length, rest) = answer.split_first_chunk()?;
    let header = rest.get(..(u32::from_be_bytes(*length) & 0x00ff_ffff) as usize)?;
    serde_json::from_slice::<Value>(header).ok()?.get("code")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_framed_header_is_parsed() {
        let framed = frame(br#"{"code":17,"flag":1}"#);
        assert_eq!(framed.get(..8), Some(&[0, 0, 0, 24, 0, 0, 0, 20][..]));
        assert_eq!(code_of(framed.get(4..).expect("longer")), Some(17));
        assert_eq!(code_of(&framed), None, "the first length is not part of it");
        assert_eq!(code_of(b"short"), None);
    }
}
