//! Generates docs/config.md from the table.

use super::env::{CONFIG_VARIABLE, variable};
use super::resolve::{Resolved, Setting};
use super::table::Section;
use polylogue_kafka::config::{Effect, TOPIC_CONFIGS};
use std::fmt::Write as _;

/// Returns the reference of all options and topic configs, as Markdown.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
         Written by `polylogue config --markdown`; a test holds this file against the code.\n\n\
         An option is looked for, each place going before the one in front of it, in\n\n\
         1. its default,\n\
         2. the file of `--config FILE` (or of the variable `",
    );
    out.push_str(CONFIG_VARIABLE);
    out.push_str(
        "`),\n\
         3. its variable,\n\
         4. the command line: `--set SECTION.NAME=VALUE`, or `--data`, `--listen`, `--advertise`.\n\n\
         `POLYLOGUE_SERVER` and `POLYLOGUE_BOOTSTRAP` tell the other commands where the http and the kafka listener are, `POLYLOGUE_PROFILE` which profile they use (command-line.md).\n\n\
         A name that is not known is an error, wherever it stands. `polylogue config` shows which values hold and where\n\
         they come from. Sizes take `KiB`, `MiB`, `GiB`, `TiB`, times `ms`, `s`, `m`, `h`, `d`.\n\n\
         ```toml\n\
         [server]\n\
         data = \"/var/lib/polylogue\"\n\
         listen = [\"kafka=0.0.0.0:9092\", \"http=127.0.0.1:9600\"]\n\
         advertise = [\"kafka=broker.example.org:9092\"]\n\n\
         [log]\n\
         tail_cache_bytes = \"128MiB\"\n\n\
         [kafka]\n\
         num.partitions = 3\n\
         log.retention.hours = 72\n\
         ```\n",
    );
    let settings = Resolved::default().settings();
    for section in Section::ALL {
        section_table(&mut out, section, settings.iter().filter(|s| s.section == section));
    }
    topic_table(&mut out);
    out
}

fn section_table<'a>(out: &mut String, section: Section, settings: impl Iterator<Item = &'a Setting>) {
    // Writing to a String cannot fail, here and below.
    let _ = write!(out, "\n## [{}]\n\n", section.name());
    if section == Section::Kafka {
        out.push_str(
            "Kafka's broker settings that have a meaning here keep their names and types. Other names that Kafka 4.3\n\
             knows are taken with a warning and have no effect; all others are errors.\n\n",
        );
    }
    out.push_str("| name | default | type | meaning | variable |\n| --- | --- | --- | --- | --- |\n");
    for s in settings {
        let default = if s.default.is_empty() { "none".to_owned() } else { format!("`{}`", s.default) };
        let variable = variable(section, &s.name);
        let _ = writeln!(out, "| `{}` | {default} | {} | {} | `{variable}` |", s.name, s.kind, s.doc);
    }
}

fn topic_table(out: &mut String) {
    out.push_str(
        "\n## Topic configs\n\n\
         Set when a topic is created, by a Kafka client or with `polylogue topic create NAME --config KEY=VALUE`. Those\n\
         without effect are checked, kept and shown, so that tools which set them work.\n\n\
         | name | default | type | effect | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for def in TOPIC_CONFIGS {
        let default = if def.default.is_empty() { "empty".to_owned() } else { format!("`{}`", def.default) };
        let (effect, doc) = match def.effect {
            Effect::Full => ("yes", def.doc),
            Effect::None => ("none", def.doc.strip_prefix("Without effect: ").unwrap_or(def.doc)),
        };
        let kind = def.kind.name().to_ascii_lowercase();
        let _ = writeln!(out, "| `{}` | {default} | {kind} | {effect} | {doc} |", def.name);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_committed_reference_is_this_one() {
        let committed = include_str!("../../../docs/config.md");
        assert!(
            committed == super::markdown(),
            "docs/config.md is not up to date: write it again with `polylogue config --markdown > docs/config.md`"
        );
    }
}
