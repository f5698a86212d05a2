//! Requests to the broker from a handler.

use super::App;
use super::error::{Failure, NO_ANSWER};
use bytes::{Bytes, BytesMut};
use polylogue_api::{MachineId, Reply, Request};
use polylogue_kafka_codec::frame::{LENGTH_BYTES, decode_response_header, encode_request};
use polylogue_kafka_codec::{self, Message};
use polylogue_kafka_groups::command::{GroupCommand, GroupReply};
use polylogue_net::Visit;
use polylogue_net::kafka::KafkaConnection;
use polylogue_net::mailbox::Mail;
use polylogue_net::protocol::Protocol;
use polylogue_types::Chunk;
use std::time::Duration;

/// How long a handler waits for the broker.
const PATIENCE: Duration = Duration::from_secs(15);

async fn in_time<T>(answer: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(result) => result,
        Err(_) => Err(Failure::timeout(NO_ANSWER)),
    }
}

/// Sends a command to the group coordinator.
pub(super) async fn groups(app: &App, command: GroupCommand) -> Result<GroupReply, Failure> {
    in_time(async {
        let visit = Visit::new(&app.broker);
        visit.submit(0, Request::Machine(MachineId::KAFKA_GROUPS, Box::new(command)));
        loop {
            for mail in visit.mail().await {
                if let Mail::Reply(_, Reply::Machine(reply)) = mail {
                    let reply = reply.map_err(Failure::unavailable)?;
                    let wrong = |_| Failure::internal("unexpected reply from the coordinator".to_owned());
                    return reply.downcast::<GroupReply>().map(|reply| *reply).map_err(wrong);
                }
            }
        }
    })
    .await
}

/// Sends a Kafka request through its own Kafka session, so that the rules for Kafka clients apply here too.
pub(super) async fn kafka<R: polylogue_kafka_codec::Request>(
    app: &App,
    version: i16,
    request: &R,
) -> Result<R::Response, Failure> {
    let unwritable = |e: polylogue_kafka_codec::EncodeError| Failure::invalid(e.to_string());
    let chunks = encode_request(version, 0, Some("http-api".into()), request).map_err(unwritable)?;
    let mut input = BytesMut::new();
    for chunk in chunks {
        if let Chunk::Bytes(bytes) = chunk {
            input.extend_from_slice(&bytes);
        }
    }
    let visit = Visit::new(&app.broker);
    let session = app.kafka.session_for_ourselves(visit.id.0);
    let frame = in_time(answer(&visit, session, input)).await?;
    let unreadable = |e: polylogue_kafka_codec::DecodeError| Failure::internal(e.to_string());
    let frame = frame.slice(LENGTH_BYTES.min(frame.len())..);
    let (_, mut body) = decode_response_header(frame, R::API_KEY, version).map_err(unreadable)?;
    R::Response::decode(&mut body, version).map_err(unreadable)
}

/// Pumps one request through a session.
async fn answer(visit: &Visit<'_>, mut session: KafkaConnection, mut input: BytesMut) -> Result<Bytes, Failure> {
    let broker = visit.broker;
    session.on_bytes(&mut input, broker.now());
    let mut out = Vec::new();
    loop {
        while let Some((token, request)) = session.poll_request() {
            visit.submit(token, request);
        }
        session.poll_output(&mut out);
        if !out.is_empty() {
            let mut whole = BytesMut::new();
            for chunk in &out {
                let bytes = chunk.to_bytes().map_err(|e| Failure::internal(e.to_string()))?;
                whole.extend_from_slice(&bytes);
            }
            return Ok(whole.freeze());
        }
        if let Some(reason) = session.close_reason() {
            return Err(Failure::invalid(reason));
        }
        for mail in visit.mail().await {
            match mail {
                Mail::Reply(token, reply) => session.on_reply(token, reply, broker.now()),
                Mail::Event(event) => session.on_event(event, broker.now()),
                Mail::Permit(_) | Mail::Fetched | Mail::Alarm | Mail::Stop | Mail::End(_) | Mail::UserGone(_) => {}
            }
        }
    }
}
