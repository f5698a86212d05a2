//! ApiVersions: what is served here, in which versions (KIP-35, KIP-511, KIP-584).

use super::table::supported_apis;
use super::work::{Step, Work};
use super::{ClientSoftware, SupportedApi};
use crate::codec::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
use crate::codec::{ApiKey, DecodeError, ErrorCode, Message, Reader, StrBytes};

/// The level of `metadata.version` that Kafka 4.3 finalizes (`MetadataVersion.IBP_4_3_IV0`), and the lowest it knows
/// (`IBP_3_3_IV3`). It means nothing to clients, but tools ask for it. The other features switch clients to protocols
/// that are not served yet: a client that is not told of `transaction.version`, `group.version` or `share.version`
/// stays with the old ones.
const METADATA_VERSION: (&str, i16, i16) = ("metadata.version", 7, 30);

/// What is kept of the name of a client's library, and of its version, for as long as its connection lasts. Bytes.
const SOFTWARE_BYTES_MAX: usize = 64;

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    if !supported_apis().any(|api| api.key == ApiKey::ApiVersions && api.served.contains(&version)) {
        // KIP-511: the body is not read, and the answer is of version 0, with the one row that says what to ask for.
        let response = ApiVersionsResponse {
            error_code: ErrorCode::UnsupportedVersion.code(),
            api_keys: supported_apis().filter(|api| api.key == ApiKey::ApiVersions).map(row).collect(),
            ..ApiVersionsResponse::default()
        };
        return Ok(work.answer_at(&response, 0));
    }
    let request = ApiVersionsRequest::decode(body, version)?;
    if version >= 3 {
        let (name, software_version) = (&*request.client_software_name, &*request.client_software_version);
        if !is_software_name(name) || !is_software_name(software_version) {
            let response =
                ApiVersionsResponse { error_code: ErrorCode::InvalidRequest.code(), ..ApiVersionsResponse::default() };
            return Ok(work.answer(&response));
        }
        let kept = |text: &str| text.chars().take(SOFTWARE_BYTES_MAX).collect();
        work.peer.software = Some(Box::new(ClientSoftware { name: kept(name), version: kept(software_version) }));
    }
    let (name, min, max) = METADATA_VERSION;
    let features = version >= 3;
    let response = ApiVersionsResponse {
        api_keys: supported_apis().map(row).collect(),
        supported_features: features
            .then(|| SupportedFeatureKey { name: StrBytes::from_static(name), min_version: min, max_version: max })
            .into_iter()
            .collect(),
        finalized_features_epoch: if features { 0 } else { -1 },
        finalized_features: features
            .then(|| FinalizedFeatureKey {
                name: StrBytes::from_static(name),
                max_version_level: max,
                min_version_level: max,
            })
            .into_iter()
            .collect(),
        ..ApiVersionsResponse::default()
    };
    Ok(work.answer(&response))
}

fn row(api: SupportedApi) -> ApiVersion {
    ApiVersion { api_key: api.key.code(), min_version: *api.advertised.start(), max_version: *api.advertised.end() }
}

/// `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?`, as Kafka demands of name and version.
fn is_software_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    match text.as_bytes() {
        [] => false,
        [only] => only.is_ascii_alphanumeric(),
        [first, middle @ .., last] => {
            first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && middle.iter().all(|b| inner(*b))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names() {
        for good in ["a", "apache-kafka-java", "4.3.1", "franz-go", "a.b-c"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-", "-a", "a-", ".a", "a b", "a_b", "ä", "a/1"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }
}
