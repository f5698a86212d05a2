//! The programs that a line was measured with. The commit alone does not identify them: it is that of the checkout during the run, and programs may
//! have been built before it.

use crate::peers::about::about;
use crate::target::{Programs, Target};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};

const READ_BYTES: usize = 1 << 20;
/// Stands for a missing program.
const NONE: &str = "none";

/// Digests of the programs; two builds are equal if all digests are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Built {
    /// The bench itself.
    pub bench: String,
    /// polylogue.
    pub polylogue: String,
    /// The workers in other languages, without their jars, which the bench's pom files determine.
    pub workers: String,
    /// The version of the peer; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub peer: String,
}

impl Built {
    /// Returns the current programs, without a peer.
    #[must_use]
    pub fn now(programs: &Programs) -> Built {
        let mut workers = classes(&programs.java);
        workers.push(programs.librdkafka.clone());
        Built {
            bench: sum(std::slice::from_ref(&programs.bench)),
            polylogue: sum(std::slice::from_ref(&programs.polylogue)),
            workers: sum(&workers),
            peer: String::new(),
        }
    }

    /// Adds the peer of a target.
    #[must_use]
    pub fn with_peer(&self, target: &Target, programs: &Programs) -> Built {
        Built { peer: about(target, programs).version.unwrap_or_default(), ..self.clone() }
    }
}

/// Returns the compiled classes of the Java workers, in order.
fn classes(java: &Path) -> Vec<PathBuf> {
    let list = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        list(java.to_owned()).flat_map(|client| list(client.join("classes")).collect::<Vec<_>>()).collect();
    files.sort();
    files
}

/// Returns a digest of files; missing ones are left out.
fn sum(files: &[PathBuf]) -> String {
    let (mut hasher, mut found) = (DefaultHasher::new(), false);
    let mut read = vec![0; READ_BYTES];
    for file in files {
        let Ok(mut open) = File::open(file) else { continue };
        found = true;
        // Lengths are included, so that file boundaries matter.
        let mut length = 0_u64;
        while let Ok(count @ 1..) = open.read(&mut read) {
            hasher.write(read.get(..count).unwrap_or_default());
            length += count as u64;
        }
        hasher.write_u64(length);
    }
    if found { format!("{:016x}", hasher.finish()) } else { NONE.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Folder;

    #[test]
    fn another_program_is_another_build() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-built-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        let java = folder.path().join("java");
        let programs = Programs { polylogue: folder.path().join("polylogue"), java, ..Programs::nowhere() };
        let without = Built::now(&programs);
        assert_eq!((without.polylogue.as_str(), without.workers.as_str()), (NONE, NONE));
        write("polylogue", "one");
        let one = Built::now(&programs);
        write("polylogue", "two");
        let two = Built::now(&programs);
        assert!(one != without && two != one && two == Built::now(&programs));
        write("java/kafka/classes/Worker.class", "a class");
        let with_class = Built::now(&programs);
        assert_eq!((&with_class.polylogue, with_class.workers != two.workers), (&two.polylogue, true));
        assert_ne!(one.with_peer(&Target::Kafka, &programs), one.with_peer(&Target::Pulsar, &programs));
    }
}
