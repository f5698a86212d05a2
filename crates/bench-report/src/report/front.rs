//! The committed report: a first page, one page per scenario family, and four charts.
//!
//! All files are a function of the result lines, so that [`check`] can compare the committed files with them.

use super::book::{matrix, plain};
use super::charts::bars::{Bar, Bars, Chart, draw};
use super::figures::figure;
use super::judge::{RUN_ONCE, Standing};
use super::model::{Cell, Mark, Scenario, scenarios};
use super::palette::{System, looks};
use super::scenario::Input;
use super::score::{self, count, entries, failed};
use super::stats::{count as grouped, median, number};
use super::words::{KEY, sentence};
use crate::error::{BenchError, Context, Result};
use std::fmt::Write;
use std::path::Path;

/// First line of the table that the report writes into README.md.
const BEGIN: &str = "<!-- figures: begin; written by polylogue-bench report --readme -->";
/// Last line of it.
const END: &str = "<!-- figures: end -->";

const RATE: &str = "produce_per_s";
const P99: &str = "publish_p99_ms";
const CPU: &str = "produce_cpu_s_per_million";
const MEMORY: &str = "anonymous_mib";

/// Cells of the headline table: name, and the load in a few words.
pub const HEADLINE: &[(&str, &str)] = &[
    ("C2/kib=1/pipelined/client=java", "1 KiB at unlimited rate, each system's Java client"),
    ("A4/rate=25000/durability=async/client=raw", "1 KiB at 25,000/s, the same raw Kafka client"),
    ("A4/rate=7500/queue=classic/client=amqp", "1 KiB at 7,500/s through queues, the same AMQP client"),
    ("A4/rate=1000/durability=sync/client=java", "1 KiB at 1,000/s, flushed, each system's Java client"),
    ("E5/rate=5000/linger=0/client=java", "5,000/s without linger, each system's Java client"),
];

/// Charts of the first page: file, title, unit, figure, indexes into [`HEADLINE`].
pub const CHARTS: &[(&str, &str, &str, &str, &[usize])] = &[
    ("rate.svg", "Throughput, writing", "messages a second", RATE, &[0]),
    ("p99.svg", "Publish p99 at a given rate", "ms", P99, &[1, 2, 3]),
    ("cpu.svg", "Broker CPU", "s per million messages", CPU, &[0, 1, 2]),
    ("memory.svg", "Anonymous memory of the broker", "MiB", MEMORY, &[0, 2, 4]),
];

/// A side of a headline cell.
struct Side<'a> {
    name: &'a str,
    durability: &'a str,
    rounds: usize,
    /// Whether the rate was unlimited: such latencies are not compared.
    is_unpaced: bool,
    values: [Vec<f64>; 4],
}

fn sides<'a>(cell: &Cell<'a>) -> Vec<Side<'a>> {
    let reported = |side: &super::model::Side<'a>| {
        let lines: Vec<_> =
            cell.lines.iter().filter(|line| line.side == side.name && Mark::of(line) == Mark::Counts).collect();
        let conditions = lines.first()?.conditions.as_ref()?;
        let values = |name: &str| lines.iter().filter_map(|line| line.figures.get(name).copied()).collect::<Vec<f64>>();
        Some(Side {
            name: side.name,
            durability: &conditions.durability,
            rounds: lines.len(),
            is_unpaced: conditions.rate == 0,
            values: [RATE, P99, CPU, MEMORY].map(values),
        })
    };
    cell.sides.iter().filter(|side| side.system != System::Null).filter_map(reported).collect()
}

fn cell<'s, 'a>(scenarios: &'s [Scenario<'a>], name: &str) -> Option<&'s Cell<'a>> {
    scenarios.iter().flat_map(|scenario| &scenario.cells).find(|cell| cell.name == name)
}

/// The headline table: rate, p99, CPU and memory of polylogue and of its peers.
fn headline(scenarios: &[Scenario<'_>]) -> String {
    let mut text = String::from(
        "| load | system | acknowledges | messages/s | publish p99, ms | broker CPU, s per million | memory, MiB | rounds |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for (name, load) in HEADLINE {
        for (at, side) in cell(scenarios, name).map(sides).unwrap_or_default().iter().enumerate() {
            let reported = |values: &[f64]| median(values).map_or_else(|| "-".to_owned(), number);
            let [rate, p99, cpu, memory] = &side.values;
            let p99 = if side.is_unpaced { "-".to_owned() } else { reported(p99) };
            let rounds = if side.rounds == 1 { "run once".to_owned() } else { side.rounds.to_string() };
            let (rate, cpu, memory) = (reported(rate), reported(cpu), reported(memory));
            let load = if at == 0 { format!("{load} ({})", plain(name)) } else { String::new() };
            let (system, durability) = (plain(side.name), plain(side.durability));
            // Writing to a string cannot fail, here and below.
            let _ =
                writeln!(text, "| {load} | {system} | {durability} | {rate} | {p99} | {cpu} | {memory} | {rounds} |");
        }
    }
    text
}

fn charts(scenarios: &[Scenario<'_>]) -> Vec<(String, String)> {
    let figures = [RATE, P99, CPU, MEMORY];
    let chart = |(file, title, unit, name, cells): &(&str, &str, &str, &str, &[usize])| {
        let at = figures.iter().position(|figure| figure == name)?;
        let group = |index: &usize| {
            let (name, load) = HEADLINE.get(*index)?;
            let sides = sides(cell(scenarios, name)?);
            let systems: Vec<System> = sides.iter().map(|side| System::of_target(side.name)).collect();
            let bar = |(side, look): (&Side<'_>, _)| Bar {
                name: side.name.to_owned(),
                look,
                parts: vec![side.values.get(at).cloned().unwrap_or_default()],
                note: if side.rounds == 1 { "run once".to_owned() } else { String::new() },
            };
            Some(Bars { heading: (*load).to_owned(), bars: sides.iter().zip(looks(&systems)).map(bar).collect() })
        };
        let groups: Vec<Bars> = cells.iter().filter_map(group).collect();
        let svg = draw(&Chart { title, unit, parts: &[], groups: &groups })?;
        Some(((*file).to_owned(), svg.file()))
    };
    CHARTS.iter().filter_map(chart).collect()
}

/// Returns the page of a scenario: its letter, or `machine` for scenarios of no published comparison.
fn family(id: &str) -> String {
    match id.chars().next() {
        Some(letter) if letter.is_ascii_uppercase() => letter.to_string(),
        _ => "machine".to_owned(),
    }
}

fn families(scenarios: &[Scenario<'_>]) -> Vec<String> {
    let mut names: Vec<String> =
        scenarios.iter().filter(|scenario| !scenario.cells.is_empty()).map(|scenario| family(scenario.id)).collect();
    names.sort();
    names.dedup();
    names
}

fn family_page(name: &str, scenarios: &[Scenario<'_>]) -> String {
    let mut text = format!(
        "# Scenarios {name}\n\n[First page](README.md). Drawn from benches/results; {KEY}. \"run once\": one pair of rounds, no verdict.\n\n"
    );
    for scenario in scenarios.iter().filter(|scenario| family(scenario.id) == name && !scenario.cells.is_empty()) {
        let Some(reported) = scenario.text else { continue };
        let _ = writeln!(
            text,
            "- **{} {}**: {} Here: {}",
            reported.id,
            plain(reported.title),
            plain(reported.what),
            plain(reported.scaled)
        );
    }
    text.push('\n');
    let entries: Vec<_> = entries(scenarios).into_iter().filter(|entry| family(entry.cell.name) == name).collect();
    for (heading, of_kind) in score::tables(&entries) {
        matrix(&mut text, &heading, &of_kind);
    }
    text
}

/// Writes the rows in which a peer is ahead, with their ratios, and those run once in which polylogue was worse.
fn losses(
    text: &mut String,
    entries: &[score::Entry<'_, '_>],
    lost: &[score::Failed<'_, '_>],
    behind: &[&score::Entry<'_, '_>],
) {
    text.push_str("## Where polylogue is behind\n\n| cell | figure | ratio |\n|---|---|---|\n");
    for one in lost {
        let _ = writeln!(text, "| {} | all | {} |", plain(one.cell.name), plain(&one.said));
    }
    for one in behind {
        let (name, title) = (plain(one.cell.name), figure(one.row.figure).title);
        let _ = writeln!(text, "| {name} | {title} | {} |", plain(&sentence(&one.row.outcome)));
    }
    let worse = |entry: &&score::Entry<'_, '_>| {
        let outcome = &entry.row.outcome;
        let is_once = matches!(&outcome.standing, Standing::Undecided(why) if why == RUN_ONCE);
        is_once && outcome.ours.as_ref().is_some_and(|ours| ours.times < 1.0)
    };
    text.push_str("\nRun once and worse than the best peer in that run (no verdict):\n\n| cell | figure | peer | times better than polylogue |\n|---|---|---|---|\n");
    for one in entries.iter().filter(worse) {
        if let Some(ours) = &one.row.outcome.ours {
            let (name, title) = (plain(one.cell.name), figure(one.row.figure).title);
            let _ = writeln!(text, "| {name} | {title} | {} | {}× |", plain(&ours.over), number(1.0 / ours.times));
        }
    }
}

fn first_page(input: Input<'_>, scenarios: &[Scenario<'_>], charts: &[(String, String)]) -> String {
    let entries = entries(scenarios);
    let (all, lost) = (count(entries.iter()), failed(scenarios));
    let once = entries
        .iter()
        .filter(|entry| matches!(&entry.row.outcome.standing, Standing::Undecided(why) if why == RUN_ONCE));
    let once = once.count();
    let behind: Vec<_> =
        entries.iter().filter(|entry| matches!(entry.row.outcome.standing, Standing::Behind(_))).collect();
    let times = |entry: &&&score::Entry<'_, '_>| entry.row.outcome.ours.as_ref().map_or(1.0, |ours| ours.times);
    let worst = behind.iter().min_by(|a, b| times(a).total_cmp(&times(b)));
    let machines = super::machines(input.lines).join("; ");
    let mut text = String::from("# Message brokers, side by side\n\n");
    let _ = writeln!(
        text,
        "Five published comparisons were run on one machine ({}) from {}. Broker and client run on separate cores and communicate over \
         loopback: the figures compare brokers and do not predict other hardware. polylogue is ahead of every peer in {} rows, \
         behind at least one in {}, level in {}, and without a verdict in {}, of which {} were run once. {} \
         A verdict needs three pairs of alternating rounds that all agree, five in the rows measured most.\n",
        plain(&machines),
        super::dates(input.lines),
        grouped(all.ahead as u64),
        behind.len() + lost.len(),
        grouped(all.level as u64),
        grouped(all.undecided as u64),
        grouped(once as u64),
        worst.map_or_else(
            || "It is behind in no row.".to_owned(),
            |worst| format!(
                "The largest ratio behind is {} in {}: {}.",
                figure(worst.row.figure).title,
                plain(worst.cell.name),
                plain(&sentence(&worst.row.outcome))
            )
        ),
    );
    let _ = writeln!(
        text,
        "## Rate, p99, CPU, memory\n\nMedians of the rounds. A dash: latencies at unlimited rate are not compared. The table names no winner, because the client may limit a rate; verdicts are on the family pages.\n\n{}",
        headline(scenarios)
    );
    for (file, _) in charts {
        let title = CHARTS.iter().find(|chart| chart.0 == file).map_or("", |chart| chart.1);
        let _ = writeln!(text, "![{title}]({file})\n");
    }
    losses(&mut text, &entries, &lost, &behind);
    text.push_str("\n## All rows\n\n");
    for name in families(scenarios) {
        let of: Vec<&str> =
            scenarios.iter().filter(|one| family(one.id) == name && !one.cells.is_empty()).map(|one| one.id).collect();
        let _ = writeln!(text, "- [{name}]({name}.md): {}", of.join(", "));
    }
    text.push_str(
        "\nMethods: [docs/benchmarks](../docs/benchmarks/README.md). Charts of all cells are not committed; draw them with:\n\n\
         ```sh\npolylogue-bench report --html build/report.html benches/results/compare-*.jsonl       # one page that opens offline\n\
         polylogue-bench report --markdown build/report benches/results/compare-*.jsonl        # Markdown with a file per chart\n\
         polylogue-bench report --out report --readme README.md benches/results/compare-*.jsonl  # these pages; with --check: compare only\n```\n",
    );
    text
}

/// The committed files, by name: first page, family pages, charts.
#[must_use]
pub fn pages(input: Input<'_>) -> Vec<(String, String)> {
    let scenarios = scenarios(input);
    let charts = charts(&scenarios);
    let mut files = vec![("README.md".to_owned(), first_page(input, &scenarios, &charts))];
    files.extend(families(&scenarios).into_iter().map(|name| (format!("{name}.md"), family_page(&name, &scenarios))));
    // Pages end with exactly one newline.
    files.iter_mut().for_each(|(_, text)| text.truncate(text.trim_end().len()));
    files.iter_mut().for_each(|(_, text)| text.push('\n'));
    files.extend(charts);
    files
}

/// Returns `text` with the headline table between the two markers.
///
/// # Errors
/// A marker is missing.
pub fn with_headline(input: Input<'_>, text: &str) -> Result<String> {
    let missing = || BenchError::new(format!("the markers \"{BEGIN}\" and \"{END}\" must both be in the file"));
    let (before, rest) = text.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}\n\n{}\n{END}{after}", headline(&scenarios(input))))
}

fn all_files(
    input: Input<'_>,
    folder: Option<&Path>,
    readme: Option<&Path>,
) -> Result<Vec<(std::path::PathBuf, String)>> {
    let mut files = Vec::new();
    if let Some(folder) = folder {
        files.extend(pages(input).into_iter().map(|(name, text)| (folder.join(name), text)));
    }
    if let Some(readme) = readme {
        let text = std::fs::read_to_string(readme).context(|| format!("cannot read {}", readme.display()))?;
        files.push((readme.to_owned(), with_headline(input, &text)?));
    }
    Ok(files)
}

/// Writes the pages into `folder` and the headline table into `readme`.
///
/// # Errors
/// A file cannot be read or written, or `readme` lacks the markers.
pub fn write(input: Input<'_>, folder: Option<&Path>, readme: Option<&Path>) -> Result<()> {
    for (file, text) in all_files(input, folder, readme)? {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
        }
        std::fs::write(&file, text).context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Compares the files that [`write`] would write with those on disk.
///
/// # Errors
/// A file is missing or differs; all of them are named.
pub fn check(input: Input<'_>, folder: Option<&Path>, readme: Option<&Path>) -> Result<()> {
    let differs =
        |(file, text): &(std::path::PathBuf, String)| !std::fs::read_to_string(file).is_ok_and(|old| old == *text);
    let files = all_files(input, folder, readme)?;
    let stale: Vec<String> =
        files.iter().filter(|file| differs(file)).map(|(file, _)| file.display().to_string()).collect();
    if stale.is_empty() {
        return Ok(());
    }
    let stale = stale.join(", ");
    Err(BenchError::new(format!("not up to date with the result lines: {stale}; run the same command without --check")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_markers_is_an_error() {
        let input = Input { lines: &[], scenarios: &[], not_run: &[] };
        assert!(with_headline(input, "no marker").is_err());
    }
}
