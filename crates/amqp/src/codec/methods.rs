//! All methods of AMQP 0-9-1 with RabbitMQ's extensions, as one table: name, class and method number, fields in wire order. Fields that the
//! specification reserves keep their former names, because they are on the wire.

use super::{DecodeError, MethodId, Reader, ShortStr, Table, Writer};
use bytes::Bytes;

/// The Rust type of a field.
macro_rules! field {
    (octet) => {
        u8
    };
    (short) => {
        u16
    };
    (long) => {
        u32
    };
    (longlong) => {
        u64
    };
    (bit) => {
        bool
    };
    (shortstr) => {
        ShortStr
    };
    (longstr) => {
        Bytes
    };
    (table) => {
        Table
    };
}

/// Writes a field: integers and bits by value, the rest by reference.
macro_rules! put {
    ($w:ident, shortstr, $v:expr) => {
        $w.shortstr(&$v)
    };
    ($w:ident, longstr, $v:expr) => {
        $w.longstr(&$v)
    };
    ($w:ident, table, $v:expr) => {
        $w.table(&$v)
    };
    ($w:ident, $kind:ident, $v:expr) => {
        $w.$kind($v)
    };
}

macro_rules! methods {
    ($($variant:ident $text:literal $class:literal $method:literal { $($field:ident: $kind:ident),* })*) => {
        $(
            #[doc = concat!("The fields of `", $text, "`, as the specification names them.")]
            #[derive(Clone, PartialEq, Eq, Debug, Default)]
            #[allow(missing_docs, clippy::struct_excessive_bools, reason = "the specification says what each is")]
            pub struct $variant {
                $(pub $field: field!($kind),)*
            }

            impl $variant {
                /// Its class and method number.
                pub const ID: MethodId = MethodId::new($class, $method);

                fn fields(_r: &mut Reader<'_>) -> Result<$variant, DecodeError> {
                    Ok($variant { $($field: _r.$kind()?,)* })
                }

                /// Reads the fields when the numbers are already known to be [`Self::ID`].
                ///
                /// # Errors
                /// As [`Method::decode`].
                pub fn read(mut r: Reader<'_>) -> Result<$variant, DecodeError> {
                    (r.short()?, r.short()?);
                    let read = $variant::fields(&mut r)?;
                    r.end()?;
                    Ok(read)
                }
            }

            impl From<$variant> for Method {
                fn from(fields: $variant) -> Method {
                    Method::$variant(fields)
                }
            }
        )*

        /// A method with its fields.
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[allow(missing_docs, reason = "each is named as in the specification")]
        pub enum Method {
            $($variant($variant),)*
        }

        impl Method {
            /// Reads a method: its numbers and fields, with no bytes left over.
            ///
            /// # Errors
            /// [`DecodeError`]; [`DecodeError::UnknownMethod`] when no method has its numbers.
            pub fn decode(payload: &Bytes) -> Result<Method, DecodeError> {
                Method::read(Reader::new(payload))
            }

            /// Like [`Method::decode`], on a part of a larger buffer.
            ///
            /// # Errors
            /// As [`Method::decode`].
            pub fn read(mut r: Reader<'_>) -> Result<Method, DecodeError> {
                let id = MethodId::new(r.short()?, r.short()?);
                let method = match (id.class, id.method) {
                    $(($class, $method) => Method::$variant($variant::fields(&mut r)?),)*
                    _ => return Err(DecodeError::UnknownMethod(id)),
                };
                r.end()?;
                Ok(method)
            }

            /// Writes the method with its numbers.
            pub fn encode(&self, w: &mut Writer<'_>) {
                let id = self.id();
                w.short(id.class);
                w.short(id.method);
                match self {
                    $(Method::$variant(_fields) => { $(put!(w, $kind, _fields.$field);)* })*
                }
                w.end();
            }

            /// Returns its class and method number.
            #[must_use]
            pub fn id(&self) -> MethodId {
                match self {
                    $(Method::$variant(_) => $variant::ID,)*
                }
            }
        }

        impl MethodId {
            /// All methods, in the order of the specification.
            pub const ALL: &'static [MethodId] = &[$($variant::ID,)*];

            /// Returns its name, for example `queue.declare`.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match (self.class, self.method) {
                    $(($class, $method) => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

methods! {
    ConnectionStart "connection.start" 10 10 { version_major: octet, version_minor: octet, server_properties: table, mechanisms: longstr, locales: longstr }
    ConnectionStartOk "connection.start_ok" 10 11 { client_properties: table, mechanism: shortstr, response: longstr, locale: shortstr }
    ConnectionSecure "connection.secure" 10 20 { challenge: longstr }
    ConnectionSecureOk "connection.secure_ok" 10 21 { response: longstr }
    ConnectionTune "connection.tune" 10 30 { channel_max: short, frame_max: long, heartbeat: short }
    ConnectionTuneOk "connection.tune_ok" 10 31 { channel_max: short, frame_max: long, heartbeat: short }
    ConnectionOpen "connection.open" 10 40 { virtual_host: shortstr, capabilities: shortstr, insist: bit }
    ConnectionOpenOk "connection.open_ok" 10 41 { known_hosts: shortstr }
    ConnectionClose "connection.close" 10 50 { reply_code: short, reply_text: shortstr, class_id: short, method_id: short }
    ConnectionCloseOk "connection.close_ok" 10 51 {}
    ConnectionBlocked "connection.blocked" 10 60 { reason: shortstr }
    ConnectionUnblocked "connection.unblocked" 10 61 {}
    ConnectionUpdateSecret "connection.update_secret" 10 70 { new_secret: longstr, reason: shortstr }
    ConnectionUpdateSecretOk "connection.update_secret_ok" 10 71 {}
    ChannelOpen "channel.open" 20 10 { out_of_band: shortstr }
    ChannelOpenOk "channel.open_ok" 20 11 { channel_id: longstr }
    ChannelFlow "channel.flow" 20 20 { active: bit }
    ChannelFlowOk "channel.flow_ok" 20 21 { active: bit }
    ChannelClose "channel.close" 20 40 { reply_code: short, reply_text: shortstr, class_id: short, method_id: short }
    ChannelCloseOk "channel.close_ok" 20 41 {}
    AccessRequest "access.request" 30 10 { realm: shortstr, exclusive: bit, passive: bit, active: bit, write: bit, read: bit }
    AccessRequestOk "access.request_ok" 30 11 { ticket: short }
    ExchangeDeclare "exchange.declare" 40 10 { ticket: short, exchange: shortstr, kind: shortstr, passive: bit, durable: bit, auto_delete: bit, internal: bit, nowait: bit, arguments: table }
    ExchangeDeclareOk "exchange.declare_ok" 40 11 {}
    ExchangeDelete "exchange.delete" 40 20 { ticket: short, exchange: shortstr, if_unused: bit, nowait: bit }
    ExchangeDeleteOk "exchange.delete_ok" 40 21 {}
    ExchangeBind "exchange.bind" 40 30 { ticket: short, destination: shortstr, source: shortstr, routing_key: shortstr, nowait: bit, arguments: table }
    ExchangeBindOk "exchange.bind_ok" 40 31 {}
    ExchangeUnbind "exchange.unbind" 40 40 { ticket: short, destination: shortstr, source: shortstr, routing_key: shortstr, nowait: bit, arguments: table }
    ExchangeUnbindOk "exchange.unbind_ok" 40 51 {}
    QueueDeclare "queue.declare" 50 10 { ticket: short, queue: shortstr, passive: bit, durable: bit, exclusive: bit, auto_delete: bit, nowait: bit, arguments: table }
    QueueDeclareOk "queue.declare_ok" 50 11 { queue: shortstr, message_count: long, consumer_count: long }
    QueueBind "queue.bind" 50 20 { ticket: short, queue: shortstr, exchange: shortstr, routing_key: shortstr, nowait: bit, arguments: table }
    QueueBindOk "queue.bind_ok" 50 21 {}
    QueuePurge "queue.purge" 50 30 { ticket: short, queue: shortstr, nowait: bit }
    QueuePurgeOk "queue.purge_ok" 50 31 { message_count: long }
    QueueDelete "queue.delete" 50 40 { ticket: short, queue: shortstr, if_unused: bit, if_empty: bit, nowait: bit }
    QueueDeleteOk "queue.delete_ok" 50 41 { message_count: long }
    QueueUnbind "queue.unbind" 50 50 { ticket: short, queue: shortstr, exchange: shortstr, routing_key: shortstr, arguments: table }
    QueueUnbindOk "queue.unbind_ok" 50 51 {}
    BasicQos "basic.qos" 60 10 { prefetch_size: long, prefetch_count: short, global: bit }
    BasicQosOk "basic.qos_ok" 60 11 {}
    BasicConsume "basic.consume" 60 20 { ticket: short, queue: shortstr, consumer_tag: shortstr, no_local: bit, no_ack: bit, exclusive: bit, nowait: bit, arguments: table }
    BasicConsumeOk "basic.consume_ok" 60 21 { consumer_tag: shortstr }
    BasicCancel "basic.cancel" 60 30 { consumer_tag: shortstr, nowait: bit }
    BasicCancelOk "basic.cancel_ok" 60 31 { consumer_tag: shortstr }
    BasicPublish "basic.publish" 60 40 { ticket: short, exchange: shortstr, routing_key: shortstr, mandatory: bit, immediate: bit }
    BasicReturn "basic.return" 60 50 { reply_code: short, reply_text: shortstr, exchange: shortstr, routing_key: shortstr }
    BasicDeliver "basic.deliver" 60 60 { consumer_tag: shortstr, delivery_tag: longlong, redelivered: bit, exchange: shortstr, routing_key: shortstr }
    BasicGet "basic.get" 60 70 { ticket: short, queue: shortstr, no_ack: bit }
    BasicGetOk "basic.get_ok" 60 71 { delivery_tag: longlong, redelivered: bit, exchange: shortstr, routing_key: shortstr, message_count: long }
    BasicGetEmpty "basic.get_empty" 60 72 { cluster_id: shortstr }
    BasicAck "basic.ack" 60 80 { delivery_tag: longlong, multiple: bit }
    BasicReject "basic.reject" 60 90 { delivery_tag: longlong, requeue: bit }
    BasicRecoverAsync "basic.recover_async" 60 100 { requeue: bit }
    BasicRecover "basic.recover" 60 110 { requeue: bit }
    BasicRecoverOk "basic.recover_ok" 60 111 {}
    BasicNack "basic.nack" 60 120 { delivery_tag: longlong, multiple: bit, requeue: bit }
    ConfirmSelect "confirm.select" 85 10 { nowait: bit }
    ConfirmSelectOk "confirm.select_ok" 85 11 {}
    TxSelect "tx.select" 90 10 {}
    TxSelectOk "tx.select_ok" 90 11 {}
    TxCommit "tx.commit" 90 20 {}
    TxCommitOk "tx.commit_ok" 90 21 {}
    TxRollback "tx.rollback" 90 30 {}
    TxRollbackOk "tx.rollback_ok" 90 31 {}
}

impl Method {
    /// Whether it carries content: a header frame and body frames follow.
    #[must_use]
    pub fn has_content(&self) -> bool {
        matches!(
            self,
            Method::BasicPublish(_) | Method::BasicReturn(_) | Method::BasicDeliver(_) | Method::BasicGetOk(_)
        )
    }
}
