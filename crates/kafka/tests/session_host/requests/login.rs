//! Who a client is, and whose passwords there are.

use super::super::text;
use bytes::Bytes;
use polylogue_kafka::codec::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, ScramCredentialDeletion, ScramCredentialUpsertion,
};
use polylogue_kafka::codec::describe_user_scram_credentials::{DescribeUserScramCredentialsRequest, UserName};
use polylogue_kafka::codec::sasl_authenticate::SaslAuthenticateRequest;
use polylogue_kafka::codec::sasl_handshake::SaslHandshakeRequest;

pub fn sasl_handshake(_: i16) -> SaslHandshakeRequest {
    SaslHandshakeRequest { mechanism: text("SCRAM-SHA-256") }
}

pub fn sasl_authenticate(_: i16) -> SaslAuthenticateRequest {
    SaslAuthenticateRequest { auth_bytes: Bytes::from_static(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") }
}

pub fn describe_user_scram_credentials(_: i16) -> DescribeUserScramCredentialsRequest {
    DescribeUserScramCredentialsRequest { users: Some(vec![UserName { name: text("user") }]) }
}

/// One is set and another taken away.
pub fn alter_user_scram_credentials(_: i16) -> AlterUserScramCredentialsRequest {
    AlterUserScramCredentialsRequest {
        deletions: vec![ScramCredentialDeletion { name: text("old"), mechanism: 2 }],
        upsertions: vec![ScramCredentialUpsertion {
            name: text("new"),
            mechanism: 1,
            iterations: 4_096,
            salt: Bytes::from_static(b"saltsalt"),
            salted_password: Bytes::from_static(&[7; 32]),
        }],
    }
}
