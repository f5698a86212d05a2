//! UpdateFeatures (KIP-584, KIP-778): follows Kafka's controller (`FeatureControlManager.updateFeatures`).
//! Levels are fixed here: a valid request names the current level and changes nothing. Kafka, too, refuses every downgrade
//! of `metadata.version` from 4.3.

use super::errors::with_message;
use super::features::{FEATURES, FEATURES_OFF, METADATA_VERSION};
use super::topics::node_id;
use super::work::{Step, Work};
use polylogue_auth::Operation;
use polylogue_kafka_codec::update_features::{UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader};
use std::collections::BTreeMap;

/// The last version with a row for each feature.
const ROWS_TO: i16 = 1;

/// Upgrade types (`FeatureUpdate.UpgradeType`).
const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const UNSAFE_DOWNGRADE: i8 = 3;

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = UpdateFeaturesRequest::decode(body, version)?;
    if !work.may_cluster(Operation::Alter) {
        let (error, text) = with_message(ErrorCode::ClusterAuthorizationFailed);
        return Ok(work.answer(&UpdateFeaturesResponse {
            error_code: error.code(),
            error_message: Some(text),
            ..UpdateFeaturesResponse::default()
        }));
    }
    let node = node_id(&work.catalog.cluster());
    // As in Kafka, the last one of a repeated feature counts.
    let updates: BTreeMap<&str, (i16, i8)> =
        request.feature_updates.iter().map(|u| (&*u.feature, (u.max_version_level, u.upgrade_type))).collect();
    let wrong = updates.iter().find_map(|(name, (level, kind))| wrong(name, *level, *kind, node));
    let response = match wrong {
        Some(what) => UpdateFeaturesResponse {
            error_code: ErrorCode::InvalidUpdateVersion.code(),
            error_message: Some(
                format!("The update failed for all features since the following feature had an error: {what}").into(),
            ),
            ..UpdateFeaturesResponse::default()
        },
        None => {
            let row = |update: polylogue_kafka_codec::update_features::FeatureUpdateKey| UpdatableFeatureResult {
                feature: update.feature,
                error_message: None,
                ..UpdatableFeatureResult::default()
            };
            let rows = request.feature_updates.into_iter().map(row);
            let results = if version <= ROWS_TO { rows.collect() } else { Vec::new() };
            UpdateFeaturesResponse { error_message: None, results, ..UpdateFeaturesResponse::default() }
        }
    };
    Ok(work.answer(&response))
}

/// Returns why the feature cannot have the level, in Kafka's words. `None` if it has it.
fn wrong(name: &str, level: i16, kind: i8, node: i32) -> Option<String> {
    let invalid = |why: &str| Some(format!("Invalid update version {level} for feature {name}. {why}"));
    if !(UPGRADE..=UNSAFE_DOWNGRADE).contains(&kind) {
        return invalid("The controller does not support the given upgrade type.");
    }
    if level < 0 {
        return invalid("A feature version cannot be less than 0.");
    }
    let known = FEATURES.iter().find(|feature| feature.name == name);
    let (min, max, current) = known.map_or((0, 0, 0), |feature| (feature.min, feature.max, feature.finalized));
    if !(min..=max).contains(&level) {
        return match max {
            0 => invalid(&format!("Local controller {node} does not support this feature.")),
            _ => invalid(&format!("Local controller {node} only supports versions {min}-{max}")),
        };
    }
    if level < current && kind == UPGRADE {
        return invalid(
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.",
        );
    }
    if level > current && kind != UPGRADE {
        return invalid("Can't downgrade to a newer version.");
    }
    if level != current && name != METADATA_VERSION {
        return invalid(&format!("This broker serves level {current} of this feature only."));
    }
    if level != current {
        let why = match kind {
            SAFE_DOWNGRADE => {
                "Refusing to perform the requested downgrade because it might delete metadata information."
            }
            _ => "Unsafe metadata downgrade is not supported in this version.",
        };
        return Some(format!("Unsupported {METADATA_VERSION} downgrade from {current} to {level}. {why}"));
    }
    if known.is_none() && !FEATURES_OFF.contains(&name) {
        return invalid(&format!("Feature {name} not found."));
    }
    None
}
