//! A channel of a client: the awaited answer, and the message that is arriving.

use super::confirms::Confirms;
use super::handshake::Stage;
use super::{Client, ClientEvent, NotNow};
use crate::codec::*;
use bytes::{Bytes, BytesMut};

/// The stage of a channel's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    Opening,
    Open,
    /// `channel.close` was sent.
    Closing,
}

/// What a message belongs to: a delivery, a returned message or the answer to `basic.get`.
#[derive(Debug)]
enum About {
    Deliver(BasicDeliver),
    Return(BasicReturn),
}

/// A message that is arriving.
#[derive(Debug)]
enum Arriving {
    /// The header frame is awaited.
    Header(About),
    /// Body frames are awaited; `left` is at least 1.
    Body { about: About, properties: Properties, left: usize, body: BytesMut },
}

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) life: Life,
    /// The method that answers the pending request.
    awaited: Option<MethodId>,
    arriving: Option<Arriving>,
    /// Set once `confirm.select` was sent and answered.
    pub(super) confirms: Option<Confirms>,
    /// The server has stopped the flow of messages.
    pub(super) paused: bool,
    last_delivery: u64,
}

/// The method that answers a method, if any.
fn answer_of(method: &Method) -> Option<MethodId> {
    Some(match method {
        Method::ChannelClose(_) => ChannelCloseOk::ID,
        Method::ExchangeDeclare(m) if !m.nowait => ExchangeDeclareOk::ID,
        Method::ExchangeDelete(m) if !m.nowait => ExchangeDeleteOk::ID,
        Method::ExchangeBind(m) if !m.nowait => ExchangeBindOk::ID,
        Method::ExchangeUnbind(m) if !m.nowait => ExchangeUnbindOk::ID,
        Method::QueueDelete(m) if !m.nowait => QueueDeleteOk::ID,
        Method::QueueDeclare(m) if !m.nowait => QueueDeclareOk::ID,
        Method::QueueBind(m) if !m.nowait => QueueBindOk::ID,
        Method::BasicQos(_) => BasicQosOk::ID,
        Method::BasicConsume(m) if !m.nowait => BasicConsumeOk::ID,
        Method::BasicCancel(m) if !m.nowait => BasicCancelOk::ID,
        Method::ConfirmSelect(m) if !m.nowait => ConfirmSelectOk::ID,
        _ => return None,
    })
}

impl Channel {
    /// A channel for which `channel.open` was sent.
    pub(super) fn new() -> Channel {
        Channel {
            life: Life::Opening,
            awaited: Some(ChannelOpenOk::ID),
            arriving: None,
            confirms: None,
            paused: false,
            last_delivery: 0,
        }
    }

    pub(super) fn unconfirmed(&self) -> usize {
        self.confirms.as_ref().map_or(0, Confirms::len)
    }

    pub(super) fn held_bytes(&self) -> usize {
        match &self.arriving {
            Some(Arriving::Body { properties, body, .. }) => properties.raw().len() + body.capacity(),
            _ => 0,
        }
    }

    /// Starts a request on the channel.
    pub(super) fn begin(&mut self, method: &Method) -> Result<(), NotNow> {
        if self.life != Life::Open || self.awaited.is_some() {
            return Err(NotNow);
        }
        self.awaited = Some(answer_of(method).ok_or(NotNow)?);
        if matches!(method, Method::ChannelClose(_)) {
            self.life = Life::Closing;
        }
        Ok(())
    }
}

impl Client {
    /// Handles a frame of a channel.
    pub(super) fn on_channel_frame(&mut self, kind: FrameKind, number: u16, payload: &[u8]) -> Result<(), String> {
        if matches!(self.stage, Stage::Closing { .. }) {
            // Frames that were in flight when this side closed the connection.
            return Ok(());
        }
        let Some(channel) = self.channels.get_mut(&number) else {
            return Err(format!("channel {number} is not open"));
        };
        match kind {
            FrameKind::Method => {
                let method = Method::decode(&Bytes::copy_from_slice(payload)).map_err(|error| error.to_string())?;
                if channel.arriving.is_some() {
                    return Err("a frame interrupts a message".to_owned());
                }
                self.on_method(number, method)
            }
            FrameKind::Header => {
                let Some(Arriving::Header(about)) = channel.arriving.take() else {
                    return Err("a header frame without a preceding method".to_owned());
                };
                self.on_header(number, about, payload)
            }
            FrameKind::Body => {
                let Some(Arriving::Body { about, properties, left, body }) = channel.arriving.take() else {
                    return Err("a body frame without a preceding header frame".to_owned());
                };
                if payload.len() > left {
                    return Err("a body is longer than its header frame says".to_owned());
                }
                self.on_body(number, Arriving::Body { about, properties, left, body }, payload);
                Ok(())
            }
            FrameKind::Heartbeat => Ok(()),
        }
    }

    fn on_header(&mut self, number: u16, about: About, payload: &[u8]) -> Result<(), String> {
        let header =
            ContentHeader::read(Reader::new(&Bytes::copy_from_slice(payload))).map_err(|error| error.to_string())?;
        let properties = Properties::new(header.properties).map_err(|error| error.to_string())?;
        let max = self.settings.message_bytes_max;
        let left = usize::try_from(header.body_size).ok().filter(|size| *size <= max);
        let left =
            left.ok_or_else(|| format!("a message has {} bytes, more than the limit of {max}", header.body_size))?;
        match left {
            0 => self.arrived(number, about, properties, Bytes::new()),
            left => {
                let body = BytesMut::new();
                self.arrive(number, Arriving::Body { about, properties, left, body });
            }
        }
        Ok(())
    }

    fn arrive(&mut self, number: u16, arriving: Arriving) {
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.arriving = Some(arriving);
        }
    }

    fn on_body(&mut self, number: u16, arriving: Arriving, payload: &[u8]) {
        let Arriving::Body { about, properties, left, mut body } = arriving else { return };
        if body.is_empty() && payload.len() == left {
            return self.arrived(number, about, properties, Bytes::copy_from_slice(payload));
        }
        body.extend_from_slice(payload);
        match left - payload.len() {
            0 => self.arrived(number, about, properties, body.freeze()),
            left => self.arrive(number, Arriving::Body { about, properties, left, body }),
        }
    }

    fn arrived(&mut self, number: u16, about: About, properties: Properties, body: Bytes) {
        let closing = self.channels.get(&number).is_none_or(|channel| channel.life == Life::Closing);
        if closing {
            return;
        }
        self.event(match about {
            About::Deliver(deliver) => ClientEvent::Delivered { channel: number, deliver, properties, body },
            About::Return(why) => ClientEvent::Returned { channel: number, why },
        });
    }

    fn on_method(&mut self, number: u16, method: Method) -> Result<(), String> {
        let Some(channel) = self.channels.get_mut(&number) else { return Ok(()) };
        let id = method.id();
        match method {
            Method::ChannelClose(close) => {
                self.output.method(number, &ChannelCloseOk {}.into());
                let (code, text) = (close.reply_code, close.reply_text.to_owned_bytes());
                self.channels.remove(&number);
                self.event(ClientEvent::ChannelClosed { channel: number, code, text });
            }
            Method::BasicDeliver(deliver) => {
                if channel.life == Life::Opening || deliver.delivery_tag <= channel.last_delivery {
                    return Err(format!("invalid delivery tag {}", deliver.delivery_tag));
                }
                channel.last_delivery = deliver.delivery_tag;
                channel.arriving = Some(Arriving::Header(About::Deliver(deliver)));
            }
            Method::BasicReturn(why) => channel.arriving = Some(Arriving::Header(About::Return(why))),
            Method::BasicAck(ack) => self.on_outcome(number, ack.delivery_tag, ack.multiple, true)?,
            Method::BasicNack(nack) => self.on_outcome(number, nack.delivery_tag, nack.multiple, false)?,
            Method::BasicCancel(cancel) => {
                if !cancel.nowait {
                    let ok = BasicCancelOk { consumer_tag: cancel.consumer_tag.clone() };
                    self.answer(number, &ok.into());
                }
                let consumer_tag = cancel.consumer_tag.to_owned_bytes();
                self.event(ClientEvent::Cancelled { channel: number, consumer_tag });
            }
            Method::ChannelFlow(flow) => {
                let paused = !flow.active;
                let changed = std::mem::replace(&mut channel.paused, paused) != paused;
                self.answer(number, &ChannelFlowOk { active: flow.active }.into());
                if changed {
                    self.event(ClientEvent::Paused { channel: number, paused });
                }
            }
            method if channel.awaited == Some(id) => {
                channel.awaited = None;
                match id {
                    ChannelOpenOk::ID => channel.life = Life::Open,
                    ChannelCloseOk::ID => drop(self.channels.remove(&number)),
                    ConfirmSelectOk::ID => _ = channel.confirms.get_or_insert_with(Confirms::new),
                    _ => {}
                }
                self.event(ClientEvent::Reply(number, method));
            }
            // The answer to a request that was sent before the channel was closed.
            _ if channel.life == Life::Closing => {}
            _ => return Err(format!("unexpected method {}", id.name().unwrap_or("a method"))),
        }
        Ok(())
    }

    fn on_outcome(&mut self, number: u16, tag: u64, multiple: bool, taken: bool) -> Result<(), String> {
        let Some(channel) = self.channels.get_mut(&number) else { return Ok(()) };
        let mut runs = Vec::new();
        let confirms = channel.confirms.as_mut().ok_or("a confirm on a channel without confirms")?;
        confirms
            .settle(tag, multiple, |first, last| runs.push((first, last)))
            .ok_or_else(|| format!("a confirm of {tag}, which was never published"))?;
        for (first, last) in runs {
            self.event(ClientEvent::Settled { channel: number, first, last, taken });
        }
        Ok(())
    }
}
