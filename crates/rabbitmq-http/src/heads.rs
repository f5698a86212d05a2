//! Queues with their message counts, and the timestamp of the oldest message.

use super::call::Call;
use super::error::Failure;
use super::{ask, shapes};
use polylogue_amqp_model::Queue;
use polylogue_net::declared;
use serde_json::Value;
use std::sync::Arc;

/// The maximum number of queues whose oldest message is read from disk for one request.
const READS_MAX: usize = 256;
/// The field that requires reading the message.
const HEAD: &str = "head_message_timestamp";

/// Whether that field is requested: it costs a read of each queue.
fn is_wanted(call: &Call<'_>) -> bool {
    let names = |parameter: &str| call.query.get(parameter).map(|names| names.split(',').any(|name| name == HEAD));
    names("columns").unwrap_or(true) || names("sort").unwrap_or(false)
}

/// Returns each of these queues, in the same order.
pub(super) async fn counted(call: &Call<'_>, queues: &[Arc<Queue>]) -> Result<Vec<Value>, Failure> {
    let counts = ask::counts(call.app, queues).await?;
    let mut shapes: Vec<Value> =
        queues.iter().zip(&counts).map(|(queue, counts)| shapes::counted_queue(call, queue, counts)).collect();
    if is_wanted(call) {
        let (broker, directory) = (&call.app.broker, &call.app.directory);
        let heads = declared::oldest_sent(broker, directory, queues, READS_MAX).await?;
        for (shape, head) in shapes.iter_mut().zip(heads) {
            if let (Value::Object(shape), Some(seconds)) = (shape, head) {
                shape.insert(HEAD.to_owned(), seconds.into());
            }
        }
    }
    Ok(shapes)
}
