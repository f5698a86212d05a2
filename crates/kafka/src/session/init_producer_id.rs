//! InitProducerId: a producer id for an idempotent producer.

use super::errors;
use super::work::{Pending, Step, Work};
use polylogue_api::{Reply, Request};
use polylogue_auth::Operation;
use polylogue_kafka_codec::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader};

/// Without a transactional id every producer gets a new id and epoch 0, whatever id and epoch it had before
/// (`TransactionCoordinator.handleInitProducerId`). With one it gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED: transactions are
/// not supported, and this is the one error that all clients treat as final instead of retrying until they time out.
pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = InitProducerIdRequest::decode(body, work.head.version)?;
    let half = (request.producer_id == -1) != (request.producer_epoch == -1);
    Ok(match &request.transactional_id {
        Some(id) if !work.may_transactional_id(Operation::Write, id) => {
            refuse(work, ErrorCode::TransactionalIdAuthorizationFailed)
        }
        None if !work.may_write_idempotently() => refuse(work, ErrorCode::ClusterAuthorizationFailed),
        Some(id) if id.is_empty() => refuse(work, ErrorCode::InvalidRequest),
        Some(_) => refuse(work, ErrorCode::TransactionalIdAuthorizationFailed),
        None if half => refuse(work, ErrorCode::InvalidRequest),
        None => Step::Wait(work.ask(Request::AllocateProducerId), Box::new(Allocating)),
    })
}

fn refuse(work: &Work<'_>, error: ErrorCode) -> Step {
    let response = InitProducerIdResponse {
        error_code: error.code(),
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    };
    work.answer(&response)
}

#[derive(Debug)]
struct Allocating;

impl Pending for Allocating {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        match reply {
            Reply::ProducerId(Ok(id)) => {
                let response = InitProducerIdResponse {
                    producer_id: id.0,
                    producer_epoch: 0,
                    ..InitProducerIdResponse::default()
                };
                work.answer(&response)
            }
            Reply::ProducerId(Err(why)) => refuse(work, errors::of_coordinator(why)),
            _ => work.wrong_reply(),
        }
    }
}
