//! Definitions: the JSON of RabbitMQ's `/api/definitions`, all of it or that of one virtual host.

use crate::error::Refused;
use bytestring::ByteString;
use serde_json::{Map, Value};

/// The most JSON that is taken. One record holds what comes of it. Bytes.
pub const DEFINITIONS_BYTES_MAX: usize = 32 << 20;

/// Definitions that were read and not yet judged.
#[derive(Clone, PartialEq, Debug)]
pub struct Definitions {
    pub(crate) root: Map<String, Value>,
    /// All of it belongs into this virtual host, whatever it says.
    pub(crate) vhost: Option<ByteString>,
}

impl Definitions {
    /// Reads definitions; those of one virtual host go where `vhost` says.
    ///
    /// # Errors
    /// When it is too long, or no JSON object.
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
