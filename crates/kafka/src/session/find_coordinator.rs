//! FindCoordinator: who coordinates a group. Here that is this node.

use super::topics::node_id;
use super::work::{Step, Work};
use crate::codec::find_coordinator::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};
use crate::codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};

/// The first version that asks for several at once.
const BATCHED_FROM: i16 = 4;
/// The first version that may ask for a share group's coordinator.
const SHARE_FROM: i16 = 6;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = FindCoordinatorRequest::decode(body, version)?;
    let refusal = refusal(request.key_type, version);
    let found = |key: StrBytes| match refusal {
        None => Coordinator {
            key,
            node_id: node_id(&work.catalog.cluster()),
            host: work.peer.listener.host.clone(),
            port: i32::from(work.peer.listener.port),
            ..Coordinator::default()
        },
        Some((error, text)) => Coordinator {
            key,
            node_id: -1,
            port: -1,
            error_code: error.code(),
            error_message: Some(StrBytes::from_static(text)),
            ..Coordinator::default()
        },
    };
    if version >= BATCHED_FROM {
        let coordinators = request.coordinator_keys.into_iter().map(found).collect();
        return Ok(work.answer(&FindCoordinatorResponse { coordinators, ..FindCoordinatorResponse::default() }));
    }
    let Coordinator { node_id, host, port, error_code, error_message, .. } = found(request.key);
    let response = FindCoordinatorResponse {
        error_code,
        error_message,
        node_id,
        host,
        port,
        ..FindCoordinatorResponse::default()
    };
    Ok(work.answer(&response))
}

/// What is not there. Transactions are refused in the one way that clients take as final: `librdkafka` asks again on every
/// other code until its user's patience ends. (For share groups only brokers ask.)
fn refusal(key_type: i8, version: i16) -> Option<(ErrorCode, &'static str)> {
    match key_type {
        GROUP => None,
        TRANSACTION => {
            Some((ErrorCode::TransactionalIdAuthorizationFailed, "Transactions are not supported by this broker."))
        }
        SHARE if version >= SHARE_FROM => {
            Some((ErrorCode::CoordinatorNotAvailable, "Share groups are not supported by this broker."))
        }
        _ => Some((ErrorCode::InvalidRequest, "There is no coordinator of this type.")),
    }
}
