//! Names of topics for queues.
//!
//! ```text
//!   amqp-queue.QUEUE          a queue of the virtual host `/`
//!   amqp-vhost.VHOST.QUEUE    a queue of another one
//!   amqp-queue-id.NUMBER      a queue whose name would exceed the length limit of topic names
//!
//!   in VHOST and QUEUE:       A-Z a-z 0-9 . - are unchanged, _ is __, any other byte _ and two hexadecimal digits;
//!                             in VHOST a dot is _2e, so that the first dot ends it
//! ```
//!
//! Names are unique, and the queue can be derived from a name without a lookup.

use polylogue_amqp_model::DEFAULT_VHOST;
use polylogue_router::QueueId;

/// The longest name of a topic (Kafka's `Topic.MAX_NAME_LENGTH`). Bytes.
const NAME_BYTES_MAX: usize = 249;
const IN_DEFAULT: &str = "amqp-queue.";
const IN_VHOST: &str = "amqp-vhost.";
const BY_ID: &str = "amqp-queue-id.";
/// The prefix of escaped bytes.
const ESCAPE: char = '_';

/// The queue that a topic name identifies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Named {
    /// By virtual host and name.
    Queue(String, String),
    Id(QueueId),
}

/// Whether the name is reserved for topics of queues.
pub(super) fn is_reserved(topic: &str) -> bool {
    [IN_DEFAULT, IN_VHOST, BY_ID].iter().any(|prefix| topic.starts_with(prefix))
}

/// Returns the topic name for a queue.
pub(super) fn of(vhost: &str, queue: &str, id: QueueId) -> String {
    let mut name = String::with_capacity(IN_VHOST.len() + vhost.len() + queue.len() + 1);
    if vhost == DEFAULT_VHOST {
        name.push_str(IN_DEFAULT);
    } else {
        name.push_str(IN_VHOST);
        escape(vhost, false, &mut name);
        name.push('.');
    }
    escape(queue, true, &mut name);
    if name.len() > NAME_BYTES_MAX { format!("{BY_ID}{id}") } else { name }
}

/// Parses a topic name; whether the queue has this name has to be checked with [`of`]. `None` for names that no queue's topic has.
pub(super) fn queue_of(topic: &str) -> Option<Named> {
    if let Some(id) = topic.strip_prefix(BY_ID) {
        return id.parse().ok().map(|id| Named::Id(QueueId(id)));
    }
    if let Some(queue) = topic.strip_prefix(IN_DEFAULT) {
        return Some(Named::Queue(DEFAULT_VHOST.to_owned(), unescape(queue)?));
    }
    let (vhost, queue) = topic.strip_prefix(IN_VHOST)?.split_once('.')?;
    Some(Named::Queue(unescape(vhost)?, unescape(queue)?))
}

fn escape(text: &str, dots: bool, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in text.bytes() {
        match byte {
            b'.' if dots => out.push('.'),
            b'-' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => out.push(char::from(byte)),
            b'_' => out.extend([ESCAPE, ESCAPE]),
            _ => {
                let digit = |half: u8| DIGITS.get(usize::from(half)).map_or('0', |digit| char::from(*digit));
                out.extend([ESCAPE, digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != ESCAPE as u8 {
            out.push(byte);
            continue;
        }
        let first = bytes.next()?;
        if first == ESCAPE as u8 {
            out.push(first);
        } else {
            let [high, low] = [first, bytes.next()?].map(|digit| char::from(digit).to_digit(16));
            out.push((high? << 4 | low?) as u8);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: QueueId = QueueId(7);

    #[test]
    fn names_identify_the_queue() {
        let names = [
            ("/", "orders", "amqp-queue.orders"),
            ("/", "task_queue", "amqp-queue.task__queue"),
            ("/", "a.b-c:d é", "amqp-queue.a.b-c_3ad_20_c3_a9"),
            ("/", "", "amqp-queue."),
            ("prod", "orders.eu", "amqp-vhost.prod.orders.eu"),
            ("a.b/c", "q", "amqp-vhost.a_2eb_2fc.q"),
            ("/", "_3a", "amqp-queue.__3a"),
        ];
        for (vhost, queue, name) in names {
            assert_eq!(of(vhost, queue, ID), name);
            assert_eq!(queue_of(name), Some(Named::Queue(vhost.to_owned(), queue.to_owned())), "{name}");
            assert!(is_reserved(name));
        }
        let longest = "x".repeat(NAME_BYTES_MAX - IN_DEFAULT.len());
        assert_eq!(of("/", &longest, ID).len(), NAME_BYTES_MAX);
        assert_eq!(of("/", &format!("{longest}x"), ID), "amqp-queue-id.7");
        assert_eq!(queue_of("amqp-queue-id.7"), Some(Named::Id(ID)));
    }

    #[test]
    fn other_names_are_no_queues() {
        for other in ["orders", "amqp-queue", "amqp-vhost.prod", "amqp-queue._", "amqp-queue._4", "amqp-queue._zz"] {
            assert_eq!(queue_of(other), None, "{other}");
        }
        assert_eq!(queue_of("amqp-queue._ff"), None, "a name of a queue is UTF-8");
        assert!(!is_reserved("amqp-queues") && !is_reserved("orders"));
    }
}
