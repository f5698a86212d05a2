//! `words`: reports words and phrases that leave a reader of comments, messages and docs guessing who or what is meant.

use crate::{Outcome, root};
use std::error::Error;
use std::fs;
use std::process::{Command, ExitCode};

/// Words that hide a name, compared without case and as whole words. An underscore belongs to a word.
const WORDS: &[&str] = &["somebody", "nobody", "whoever", "told"];

/// Phrases with a term of the field in their place, compared without case: phrase, what to write.
const PHRASES: &[(&str, &str)] = &[
    ("dearest first", "in order of preference, or: by cost, highest first"),
    ("is to himself", "exclusive"),
    ("has it to himself", "exclusive"),
    ("tells how it went", "sends the outcome to the waiter"),
    ("or no longer", "raised or cleared, or the two states by name"),
    ("what was proposed is void", "uncommitted proposals are dropped"),
    ("call it without holding", "must not be called with a lock held"),
];

/// Endings of the files that are read; a Makefile is read too.
const ENDINGS: &[&str] = &[".rs", ".md", ".py", ".js", ".ts", ".java", ".go", ".sh", ".toml", ".html"];

/// A file in which a word or phrase stays.
struct Exception {
    /// Path from the root of the checkout.
    file: &'static str,
    /// The word or phrase; none for all of them.
    word: Option<&'static str>,
    /// Why it stays.
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] =
    &[Exception { file: "xtask/src/words.rs", word: None, reason: "the lint's own lists and test" }];

/// One word or phrase found in a text.
#[derive(PartialEq, Eq, Debug)]
struct Finding {
    /// From 1 on.
    line: usize,
    word: &'static str,
    /// What to write for a phrase.
    instead: Option<&'static str>,
}

/// Checks every file that git has. Fails when one has a finding that is no exception.
pub(crate) fn run() -> Outcome {
    let mut found = 0;
    for file in files()? {
        let bytes = match fs::read(root().join(&file)) {
            Ok(bytes) => bytes,
            // Removed in the work tree and still in git's index.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("{file}: {error}").into()),
        };
        for finding in findings(&String::from_utf8_lossy(&bytes)) {
            if excused(&file, finding.word) {
                continue;
            }
            found += 1;
            let instead = finding.instead.map_or_else(String::new, |instead| format!(" (write: {instead})"));
            println!("{file}:{}: \"{}\"{instead}", finding.line, finding.word);
        }
    }
    if found == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "xtask words: {found} found. Name the client, thread, queue or user instead (CONTRIBUTING.md, \"Words\")."
    );
    for Exception { file, reason, .. } in EXCEPTIONS {
        eprintln!("  not checked: {file}: {reason}");
    }
    Ok(ExitCode::FAILURE)
}

/// Paths of the files to read, from the root of the checkout.
fn files() -> Result<Vec<String>, Box<dyn Error>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output()?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let names = String::from_utf8(output.stdout)?;
    Ok(names.split('\0').filter(|name| is_read(name)).map(str::to_owned).collect())
}

fn is_read(file: &str) -> bool {
    file.rsplit('/').next() == Some("Makefile") || ENDINGS.iter().any(|ending| file.ends_with(ending))
}

fn excused(file: &str, word: &str) -> bool {
    EXCEPTIONS.iter().any(|e| e.file == file && e.word.is_none_or(|excused| excused == word))
}

/// The words and phrases of a text, by line. A phrase that is broken over two lines is not found.
fn findings(text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line_lower = line.to_lowercase();
        let words = WORDS.iter().map(|word| (*word, None));
        let phrases = PHRASES.iter().map(|(phrase, instead)| (*phrase, Some(*instead)));
        for (word, instead) in words.chain(phrases) {
            if has(&line_lower, word) {
                found.push(Finding { line: at + 1, word, instead });
            }
        }
    }
    found
}

/// Whether `line` has `word` with no letter, digit or underscore on either side.
fn has(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        !before.is_some_and(joins) && !after.is_some_and(joins)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(usize, &'static str)> {
        findings(text).into_iter().map(|f| (f.line, f.word)).collect()
    }

    #[test]
    fn vague_words_and_phrases_are_found() {
        let text = "/// Somebody has it to himself.\n/// The waiter.\n/// Whoever waits is TOLD.\n/// Mechanisms, dearest first.";
        let expected = [(1, "somebody"), (1, "has it to himself"), (3, "whoever"), (3, "told"), (4, "dearest first")];
        assert_eq!(words(text), expected);
    }

    #[test]
    fn parts_of_words_are_not_found() {
        assert_eq!(words("untold kept_for_nobody retold nobodys"), []);
        assert_eq!(words("`nobody`, told."), [(1, "nobody"), (1, "told")]);
    }

    #[test]
    fn exceptions_are_of_one_file() {
        assert!(excused("xtask/src/words.rs", "told"));
        assert!(!excused("xtask/src/main.rs", "told"));
    }

    #[test]
    fn endings_choose_the_files() {
        assert!(is_read("Makefile") && is_read("crates/a/src/lib.rs") && is_read("docs/a.md"));
        assert!(!is_read("docs/console/queue.png") && !is_read("MakefileX") && !is_read("Cargo.lock"));
    }
}
