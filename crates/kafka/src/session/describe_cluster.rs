//! DescribeCluster (KIP-700): this node, with the address of the listener that the client used. Follows
//! `AuthHelper.computeDescribeClusterResponse`.

use super::metadata::cluster_operations;
use super::topics::{node_id, owned};
use super::work::{Step, Work};
use polylogue_kafka_codec::describe_cluster::{DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader};

/// Endpoint types (KIP-919): brokers.
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// The first version with an endpoint type, and with errors for a mismatch.
const ENDPOINT_FROM: i16 = 1;

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = DescribeClusterRequest::decode(body, version)?;
    if let Some((error, text)) = refusal(request.endpoint_type) {
        let error = if version < ENDPOINT_FROM { ErrorCode::InvalidRequest } else { error };
        let response = DescribeClusterResponse {
            error_code: error.code(),
            error_message: Some(text.into()),
            ..DescribeClusterResponse::default()
        };
        return Ok(work.answer(&response));
    }
    let cluster = work.catalog.cluster();
    let listener = &work.peer.listener;
    // Fenced brokers are registered ones that do not respond: there are none.
    let this = DescribeClusterBroker {
        broker_id: node_id(&cluster),
        host: listener.host.clone(),
        port: i32::from(listener.port),
        rack: None,
        is_fenced: false,
    };
    let response = DescribeClusterResponse {
        endpoint_type: BROKERS,
        cluster_id: owned(&cluster.cluster_id),
        controller_id: this.broker_id,
        brokers: vec![this],
        cluster_authorized_operations: cluster_operations(work, request.include_cluster_authorized_operations),
        ..DescribeClusterResponse::default()
    };
    Ok(work.answer(&response))
}

fn refusal(endpoint: i8) -> Option<(ErrorCode, String)> {
    match endpoint {
        BROKERS => None,
        CONTROLLERS => {
            let text =
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER";
            Some((ErrorCode::MismatchedEndpointType, text.to_owned()))
        }
        other => Some((ErrorCode::UnsupportedEndpointType, format!("Unsupported endpoint type {other}"))),
    }
}
