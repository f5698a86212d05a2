//! Assembles messages from `basic.publish`, header and body frames, and checks them.

use super::channel::{Channel, Mode};
use super::core::Core;
use crate::codec::{BasicPublish, ContentHeader, Properties, Property, ShortStr, Value};
use crate::refusal::Refusal;
use crate::request::{Body, Publish, REPLY_PREFIX, REPLY_QUEUE, Request};
use bytes::Bytes;

/// The largest body that a header frame may announce, independent of the configured limit. Bytes.
const BODY_BYTES_MAX: u64 = 512 << 20;

/// The largest `expiration`: the limit of RabbitMQ's timers. Milliseconds.
const EXPIRATION_MS_MAX: u64 = u32::MAX as u64;

/// A message that is arriving.
#[derive(Debug)]
pub(super) enum Assembling {
    /// The header frame is awaited.
    Header(BasicPublish),
    /// Body frames are awaited.
    Body {
        publish: BasicPublish,
        properties: Bytes,
        /// Bytes still to arrive, at least 1.
        left: u64,
        pieces: Vec<Bytes>,
        /// Bytes received.
        held: usize,
        /// When the body began. Monotonic milliseconds.
        since_ms: u64,
    },
}

impl Channel {
    pub(super) fn on_publish(&mut self, publish: BasicPublish) -> Result<(), Refusal> {
        if publish.immediate {
            return Err(Refusal::not_implemented("immediate=true"));
        }
        self.assembling = Some(Assembling::Header(publish));
        Ok(())
    }

    /// Refuses a frame that interrupts a message.
    pub(super) fn expects_method(&self) -> Result<(), Refusal> {
        match &self.assembling {
            None => Ok(()),
            Some(Assembling::Header(_)) => Err(Refusal::expected_header(BasicPublish::ID.class)),
            Some(Assembling::Body { .. }) => Err(Refusal::expected_body()),
        }
    }

    /// Handles a header frame.
    pub(super) fn on_header(&mut self, core: &mut Core, header: ContentHeader) -> Result<(), Refusal> {
        let publish = match self.assembling.take() {
            None => return Err(Refusal::expected_method()),
            Some(Assembling::Body { .. }) => return Err(Refusal::expected_body()),
            Some(Assembling::Header(publish)) => publish,
        };
        if header.weight != 0 {
            return Err(Refusal::expected_header(BasicPublish::ID.class));
        }
        if header.class != BasicPublish::ID.class {
            return Err(Refusal::expected_header_class(BasicPublish::ID.class, header.class));
        }
        if header.body_size > BODY_BYTES_MAX {
            return Err(Refusal::body_too_large(header.body_size, BODY_BYTES_MAX));
        }
        if header.body_size > core.settings.message_bytes_max {
            return Err(Refusal::message_too_large(header.body_size, core.settings.message_bytes_max));
        }
        core.published();
        if header.body_size == 0 {
            return self.on_message(core, publish, header.properties, Body::One(Bytes::new()));
        }
        core.body_begins();
        self.assembling = Some(Assembling::Body {
            publish,
            properties: header.properties,
            left: header.body_size,
            pieces: Vec::new(),
            held: 0,
            since_ms: core.now_ms,
        });
        Ok(())
    }

    /// Handles a body frame.
    pub(super) fn on_body(&mut self, core: &mut Core, piece: Bytes) -> Result<(), Refusal> {
        let (publish, properties, left, mut pieces, held, since_ms) = match self.assembling.take() {
            None => return Err(Refusal::expected_method()),
            Some(Assembling::Header(_)) => return Err(Refusal::expected_header(BasicPublish::ID.class)),
            Some(Assembling::Body { publish, properties, left, pieces, held, since_ms }) => {
                (publish, properties, left, pieces, held, since_ms)
            }
        };
        core.published();
        let len = piece.len();
        let Some(left) = left.checked_sub(len as u64) else {
            core.assembling_bytes -= held;
            core.bodies.end();
            return Err(Refusal::body_overrun());
        };
        if left == 0 {
            core.assembling_bytes -= held;
            core.bodies.end();
            let body = if pieces.is_empty() {
                Body::One(piece)
            } else {
                pieces.push(piece);
                Body::Many(pieces)
            };
            return self.on_message(core, publish, properties, body);
        }
        core.assembling_bytes += len;
        if len > 0 {
            pieces.push(piece);
        }
        self.assembling = Some(Assembling::Body { publish, properties, left, pieces, held: held + len, since_ms });
        if core.assembling_bytes > core.settings.assembling_bytes_max {
            return Err(Refusal::assembling_too_much(core.settings.assembling_bytes_max));
        }
        Ok(())
    }

    /// Drops the incomplete message.
    pub(super) fn abandon_content(&mut self, core: &mut Core) {
        if let Some(Assembling::Body { held, .. }) = self.assembling.take() {
            core.assembling_bytes -= held;
            core.bodies.end();
        }
    }

    /// Handles a complete message.
    fn on_message(&mut self, core: &mut Core, publish: BasicPublish, raw: Bytes, body: Body) -> Result<(), Refusal> {
        let properties = Properties::new(raw).map_err(|error| Refusal::bad_properties(&error))?;
        let properties = self.with_reply_address(properties)?;
        let BasicPublish { exchange, routing_key, mandatory, .. } = publish;
        let message = UncheckedPublish { exchange, routing_key, mandatory, properties, body };
        let mut publish = Publish::checked(message, &core.peer.user, core.peer.impersonator)?;
        match &mut self.mode {
            Mode::Plain => {}
            Mode::Confirm(confirms) => publish.seq = Some(confirms.number()),
            Mode::Tx(tx) => {
                // A refused message is refused now, as by RabbitMQ, and not at the commit.
                let check = Request::CheckPublish(self.me, publish.without_body());
                tx.publish(core, publish)?;
                core.ask_for(self.me, check);
                return Ok(());
            }
        }
        core.ask_for(self.me, Request::Publish(self.me, publish));
        Ok(())
    }

    /// Replaces the pseudo reply queue by the address of the channel's reply consumer.
    fn with_reply_address(&self, properties: Properties) -> Result<Properties, Refusal> {
        let wanted = properties.text(Property::ReplyTo).is_some_and(|to| &to[..] == REPLY_QUEUE.as_bytes());
        if !wanted {
            return Ok(properties);
        }
        let replies = self.replies.as_ref().ok_or_else(Refusal::no_reply_consumer)?;
        let mut basic = properties.to_basic();
        basic.reply_to = Some(replies.address.clone());
        Ok(Properties::from(&basic))
    }
}

/// A message as the client sent it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UncheckedPublish {
    /// The exchange; empty for the default one.
    pub exchange: ShortStr,
    /// The routing key.
    pub routing_key: ShortStr,
    /// Whether it is returned when it is routed to no queue.
    pub mandatory: bool,
    /// Its properties.
    pub properties: Properties,
    /// Its body.
    pub body: Body,
}

impl Publish {
    /// Makes a publish request without a sequence number, after checking the message and its user.
    ///
    /// # Errors
    /// 406 for an invalid expiration, for a `CC` or `BCC` that is not an array, and for another user's `user_id`.
    pub fn checked(message: UncheckedPublish, user: &[u8], impersonator: bool) -> Result<Publish, Refusal> {
        let UncheckedPublish { exchange, routing_key, mandatory, properties, body } = message;
        let expiration_ms = match properties.text(Property::Expiration) {
            Some(expiration) => Some(expiration_ms(&expiration)?),
            None => None,
        };
        let (properties, cc, bcc) = carbon_copies(properties)?;
        check_user_id(user, impersonator, &properties)?;
        Ok(Publish { seq: None, exchange, routing_key, mandatory, properties, expiration_ms, cc, bcc, body })
    }

    /// Returns the same message with an empty body.
    fn without_body(&self) -> Publish {
        Publish {
            seq: self.seq,
            exchange: self.exchange.clone(),
            routing_key: self.routing_key.clone(),
            mandatory: self.mandatory,
            properties: self.properties.clone(),
            expiration_ms: self.expiration_ms,
            cc: self.cc.clone(),
            bcc: self.bcc.clone(),
            body: Body::One(Bytes::new()),
        }
    }
}

/// Only an impersonator may set another user's `user_id`.
fn check_user_id(user: &[u8], impersonator: bool, properties: &Properties) -> Result<(), Refusal> {
    match properties.text(Property::UserId) {
        Some(claimed) if claimed[..] != *user && !impersonator => Err(Refusal::user_id(&claimed, user)),
        _ => Ok(()),
    }
}

/// Returns the reply address for a suffix that the broker generated.
pub(super) fn reply_address(suffix: &ShortStr) -> ShortStr {
    let mut address = Vec::with_capacity(REPLY_PREFIX.len() + suffix.len());
    address.extend_from_slice(REPLY_PREFIX.as_bytes());
    address.extend_from_slice(suffix);
    ShortStr::cut(Bytes::from(address))
}

/// Parses an `expiration` in milliseconds with RabbitMQ's rules and errors (`rabbit_basic:parse_expiration`).
fn expiration_ms(text: &ShortStr) -> Result<u64, Refusal> {
    let refused = |why: &str| Err(Refusal::invalid_expiration(text, why));
    let digits_from = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let digits = text.iter().skip(digits_from).take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return refused("no_integer");
    }
    let (number, rest) = text.split_at(digits_from + digits);
    if !rest.is_empty() {
        return refused(&format!("{{leftover_string,{:?}}}", String::from_utf8_lossy(rest)));
    }
    let shown = String::from_utf8_lossy(number.strip_prefix(b"+").unwrap_or(number)).into_owned();
    // A number of up to 254 digits: only a small one is accepted.
    let value = number
        .iter()
        .filter(|byte| byte.is_ascii_digit())
        .try_fold(0u64, |value, byte| value.checked_mul(10)?.checked_add(u64::from(byte - b'0')));
    match value {
        Some(0) => Ok(0),
        _ if text.first() == Some(&b'-') => refused(&format!("{{value_negative,{shown}}}")),
        Some(value) if value <= EXPIRATION_MS_MAX => Ok(value),
        _ => refused(&format!("{{value_too_big,{shown}}}")),
    }
}

/// Takes additional routing keys from the headers `CC` and `BCC`; the latter is removed from the message.
fn carbon_copies(properties: Properties) -> Result<(Properties, Vec<Bytes>, Vec<Bytes>), Refusal> {
    let (mut cc, mut bcc) = (Vec::new(), Vec::new());
    let Some(headers) = properties.headers() else { return Ok((properties, cc, bcc)) };
    let keys = |name: &str| match headers.get(name) {
        None => Ok(None),
        Some(array @ Value::Array(_)) => {
            let texts = array.elements().filter_map(|(_, value)| value.as_longstr());
            Ok(Some(texts.map(|key| headers.raw().slice_ref(key)).collect()))
        }
        Some(other) => Err(Refusal::unacceptable_header(name, other.type_name())),
    };
    if let Some(keys) = keys("CC")? {
        cc = keys;
    }
    let Some(blind) = keys("BCC")? else { return Ok((properties, cc, bcc)) };
    bcc = blind;
    let mut basic = properties.to_basic();
    basic.headers = Some(headers.without("BCC"));
    Ok((Properties::from(&basic), cc, bcc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expirations_are_read_and_refused_as_rabbitmq_does() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("-0", Ok(0)),
            ("+5", Ok(5)),
            ("0010", Ok(10)),
            ("4294967295", Ok(u64::from(u32::MAX))),
            ("", Err("invalid expiration '': no_integer")),
            ("soon", Err("invalid expiration 'soon': no_integer")),
            ("-", Err("invalid expiration '-': no_integer")),
            ("1.5", Err("invalid expiration '1.5': {leftover_string,\".5\"}")),
            ("-7", Err("invalid expiration '-7': {value_negative,-7}")),
            ("4294967296", Err("invalid expiration '4294967296': {value_too_big,4294967296}")),
            (
                "99999999999999999999999",
                Err("invalid expiration '99999999999999999999999': {value_too_big,99999999999999999999999}"),
            ),
        ] {
            let read = expiration_ms(&text.into()).map_err(|refusal| refusal.text);
            assert_eq!(read, expected.map_err(str::to_owned), "{text}");
        }
    }
}
