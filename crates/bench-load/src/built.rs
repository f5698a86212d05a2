//! What programs a line was measured with. A commit does not tell: it is that of the checkout while the bench runs, and what runs was built
//! before it.

use crate::peers::about::about;
use crate::target::{Programs, Target};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};

const READ_BYTES: usize = 1 << 20;
/// What stands for a program that is not there.
const NONE: &str = "none";

/// Programs by what is in them; those of a line and of now are the same when all of it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Built {
    /// This very bench.
    pub bench: String,
    /// polylogue.
    pub polylogue: String,
    /// The workers in other languages, without their jars: their poms are in the bench's checkout.
    pub workers: String,
    /// The version of the peer; empty of what has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub peer: String,
}

impl Built {
    /// What is there now; of no peer yet.
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

    /// The same with the peer that a target is.
    #[must_use]
    pub fn with_peer(&self, target: &Target, programs: &Programs) -> Built {
        Built { peer: about(target, programs).version.unwrap_or_default(), ..self.clone() }
    }
}

/// The compiled Java workers, in their order.
fn classes(java: &Path) -> Vec<PathBuf> {
    let list = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        list(java.to_owned()).flat_map(|client| list(client.join("classes")).collect::<Vec<_>>()).collect();
    files.sort();
    files
}

/// What is in these files, as one number; those that are not there are left out.
fn sum(files: &[PathBuf]) -> String {
    let (mut hasher, mut found) = (DefaultHasher::new(), false);
    let mut read = vec![0; READ_BYTES];
    for file in files {
        let Ok(mut open) = File::open(file) else { continue };
        found = true;
        // Where one file ends and the next begins is a part of it.
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
