//! Getting the descriptors out of the official client's jar.

use super::KAFKA_CLIENTS;
use super::descriptor::Descriptor;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All descriptors of the jar, by the name of their message.
pub(super) fn descriptors(root: &Path) -> Result<BTreeMap<String, Descriptor>, Box<dyn Error>> {
    let path = obtain(root)?;
    let mut archive = zip::ZipArchive::new(File::open(&path)?)?;
    let mut found = BTreeMap::new();
    for at in 0..archive.len() {
        let mut entry = archive.by_index(at)?;
        let name = entry.name()?.into_owned();
        if !name.starts_with("common/message/") || !name.ends_with(".json") {
            continue;
        }
        let mut text = String::new();
        entry.read_to_string(&mut text)?;
        let descriptor = Descriptor::parse(&text).map_err(|error| format!("{name}: {error}"))?;
        found.insert(descriptor.name.clone(), descriptor);
    }
    Ok(found)
}

/// The jar in build/jars, fetched by Maven where it is missing.
fn obtain(root: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let jar = root.join(format!("build/jars/kafka-clients-{KAFKA_CLIENTS}.jar"));
    if jar.is_file() {
        return Ok(jar);
    }
    let status = Command::new("mvn")
        .current_dir(root)
        .args(["-q", "dependency:copy", "-DoutputDirectory=build/jars"])
        .arg(format!("-Dartifact=org.apache.kafka:kafka-clients:{KAFKA_CLIENTS}"))
        .status()
        .map_err(|error| format!("build/jars has no kafka-clients-{KAFKA_CLIENTS}.jar, and mvn: {error}"))?;
    if !status.success() || !jar.is_file() {
        return Err(format!("mvn could not fetch kafka-clients {KAFKA_CLIENTS}").into());
    }
    Ok(jar)
}
