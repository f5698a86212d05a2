//! Requests for logins, credentials, ACLs and quotas.

use super::super::text;
use bytes::Bytes;
use polylogue_kafka_codec::alter_client_quotas::{AlterClientQuotasRequest, EntityData, OpData, RequestEntryData};
use polylogue_kafka_codec::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, ScramCredentialDeletion, ScramCredentialUpsertion,
};
use polylogue_kafka_codec::create_acls::{AclCreation, CreateAclsRequest};
use polylogue_kafka_codec::delete_acls::{DeleteAclsFilter, DeleteAclsRequest};
use polylogue_kafka_codec::describe_acls::DescribeAclsRequest;
use polylogue_kafka_codec::describe_client_quotas::DescribeClientQuotasRequest;
use polylogue_kafka_codec::describe_user_scram_credentials::{DescribeUserScramCredentialsRequest, UserName};
use polylogue_kafka_codec::sasl_authenticate::SaslAuthenticateRequest;
use polylogue_kafka_codec::sasl_handshake::SaslHandshakeRequest;

pub fn sasl_handshake(_: i16) -> SaslHandshakeRequest {
    SaslHandshakeRequest { mechanism: text("SCRAM-SHA-256") }
}

pub fn sasl_authenticate(_: i16) -> SaslAuthenticateRequest {
    SaslAuthenticateRequest { auth_bytes: Bytes::from_static(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") }
}

pub fn describe_user_scram_credentials(_: i16) -> DescribeUserScramCredentialsRequest {
    DescribeUserScramCredentialsRequest { users: Some(vec![UserName { name: text("user") }]) }
}

/// One upsert and one deletion.
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

/// Read access to topics with the prefix `a`, for all users.
pub fn create_acls(_: i16) -> CreateAclsRequest {
    let creation = AclCreation {
        resource_type: 2,
        resource_name: text("a"),
        resource_pattern_type: 4,
        principal: text("User:*"),
        host: text("*"),
        operation: 3,
        permission_type: 3,
    };
    CreateAclsRequest { creations: vec![creation] }
}

/// All of them.
pub fn describe_acls(_: i16) -> DescribeAclsRequest {
    DescribeAclsRequest {
        resource_type_filter: 1,
        resource_name_filter: None,
        pattern_type_filter: 1,
        principal_filter: None,
        host_filter: None,
        operation: 1,
        permission_type: 1,
    }
}

/// The one that is created, and all that apply to `b`.
pub fn delete_acls(_: i16) -> DeleteAclsRequest {
    let exactly = DeleteAclsFilter {
        resource_type_filter: 2,
        resource_name_filter: Some(text("a")),
        pattern_type_filter: 4,
        principal_filter: Some(text("User:*")),
        host_filter: Some(text("*")),
        operation: 3,
        permission_type: 3,
    };
    let of_b = DeleteAclsFilter {
        resource_type_filter: 1,
        resource_name_filter: Some(text("b")),
        pattern_type_filter: 2,
        principal_filter: None,
        host_filter: None,
        operation: 1,
        permission_type: 1,
    };
    DeleteAclsRequest { filters: vec![exactly, of_b] }
}

/// All of them.
pub fn describe_client_quotas(_: i16) -> DescribeClientQuotasRequest {
    DescribeClientQuotasRequest { components: Vec::new(), strict: false }
}

/// Sets one for a user, and removes another.
pub fn alter_client_quotas(_: i16) -> AlterClientQuotasRequest {
    let entity = EntityData { entity_type: text("user"), entity_name: Some(text("user")) };
    let set = OpData { key: text("producer_byte_rate"), value: 1_024.0, remove: false };
    let removed = OpData { key: text("consumer_byte_rate"), value: 0.0, remove: true };
    AlterClientQuotasRequest {
        entries: vec![RequestEntryData { entity: vec![entity], ops: vec![set, removed] }],
        validate_only: false,
    }
}
