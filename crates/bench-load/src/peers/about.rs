//! Descriptions of targets: version, build date, heap, durability, and all settings that are not defaults.

use super::{Setting, kafka, pulsar, rabbitmq, rocketmq, tubemq};
use crate::target::{Programs, Target};
use serde::Serialize;
use std::process::Command;

/// The description of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct About {
    /// Name of the target.
    pub target: String,
    /// The system, such as "Apache Kafka".
    pub system: &'static str,
    /// Its version. `None` if it is not installed, or is built from this checkout.
    pub version: Option<String>,
    /// Build date of that version.
    pub released: Option<String>,
    /// JVM options for heap and direct memory. `None` without a JVM.
    pub heap: Option<String>,
    /// When the broker acknowledges a message, such as "flushed".
    pub durability: &'static str,
    /// All settings that differ from the defaults, except ports and directories.
    pub changed: Vec<Changed>,
    /// Sources of a tuned profile's settings.
    pub sources: Vec<&'static str>,
}

/// A setting that is not its default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// `name=value`.
    pub setting: String,
    /// Reason, or source of the recommendation.
    pub why: &'static str,
}

impl From<Setting> for Changed {
    fn from(setting: Setting) -> Changed {
        Changed { setting: format!("{}={}", setting.name, setting.value), why: setting.why }
    }
}

/// Reason for heaps smaller than in a vendor's script.
const HEAP_SHARED: &str =
    "smaller than in the vendor's script, which assumes a dedicated machine; here broker and client share one";

/// Describes a target.
#[must_use]
pub fn about(target: &Target, programs: &Programs) -> About {
    let (system, version, released) = match target {
        Target::PolylogueSync | Target::PolylogueAsync => ("polylogue", None, None),
        Target::Kafka | Target::KafkaFsync | Target::KafkaTuned => {
            ("Apache Kafka", Some(kafka::VERSION.to_owned()), Some(kafka::RELEASED.to_owned()))
        }
        Target::Rabbitmq | Target::RabbitmqTuned => {
            let unpacked = &programs.rabbitmq;
            let version = rabbitmq::Rabbitmq::version(unpacked).ok();
            ("RabbitMQ", version, rabbitmq::Rabbitmq::released(unpacked).ok())
        }
        Target::Pulsar | Target::PulsarNosync | Target::PulsarTuned => {
            ("Apache Pulsar, standalone", Some(pulsar::VERSION.to_owned()), Some(pulsar::RELEASED.to_owned()))
        }
        Target::Rocketmq | Target::RocketmqSync | Target::RocketmqTuned => {
            ("Apache RocketMQ", Some(rocketmq::VERSION.to_owned()), Some(rocketmq::RELEASED.to_owned()))
        }
        Target::Tubemq | Target::TubemqTuned => {
            let version = format!("{} (core and client {})", tubemq::VERSION, tubemq::CORE_VERSION);
            ("Apache InLong TubeMQ", Some(version), Some(tubemq::RELEASED.to_owned()))
        }
        Target::Null => ("the null broker", None, None),
        Target::At(_) => ("a running broker", None, None),
    };
    let (heap, changed, sources) = profile(target, programs);
    let durability = target.durability();
    About { target: target.name(), system, version, released, heap, durability, changed, sources }
}

fn profile(target: &Target, programs: &Programs) -> (Option<String>, Vec<Changed>, Vec<&'static str>) {
    let all = |settings: Vec<Setting>| settings.into_iter().map(Changed::from).collect::<Vec<_>>();
    let heap = |options: &[&str]| {
        let kept = ["-Xms", "-Xmx", "-Xmn", "-XX:MaxDirect"];
        let stated = options.iter().filter(|option| kept.iter().any(|start| option.starts_with(start)));
        Some(stated.copied().collect::<Vec<_>>().join(" "))
    };
    let smaller = |options: &[&str]| Changed { setting: heap(options).unwrap_or_default(), why: HEAP_SHARED };
    let tuned = target.is_tuned();
    let sources = |sources: &[&'static str]| if tuned { sources.to_vec() } else { Vec::new() };
    match target {
        Target::Kafka | Target::KafkaFsync | Target::KafkaTuned => {
            let profile = target.kafka();
            let mut changed = all(kafka::settings(profile));
            if tuned {
                let jvm = kafka::jvm(profile).join(" ");
                changed.push(Changed { setting: jvm, why: kafka::SOURCES[0] });
            }
            (heap(kafka::jvm(profile)), changed, sources(&kafka::SOURCES))
        }
        Target::Rabbitmq | Target::RabbitmqTuned => {
            let profile = target.rabbitmq();
            let version = rabbitmq::Rabbitmq::version(&programs.rabbitmq).unwrap_or_default();
            let mut changed = all(rabbitmq::settings(profile, &version));
            let plugin = "enabled_plugins=rabbitmq_stream".to_owned();
            changed.push(Changed { setting: plugin, why: "streams are measured too" });
            if tuned {
                changed.push(Changed { setting: rabbitmq::ERLANG_TUNED.to_owned(), why: rabbitmq::SOURCES[2] });
            }
            (None, changed, sources(&rabbitmq::SOURCES))
        }
        Target::Pulsar | Target::PulsarNosync | Target::PulsarTuned => {
            let profile = target.pulsar();
            let changed = all([pulsar::settings(profile), vec![pulsar::left_out()]].concat());
            (heap(&pulsar::memory(profile)), changed, sources(&pulsar::SOURCES))
        }
        Target::Rocketmq | Target::RocketmqSync | Target::RocketmqTuned => {
            let profile = target.rocketmq();
            let mut changed = all(rocketmq::settings(profile));
            changed.push(smaller(&rocketmq::memory(profile)));
            (heap(&rocketmq::memory(profile)), changed, sources(&rocketmq::SOURCES))
        }
        Target::Tubemq | Target::TubemqTuned => {
            let profile = target.tubemq();
            let broker = [tubemq::settings(profile), tubemq::broker_settings(profile)].concat();
            let mut changed =
                all([broker, tubemq::master_settings(), tubemq::group_settings(), vec![tubemq::step_delays_removed()]]
                    .concat());
            changed.push(smaller(&tubemq::memory(profile)));
            (heap(&tubemq::memory(profile)), changed, sources(&tubemq::SOURCES))
        }
        Target::PolylogueSync | Target::PolylogueAsync | Target::Null | Target::At(_) => (None, Vec::new(), Vec::new()),
    }
}

/// Returns the maximum heap of a target, as configured; 0 without a JVM.
#[must_use]
pub fn heap_bytes(target: &Target) -> u64 {
    let options: Vec<&str> = match target {
        Target::Kafka | Target::KafkaFsync | Target::KafkaTuned => kafka::jvm(target.kafka()).to_vec(),
        Target::Pulsar | Target::PulsarNosync | Target::PulsarTuned => pulsar::memory(target.pulsar()).to_vec(),
        Target::Rocketmq | Target::RocketmqSync | Target::RocketmqTuned => rocketmq::memory(target.rocketmq()).to_vec(),
        Target::Tubemq | Target::TubemqTuned => tubemq::memory(target.tubemq()).to_vec(),
        _ => Vec::new(),
    };
    let gib = options.iter().find_map(|option| option.strip_prefix("-Xmx")?.strip_suffix('g')?.parse::<u64>().ok());
    gib.unwrap_or(0) << 30
}

/// Returns the version of the installed Java.
#[must_use]
pub fn java_version() -> Option<String> {
    let out = Command::new("java").arg("-version").output().ok()?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    text.lines().find(|line| line.contains("Server VM") || line.contains("build")).map(|line| line.trim().to_owned())
}

/// Formats a description.
#[must_use]
pub fn text(about: &About) -> String {
    let known = |value: &Option<String>, without: &str| value.clone().unwrap_or_else(|| without.to_owned());
    let mut lines = vec![format!("{}: {} {}", about.target, about.system, known(&about.version, "")).trim().to_owned()];
    if let Some(released) = &about.released {
        lines.push(format!("  built       {released}"));
    }
    if let Some(heap) = &about.heap {
        lines.push(format!("  heap        {heap}"));
    }
    lines.push(format!("  durability  {}", about.durability));
    lines.extend(about.changed.iter().map(|changed| format!("  set         {}  ({})", changed.setting, changed.why)));
    lines.extend(about.sources.iter().map(|source| format!("  advice      {source}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tuned_target_names_its_sources() {
        for target in Target::known() {
            let about = about(&target, &Programs::nowhere());
            assert_eq!(about.target.ends_with("-tuned"), !about.sources.is_empty(), "{about:?}");
            assert!(about.changed.iter().all(|changed| !changed.why.is_empty()));
            assert!(!about.durability.is_empty());
        }
    }

    #[test]
    fn a_description_contains_version_heap_settings_and_sources() {
        let stated = text(&about(&Target::PulsarTuned, &Programs::nowhere()));
        for part in [
            "pulsar-tuned: Apache Pulsar",
            "built       2025",
            "-Xmx2g",
            "journalSyncData=true",
            "advice",
            "PerfDisable",
        ] {
            assert!(stated.contains(part), "{part}: {stated}");
        }
    }
}
