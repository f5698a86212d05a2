//! ApiVersions: the supported APIs and their versions (KIP-35, KIP-511, KIP-584).

use super::features::{self, FEATURES, Feature};
use super::table::supported_apis;
use super::work::{Step, Work};
use super::{ClientSoftware, SupportedApi};
use polylogue_kafka_codec::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
use polylogue_kafka_codec::{ApiKey, DecodeError, ErrorCode, Message, Reader, StrBytes};

/// The first version with features in the response, and with the client's software in the request.
const FEATURES_FROM: i16 = 3;

/// The first version in which the lowest level of a feature may be 0 (KAFKA-17011).
const FEATURES_FROM_0_FROM: i16 = 4;

/// Length to which the name and the version of a client's library are truncated. Bytes.
const SOFTWARE_BYTES_MAX: usize = 64;

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    if !supported_apis().any(|api| api.key == ApiKey::ApiVersions && api.served.contains(&version)) {
        // KIP-511: the body is not read, and the response has version 0, with the row that names the supported versions.
        let response = ApiVersionsResponse {
            error_code: ErrorCode::UnsupportedVersion.code(),
            api_keys: supported_apis().filter(|api| api.key == ApiKey::ApiVersions).map(row).collect(),
            ..ApiVersionsResponse::default()
        };
        return Ok(work.answer_at(&response, 0));
    }
    let request = ApiVersionsRequest::decode(body, version)?;
    if version >= FEATURES_FROM {
        let (name, software_version) = (&*request.client_software_name, &*request.client_software_version);
        if !is_software_name(name) || !is_software_name(software_version) {
            let response =
                ApiVersionsResponse { error_code: ErrorCode::InvalidRequest.code(), ..ApiVersionsResponse::default() };
            return Ok(work.answer(&response));
        }
        work.peer.software = Some(Box::new(ClientSoftware { name: kept(name), version: kept(software_version) }));
    }
    // Older versions have no field for them.
    let features: &[Feature] = if version >= FEATURES_FROM { &FEATURES } else { &[] };
    let supported = |feature: &Feature| SupportedFeatureKey {
        name: StrBytes::from_static(feature.name),
        min_version: feature.min,
        max_version: feature.max,
    };
    let finalized = |feature: &Feature| FinalizedFeatureKey {
        name: StrBytes::from_static(feature.name),
        max_version_level: feature.finalized,
        min_version_level: feature.finalized,
    };
    let response = ApiVersionsResponse {
        api_keys: supported_apis().map(row).collect(),
        supported_features: features
            .iter()
            .filter(|f| f.min > 0 || version >= FEATURES_FROM_0_FROM)
            .map(supported)
            .collect(),
        finalized_features_epoch: if features.is_empty() { -1 } else { features::EPOCH },
        finalized_features: features.iter().map(finalized).collect(),
        ..ApiVersionsResponse::default()
    };
    Ok(work.answer(&response))
}

fn row(api: SupportedApi) -> ApiVersion {
    ApiVersion { api_key: api.key.code(), min_version: *api.advertised.start(), max_version: *api.advertised.end() }
}

/// Truncates a name that a client reports about itself: it is stored for the life of the connection.
pub(super) fn kept(text: &str) -> String {
    text.chars().take(SOFTWARE_BYTES_MAX).collect()
}

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
