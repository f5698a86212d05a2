//! Authorized operations as bits of Kafka's `AclOperation` (KIP-430): without access control all that apply to the resource type
//! (`AclEntry.supportedOperations`).

/// All operations on a topic.
pub(super) const TOPIC_OPERATIONS: i32 =
    bits(&[READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS]);
/// All operations on the cluster.
pub(super) const CLUSTER_OPERATIONS: i32 =
    bits(&[CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE]);
/// All operations on a group.
pub(super) const GROUP_OPERATIONS: i32 = bits(&[READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS]);
/// Kafka's value for not requested.
pub(super) const NOT_ASKED: i32 = i32::MIN;

const READ: u32 = 3;
const WRITE: u32 = 4;
const CREATE: u32 = 5;
const DELETE: u32 = 6;
const ALTER: u32 = 7;
const DESCRIBE: u32 = 8;
const CLUSTER_ACTION: u32 = 9;
const DESCRIBE_CONFIGS: u32 = 10;
const ALTER_CONFIGS: u32 = 11;
const IDEMPOTENT_WRITE: u32 = 12;

const fn bits(operations: &[u32]) -> i32 {
    let mut rest = operations;
    let mut bits = 0;
    while let [operation, more @ ..] = rest {
        bits |= 1 << *operation;
        rest = more;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that a Kafka broker without an authorizer returns.
    #[test]
    fn operations() {
        assert_eq!(TOPIC_OPERATIONS, 3_576);
        assert_eq!(CLUSTER_OPERATIONS, 8_096);
        assert_eq!(GROUP_OPERATIONS, 3_400);
    }
}
