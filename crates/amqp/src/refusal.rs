//! Reasons for refusals: RabbitMQ's codes and texts. Test suites and applications match the texts, so each is defined here once, letter by letter
//! (sources: `rabbit_channel`, `rabbit_reader`, `rabbit_amqqueue`, `rabbit_command_assembler`).

use crate::codec::{DecodeError, MethodId, ShortStr};
use std::fmt;

/// A reply code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "each is named as in the specification")]
pub enum Code {
    ContentTooLarge = 311,
    NoRoute = 312,
    NoConsumers = 313,
    ConnectionForced = 320,
    InvalidPath = 402,
    AccessRefused = 403,
    NotFound = 404,
    ResourceLocked = 405,
    PreconditionFailed = 406,
    FrameError = 501,
    SyntaxError = 502,
    CommandInvalid = 503,
    ChannelError = 504,
    UnexpectedFrame = 505,
    ResourceError = 506,
    NotAllowed = 530,
    NotImplemented = 540,
    InternalError = 541,
}

impl Code {
    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The name that a reply text starts with.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Code::ContentTooLarge => "CONTENT_TOO_LARGE",
            Code::NoRoute => "NO_ROUTE",
            Code::NoConsumers => "NO_CONSUMERS",
            Code::ConnectionForced => "CONNECTION_FORCED",
            Code::InvalidPath => "INVALID_PATH",
            Code::AccessRefused => "ACCESS_REFUSED",
            Code::NotFound => "NOT_FOUND",
            Code::ResourceLocked => "RESOURCE_LOCKED",
            Code::PreconditionFailed => "PRECONDITION_FAILED",
            Code::FrameError => "FRAME_ERROR",
            Code::SyntaxError => "SYNTAX_ERROR",
            Code::CommandInvalid => "COMMAND_INVALID",
            Code::ChannelError => "CHANNEL_ERROR",
            Code::UnexpectedFrame => "UNEXPECTED_FRAME",
            Code::ResourceError => "RESOURCE_ERROR",
            Code::NotAllowed => "NOT_ALLOWED",
            Code::NotImplemented => "NOT_IMPLEMENTED",
            Code::InternalError => "INTERNAL_ERROR",
        }
    }

    /// Whether it closes the connection, not only the channel.
    #[must_use]
    pub fn is_hard(self) -> bool {
        matches!(self, Code::ConnectionForced | Code::InvalidPath) || self >= Code::FrameError
    }
}

/// A reply code and a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The code.
    pub code: Code,
    /// The text after the name of the code.
    pub text: String,
}

/// Where a reply text that is too long is cut, before its three dots. Bytes.
const CUT_BYTES: usize = 252;

impl Refusal {
    /// Makes a refusal with this code and text.
    #[must_use]
    pub fn new(code: Code, text: impl Into<String>) -> Refusal {
        Refusal { code, text: text.into() }
    }

    /// Returns `NAME - text`, shortened to fit a short string.
    #[must_use]
    pub fn reply_text(&self) -> ShortStr {
        let mut text = format!("{} - {}", self.code.name(), self.text);
        if text.len() > ShortStr::BYTES_MAX {
            let cut = (0..=CUT_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(cut);
            text.push_str("...");
        }
        text.into()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} - {}", self.code.number(), self.code.name(), self.text)
    }
}

impl std::error::Error for Refusal {}

/// Bytes as an Erlang term, which RabbitMQ's texts contain: `<<"text">>` or `<<1,2,3>>`.
struct Term<'a>(&'a [u8]);

impl fmt::Display for Term<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let printable = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t');
        if self.0.is_empty() {
            return f.write_str("<<>>");
        }
        if self.0.iter().all(printable) {
            return write!(f, "<<{:?}>>", String::from_utf8_lossy(self.0));
        }
        numbers(f, self.0)
    }
}

/// Bytes as Erlang's `~w` prints them: always `<<1,2,3>>`.
struct Numbers<'a>(&'a [u8]);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Bytes that do not fit into a reply text are not formatted at all.
        numbers(f, self.0.get(..ShortStr::BYTES_MAX).unwrap_or(self.0))
    }
}

fn numbers(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_str("<<")?;
    for (at, byte) in bytes.iter().enumerate() {
        write!(f, "{}{byte}", if at == 0 { "" } else { "," })?;
    }
    f.write_str(">>")
}

/// Quotes a payload: whole, or its first 16 bytes.
fn octets(payload: &[u8]) -> String {
    match payload.get(..17) {
        None => format!("all octets = {}", Term(payload)),
        Some(more) => format!("first 16 octets = {}", Term(&more[..16])),
    }
}

/// The type of a resource in texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A queue.
    Queue,
    /// An exchange.
    Exchange,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Queue => "queue",
            Kind::Exchange => "exchange",
        })
    }
}

/// A resource of a virtual host in texts: `queue 'q' in vhost '/'`.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its type.
    pub kind: Kind,
    /// Its name.
    pub name: &'a [u8],
    /// The virtual host that it is in.
    pub vhost: &'a [u8],
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, vhost) = (String::from_utf8_lossy(self.name), String::from_utf8_lossy(self.vhost));
        write!(f, "{} '{name}' in vhost '{vhost}'", self.kind)
    }
}

fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Refusals that the session decides.
impl Refusal {
    /// A method that is not allowed in the current state of the connection.
    #[must_use]
    pub fn unexpected_method(state: &str) -> Refusal {
        Refusal::new(Code::ChannelError, format!("unexpected method in connection state {state}"))
    }

    /// A frame of unknown type, or whose payload does not match its type.
    #[must_use]
    pub fn unknown_frame(kind: u8, payload: &[u8]) -> Refusal {
        Refusal::new(Code::FrameError, format!("type {kind}, {}: unknown_frame", octets(payload)))
    }

    /// A frame whose size exceeds the negotiated maximum; sizes exclude the frame's overhead.
    #[must_use]
    pub fn frame_too_large(kind: u8, size: u32, max: u32) -> Refusal {
        Refusal::new(Code::FrameError, format!("type {kind}, {}: {{frame_too_large,{size},{max}}}", octets(&[])))
    }

    /// A frame whose last octet is not [`crate::codec::FRAME_END`].
    #[must_use]
    pub fn bad_frame_end(kind: u8, payload: &[u8], end: u8) -> Refusal {
        let octets = octets(payload);
        Refusal::new(Code::FrameError, format!("type {kind}, {octets}: {{invalid_frame_end_marker,{end}}}"))
    }

    /// A frame of a type that is not allowed in this state.
    #[must_use]
    pub fn unexpected_frame(kind: u8, payload: &[u8]) -> Refusal {
        Refusal::new(Code::UnexpectedFrame, format!("type {kind}, {}", octets(payload)))
    }

    /// A header or body frame without a preceding `basic.publish`.
    #[must_use]
    pub fn expected_method() -> Refusal {
        Refusal::new(Code::UnexpectedFrame, "expected method frame, got non method frame instead")
    }

    /// Something other than a header frame after `basic.publish`.
    #[must_use]
    pub fn expected_header(class: u16) -> Refusal {
        let text = format!("expected content header for class {class}, got non content header frame instead");
        Refusal::new(Code::UnexpectedFrame, text)
    }

    /// A header frame of another class than the method before it.
    #[must_use]
    pub fn expected_header_class(class: u16, got: u16) -> Refusal {
        let text = format!("expected content header for class {class}, got one for class {got} instead");
        Refusal::new(Code::UnexpectedFrame, text)
    }

    /// Something other than a body frame before a message is complete.
    #[must_use]
    pub fn expected_body() -> Refusal {
        Refusal::new(Code::UnexpectedFrame, "expected content body, got non content body frame instead")
    }

    /// More body bytes than the header frame announced.
    #[must_use]
    pub fn body_overrun() -> Refusal {
        Refusal::new(Code::FrameError, "content body frame exceeds remaining content size")
    }

    /// A body larger than any message may be.
    #[must_use]
    pub fn body_too_large(size: u64, max: u64) -> Refusal {
        Refusal::new(Code::FrameError, format!("content body size {size} exceeds maximum allowed size {max}"))
    }

    /// Method fields that cannot be decoded.
    #[must_use]
    pub fn cannot_decode(fields: &[u8]) -> Refusal {
        Refusal::new(Code::FrameError, format!("cannot decode {}", Numbers(fields)))
    }

    /// A short string that is not UTF-8.
    #[must_use]
    pub fn malformed_utf8() -> Refusal {
        Refusal::new(Code::FrameError, "Malformed UTF-8 in shortstr")
    }

    /// Properties that cannot be decoded. In RabbitMQ the channel ends with an internal error; this text says what is wrong.
    #[must_use]
    pub fn bad_properties(error: &DecodeError) -> Refusal {
        Refusal::new(Code::FrameError, format!("cannot decode properties: {error}"))
    }

    /// A method that clients may not send.
    #[must_use]
    pub fn unimplemented_method() -> Refusal {
        Refusal::new(Code::CommandInvalid, "unimplemented method")
    }

    /// A method with unknown numbers. RabbitMQ drops the connection without a reply.
    #[must_use]
    pub fn unknown_method(id: MethodId) -> Refusal {
        Refusal::new(Code::CommandInvalid, format!("unknown method {{{},{}}}", id.class, id.method))
    }

    /// A mechanism with an unknown name.
    #[must_use]
    pub fn unknown_mechanism(name: &[u8]) -> Refusal {
        Refusal::new(Code::CommandInvalid, format!("unknown authentication mechanism '{}'", lossy(name)))
    }

    /// A mechanism that this server does not offer.
    #[must_use]
    pub fn invalid_mechanism(name: &[u8]) -> Refusal {
        Refusal::new(Code::CommandInvalid, format!("invalid authentication mechanism '{}'", lossy(name)))
    }

    /// A malformed PLAIN response. RabbitMQ quotes it, password included; this text does not.
    #[must_use]
    pub fn bad_plain_response() -> Refusal {
        Refusal::new(Code::SyntaxError, "response invalid")
    }

    /// An AMQPLAIN response without one of its two fields.
    #[must_use]
    pub fn bad_amqplain_response() -> Refusal {
        Refusal::new(Code::SyntaxError, "AMQPLAIN auth info is missing LOGIN or PASSWORD field")
    }

    /// A refused login, for clients with the capability `authentication_failure_close`.
    #[must_use]
    pub fn login_refused(mechanism: &str) -> Refusal {
        let text = format!(
            "Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
        );
        Refusal::new(Code::AccessRefused, text)
    }

    /// A value of `connection.tune_ok` below the minimum.
    #[must_use]
    pub fn negotiated_below(field: &str, value: u32, min: u32) -> Refusal {
        let text = format!("negotiated {field} = {value} is lower than the minimum allowed value ({min})");
        Refusal::new(Code::NotAllowed, text)
    }

    /// A value of `connection.tune_ok` above the maximum; 0 is no limit.
    #[must_use]
    pub fn negotiated_above(field: &str, value: u32, max: u32) -> Refusal {
        let detail = if value == 0 { " (no limit)" } else { "" };
        let text = format!("negotiated {field} = {value}{detail} is higher than the maximum allowed value ({max})");
        Refusal::new(Code::NotAllowed, text)
    }

    /// More channels than negotiated.
    #[must_use]
    pub fn too_many_channels(open: usize, max: u16) -> Refusal {
        let text = format!("number of channels opened ({open}) has reached the negotiated channel_max ({max})");
        Refusal::new(Code::NotAllowed, text)
    }

    /// More channels than the user may have on all connections together.
    #[must_use]
    pub fn too_many_channels_of_user(user: &str, max: u64) -> Refusal {
        let text = format!(
            "number of channels opened for user '{user}' has reached the maximum allowed user limit of ({max})"
        );
        Refusal::new(Code::NotAllowed, text)
    }

    /// More channels than all connections of a node may have together.
    #[must_use]
    pub fn too_many_channels_of_node(node: u64, max: u64) -> Refusal {
        let text = format!(
            "number of channels opened on node 'polylogue@{node}' has reached the maximum allowed limit of {max}"
        );
        Refusal::new(Code::NotAllowed, text)
    }

    /// `connection.update_secret` with a secret that is refused.
    #[must_use]
    pub fn secret_refused() -> Refusal {
        Refusal::new(Code::NotAllowed, "New secret was refused by one of the backends")
    }

    /// `channel.open` on a channel that is open.
    #[must_use]
    pub fn second_channel_open() -> Refusal {
        Refusal::new(Code::ChannelError, "second 'channel.open' seen")
    }

    /// Another method on a channel that is not open.
    #[must_use]
    pub fn expected_channel_open() -> Refusal {
        Refusal::new(Code::ChannelError, "expected 'channel.open'")
    }

    /// Options of the specification that RabbitMQ does not implement: `immediate=true`, `requeue=false`, `active=false`.
    #[must_use]
    pub fn not_implemented(what: &str) -> Refusal {
        Refusal::new(Code::NotImplemented, what)
    }

    /// A prefetch limit in bytes.
    #[must_use]
    pub fn prefetch_size(size: u32) -> Refusal {
        Refusal::new(Code::NotImplemented, format!("prefetch_size!=0 ({size})"))
    }

    /// A stream consumer on a channel without a prefetch limit.
    #[must_use]
    pub fn stream_without_prefetch(queue: Named<'_>) -> Refusal {
        let text = format!("consumer prefetch count is not set for stream {queue}");
        Refusal::new(Code::PreconditionFailed, text)
    }

    /// A stream consumer with automatic acknowledgement.
    #[must_use]
    pub fn stream_without_acks(queue: Named<'_>) -> Refusal {
        Refusal::new(Code::NotImplemented, format!("automatic acknowledgement not supported by stream {queue}"))
    }

    /// An operation that streams do not support: `basic.get`, `queue.purge`.
    #[must_use]
    pub fn not_for_streams(method: &str, queue: Named<'_>) -> Refusal {
        Refusal::new(Code::NotImplemented, format!("{method} not supported by stream queues {queue}"))
    }

    /// A delivery tag without an unacknowledged delivery.
    #[must_use]
    pub fn unknown_delivery_tag(tag: u64) -> Refusal {
        Refusal::new(Code::PreconditionFailed, format!("unknown delivery tag {tag}"))
    }

    /// An empty queue name before a queue was declared on the channel.
    #[must_use]
    pub fn no_previous_queue() -> Refusal {
        Refusal::new(Code::NotFound, "no previously declared queue")
    }

    /// An operation that the default exchange does not allow.
    #[must_use]
    pub fn default_exchange() -> Refusal {
        Refusal::new(Code::AccessRefused, "operation not permitted on the default exchange")
    }

    /// Deletion of a predeclared exchange.
    #[must_use]
    pub fn system_exchange(exchange: Named<'_>) -> Refusal {
        Refusal::new(Code::AccessRefused, format!("deletion of system {exchange} not allowed"))
    }

    /// Declaration of a name that starts with `amq.`.
    #[must_use]
    pub fn reserved_name(kind: Kind, name: &[u8]) -> Refusal {
        let text = format!("{kind} name '{}' contains reserved prefix 'amq.*'", lossy(name));
        Refusal::new(Code::AccessRefused, text)
    }

    /// A consumer tag that the channel already uses.
    #[must_use]
    pub fn consumer_tag_reused(tag: &[u8]) -> Refusal {
        Refusal::new(Code::NotAllowed, format!("attempt to reuse consumer tag '{}'", lossy(tag)))
    }

    /// More consumers than a channel may have.
    #[must_use]
    pub fn too_many_consumers(max: usize) -> Refusal {
        Refusal::new(Code::NotAllowed, format!("reached maximum ({max}) of consumers per channel"))
    }

    /// A message larger than the configured maximum.
    #[must_use]
    pub fn message_too_large(size: u64, max: u64) -> Refusal {
        let text = format!("message size {size} is larger than configured max size {max}");
        Refusal::new(Code::PreconditionFailed, text)
    }

    /// An `expiration` that is not a number of milliseconds; `why` is an Erlang term.
    #[must_use]
    pub fn invalid_expiration(value: &[u8], why: &str) -> Refusal {
        Refusal::new(Code::PreconditionFailed, format!("invalid expiration '{}': {why}", lossy(value)))
    }

    /// A `user_id` other than the authenticated user.
    #[must_use]
    pub fn user_id(claimed: &[u8], actual: &[u8]) -> Refusal {
        let (claimed, actual) = (lossy(claimed), lossy(actual));
        let text = format!("user_id property set to '{claimed}' but authenticated user was '{actual}'");
        Refusal::new(Code::PreconditionFailed, text)
    }

    /// A `CC` or `BCC` header that is not an array.
    #[must_use]
    pub fn unacceptable_header(name: &str, type_name: &str) -> Refusal {
        let text = format!("invalid message: {{unacceptable_type_in_header,\"{name}\",{type_name}}}");
        Refusal::new(Code::PreconditionFailed, text)
    }

    /// Direct reply-to without a reply consumer.
    #[must_use]
    pub fn no_reply_consumer() -> Refusal {
        Refusal::new(Code::PreconditionFailed, "fast reply consumer does not exist")
    }

    /// A reply consumer without automatic acknowledgement.
    #[must_use]
    pub fn reply_consumer_acks() -> Refusal {
        Refusal::new(Code::PreconditionFailed, "reply consumer cannot acknowledge")
    }

    /// A second reply consumer on a channel.
    #[must_use]
    pub fn reply_consumer_set() -> Refusal {
        Refusal::new(Code::PreconditionFailed, "reply consumer already set")
    }

    /// `tx.select` on a channel with confirms.
    #[must_use]
    pub fn confirm_to_tx() -> Refusal {
        Refusal::new(Code::PreconditionFailed, "cannot switch from confirm to tx mode")
    }

    /// `confirm.select` on a channel with transactions.
    #[must_use]
    pub fn tx_to_confirm() -> Refusal {
        Refusal::new(Code::PreconditionFailed, "cannot switch from tx to confirm mode")
    }

    /// Commit or rollback on a channel without transactions.
    #[must_use]
    pub fn not_transactional() -> Refusal {
        Refusal::new(Code::PreconditionFailed, "channel is not transactional")
    }

    /// Some queues took their part of a transaction and others did not.
    #[must_use]
    pub fn partial_tx() -> Refusal {
        Refusal::new(Code::PreconditionFailed, "partial tx completion")
    }

    /// A transaction larger than allowed. RabbitMQ has no such limit.
    #[must_use]
    pub fn tx_too_large(what: &str, max: usize) -> Refusal {
        Refusal::new(Code::PreconditionFailed, format!("transaction is larger than {max} {what}"))
    }

    /// Incomplete messages exceed what a connection may hold. RabbitMQ has no such limit.
    #[must_use]
    pub fn assembling_too_much(max: usize) -> Refusal {
        Refusal::new(Code::ResourceError, format!("incomplete messages of this connection exceed {max} bytes"))
    }

    /// The body of a message did not arrive in time. RabbitMQ waits forever.
    #[must_use]
    pub fn late_body(channel: u16, timeout_ms: u64) -> Refusal {
        Refusal::new(
            Code::PreconditionFailed,
            format!("message body on channel {channel} timed out. Timeout value used: {timeout_ms} ms"),
        )
    }

    /// The body of a message did not arrive in time while memory is low. RabbitMQ waits forever.
    #[must_use]
    pub fn body_while_low_on_memory(timeout_ms: u64) -> Refusal {
        let text = format!("low on memory: a message body timed out. Timeout value used: {timeout_ms} ms");
        Refusal::new(Code::ResourceError, text)
    }

    /// The broker violated the contract of [`crate::request`].
    #[must_use]
    pub fn internal(text: &str) -> Refusal {
        Refusal::new(Code::InternalError, text)
    }
}

/// Refusals that only the broker can decide, with the texts that clients match on.
impl Refusal {
    /// The resource does not exist: `no queue 'q' in vhost '/'`.
    #[must_use]
    pub fn missing(what: Named<'_>) -> Refusal {
        Refusal::new(Code::NotFound, format!("no {what}"))
    }

    /// The queue is exclusive to another connection.
    #[must_use]
    pub fn exclusive(queue: Named<'_>) -> Refusal {
        let text = format!(
            "cannot obtain exclusive access to locked {queue}. It could be originally declared on another connection \
             or the exclusive property value does not match that of the original declaration."
        );
        Refusal::new(Code::ResourceLocked, text)
    }

    /// The resource exists with other properties than declared.
    #[must_use]
    pub fn inequivalent(argument: &str, what: Named<'_>, received: &str, current: &str) -> Refusal {
        let text = format!("inequivalent arg '{argument}' for {what}: received {received} but current is {current}");
        Refusal::new(Code::PreconditionFailed, text)
    }

    /// The virtual host does not exist.
    #[must_use]
    pub fn no_vhost(vhost: &[u8]) -> Refusal {
        Refusal::new(Code::NotAllowed, format!("vhost {} not found", lossy(vhost)))
    }

    /// The user may not open the virtual host.
    #[must_use]
    pub fn vhost_refused(vhost: &[u8], user: &[u8]) -> Refusal {
        let text = format!("access to vhost '{}' refused for user '{}'", lossy(vhost), lossy(user));
        Refusal::new(Code::NotAllowed, text)
    }

    /// The user lacks a permission: `configure`, `write` or `read`.
    #[must_use]
    pub fn no_permission(permission: &str, what: Named<'_>, user: &[u8]) -> Refusal {
        let text = format!("{permission} access to {what} refused for user '{}'", lossy(user));
        Refusal::new(Code::AccessRefused, text)
    }

    /// A client published to an internal exchange.
    #[must_use]
    pub fn internal_exchange(exchange: Named<'_>) -> Refusal {
        Refusal::new(Code::AccessRefused, format!("cannot publish to internal {exchange}"))
    }

    /// The queue has an exclusive consumer, or an exclusive consumer was requested while others are attached.
    #[must_use]
    pub fn exclusive_use(queue: Named<'_>) -> Refusal {
        Refusal::new(Code::AccessRefused, format!("{queue} in exclusive use"))
    }

    /// `basic.get` on a quorum queue with a single active consumer.
    #[must_use]
    pub fn get_with_single_active_consumer(queue: Named<'_>) -> Refusal {
        let text = format!(
            "cannot obtain access to locked {queue}. basic.get operations are not supported by quorum queues with single \
             active consumer"
        );
        Refusal::new(Code::ResourceLocked, text)
    }

    /// The channel uses a global prefetch limit, which the queue does not support.
    #[must_use]
    pub fn global_qos(queue: Named<'_>) -> Refusal {
        Refusal::new(Code::NotImplemented, format!("{queue} does not support global qos"))
    }

    /// Deletion with `if_unused` while the resource is in use.
    #[must_use]
    pub fn in_use(what: Named<'_>) -> Refusal {
        Refusal::new(Code::PreconditionFailed, format!("{what} in use"))
    }

    /// Deletion with `if_empty` while the queue has messages.
    #[must_use]
    pub fn not_empty(queue: Named<'_>) -> Refusal {
        Refusal::new(Code::PreconditionFailed, format!("{queue} not empty"))
    }

    /// The exchange type is unknown.
    #[must_use]
    pub fn unknown_exchange_type(kind: &[u8]) -> Refusal {
        Refusal::new(Code::PreconditionFailed, format!("unknown exchange type '{}'", lossy(kind)))
    }

    /// A delivery was not acknowledged in time.
    #[must_use]
    pub fn delivery_timeout(channel: u16, timeout_ms: u64) -> Refusal {
        let text = format!(
            "delivery acknowledgement on channel {channel} timed out. Timeout value used: {timeout_ms} ms. \
             This timeout value can be configured, see consumers doc guide to learn more"
        );
        Refusal::new(Code::PreconditionFailed, text)
    }

    /// The server shuts down.
    #[must_use]
    pub fn shutdown() -> Refusal {
        Refusal::forced("broker forced connection closure with reason 'shutdown'")
    }

    /// An operator closes the connection.
    #[must_use]
    pub fn forced(why: &str) -> Refusal {
        Refusal::new(Code::ConnectionForced, why)
    }
}

#[cfg(test)]
mod tests;
