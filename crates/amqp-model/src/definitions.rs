//! Definitions: the JSON of RabbitMQ's `/api/definitions`, of the whole broker or of one virtual host.

use crate::error::Refused;
use bytestring::ByteString;
use serde_json::{Map, Value};

/// The largest accepted JSON. Its changes form one record. Bytes.
pub const DEFINITIONS_BYTES_MAX: usize = 32 << 20;

/// Definitions that were parsed and not yet checked.
#[derive(Clone, PartialEq, Debug)]
pub struct Definitions {
    pub(crate) root: Map<String, Value>,
    /// The virtual host of all items, overriding what they name.
    pub(crate) vhost: Option<ByteString>,
}

impl Definitions {
    /// Parses definitions; those of one virtual host are imported into `vhost`.
    ///
    /// # Errors
    /// When they are too long, or not a JSON object.
    pub fn parse(json: &[u8], vhost: Option<ByteString>) -> Result<Definitions, Refused> {
        if json.len() > DEFINITIONS_BYTES_MAX {
            return Err(Refused::bad(format!("definitions have at most {DEFINITIONS_BYTES_MAX} bytes")));
        }
        match serde_json::from_slice(json) {
            Ok(Value::Object(root)) => Ok(Definitions { root, vhost }),
            Ok(_) => Err(Refused::bad("definitions must be a JSON object")),
            Err(e) => Err(Refused::bad(format!("definitions are not JSON: {e}"))),
        }
    }
}
