//! The full report as Markdown, with its charts as files.

use super::conditions;
use super::figures::figure;
use super::judge::{FIRST_PAGE_PAIRS_MIN, Standing};
use super::model::{Cell, Row, Scenario, Table, scenarios};
use super::page::{RULES, SMOKE};
use super::pictures::{Picture, of_cell, of_scenario};
use super::scenario::Input;
use super::score::{self, Entry, columns, count, entries, failed, pairs_min};
use super::stats::{PAIRS_MIN, number};
use super::words::{KEY, mark, over, sentence, times, value, verdict};
use super::{floors, itself};
use crate::error::{Context, Result};
use std::fmt::Write;
use std::path::Path;

/// File name of the text.
pub const TEXT: &str = "README.md";
/// Directory of the charts.
const PICTURES: &str = "pictures";

/// A text and its charts.
#[derive(Debug, Default)]
pub struct Book {
    /// The text.
    pub text: String,
    /// File names and contents of the charts.
    pub pictures: Vec<(String, String)>,
}

/// Writes text and charts into a directory. Charts of an earlier report are removed.
///
/// # Errors
/// A file cannot be written or removed.
pub fn write(input: Input<'_>, folder: &Path) -> Result<()> {
    let book = book(input);
    let pictures = folder.join(PICTURES);
    std::fs::create_dir_all(&pictures).context(|| format!("cannot create {}", pictures.display()))?;
    for old in std::fs::read_dir(&pictures).into_iter().flatten().flatten() {
        let name = old.file_name().to_string_lossy().into_owned();
        if name.ends_with(".svg") && !book.pictures.iter().any(|(new, _)| *new == name) {
            std::fs::remove_file(old.path()).context(|| format!("cannot remove {}", old.path().display()))?;
        }
    }
    for (name, text) in &book.pictures {
        let file = pictures.join(name);
        std::fs::write(&file, text).context(|| format!("cannot write {}", file.display()))?;
    }
    let file = folder.join(TEXT);
    std::fs::write(&file, &book.text).context(|| format!("cannot write {}", file.display()))
}

/// Escapes text for Markdown and its tables: nothing in it is markup, and control characters become spaces.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Returns the report. Writing to a string cannot fail, here and below.
#[must_use]
pub fn book(input: Input<'_>) -> Book {
    let scenarios = scenarios(input);
    let mut book = Book::default();
    let text = &mut book.text;
    text.push_str("# Message brokers, side by side\n\n");
    if input.lines.iter().any(|line| line.quick) {
        let _ = writeln!(text, "> **{SMOKE}**\n");
    }
    for machine in super::machines(input.lines) {
        let _ = writeln!(text, "{}\n", plain(&machine));
    }
    if input.lines.is_empty() {
        text.push_str("No result lines: nothing has been measured.\n\n");
    } else {
        let _ = writeln!(
            text,
            "{}; commit {}.\n",
            super::dates(input.lines),
            plain(&super::commits(input.lines).join(", "))
        );
    }
    first(text, input, &scenarios);
    for scenario in scenarios.iter().filter(|scenario| !scenario.cells.is_empty()) {
        section(&mut book, scenario, &scenarios);
    }
    let text = &mut book.text;
    text.push_str("## Not run\n\n| what | system | why |\n|---|---|---|\n");
    for (what, target, reason) in super::not_run(input, &scenarios) {
        let _ = writeln!(text, "| {} | {} | {} |", plain(&what), plain(&target), plain(&reason));
    }
    text.push_str("\n## How to read it\n\n");
    for (term, said) in RULES {
        let _ = writeln!(text, "- **{term}**: {said}");
    }
    book
}

fn first(text: &mut String, input: Input<'_>, scenarios: &[Scenario<'_>]) {
    let entries = entries(scenarios);
    let all = count(entries.iter());
    let lost = failed(scenarios);
    let _ = writeln!(
        text,
        "## Summary\n\npolylogue is behind a peer in {} rows, ahead of every peer in {}, level in {}, without a verdict in {}. \
         A side is ahead if all of its alternating pairs of rounds agree: {FIRST_PAGE_PAIRS_MIN} pairs in the rows measured most, \
         {PAIRS_MIN} in the others; a row that was run once has no verdict.\n",
        all.behind + lost.len(),
        all.ahead,
        all.level,
        all.undecided
    );
    text.push_str("### Where polylogue is behind\n\n");
    for failed in &lost {
        let _ = writeln!(text, "- {}: {}", plain(failed.cell.name), plain(&failed.said));
    }
    let behind = entries.iter().filter(|entry| matches!(entry.row.outcome.standing, Standing::Behind(_)));
    list(text, behind, lost.is_empty());
    text.push_str("### Where polylogue is ahead\n\n");
    list(text, entries.iter().filter(|entry| entry.row.outcome.standing == Standing::Ahead), true);
    let _ = writeln!(text, "### All rows\n\n{KEY}.\n");
    for (heading, of_kind) in score::tables(&entries) {
        matrix(text, &heading, &of_kind);
    }
    write_beside(text, scenarios);
    write_floors(text, input, scenarios);
}

fn write_beside(text: &mut String, scenarios: &[Scenario<'_>]) {
    let reported = itself::beside(scenarios);
    if reported.is_empty() {
        return;
    }
    let _ = writeln!(text, "### {}\n\n{}\n", itself::HEADING, itself::SAID);
    text.push_str(
        "| cell | side | figure | baseline | with more | ratio | limit | rounds |\n|---|---|---|---|---|---|---|---|\n",
    );
    for one in reported {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            plain(one.cell),
            plain(one.side),
            figure(one.figure).title,
            number(one.medians.0),
            number(one.medians.1),
            number(one.times()),
            one.limit(),
            one.rounds
        );
    }
    text.push('\n');
}

fn list<'e, 's: 'e, 'a: 's + 'e>(text: &mut String, entries: impl Iterator<Item = &'e Entry<'s, 'a>>, say_none: bool) {
    let before = text.len();
    for entry in entries {
        let title = figure(entry.row.figure).title;
        let _ = writeln!(text, "- {}, {title}: {}", plain(entry.cell.name), plain(&sentence(&entry.row.outcome)));
    }
    if text.len() == before && say_none {
        text.push_str("No row.\n");
    }
    text.push('\n');
}

pub(super) fn matrix(text: &mut String, heading: &str, entries: &[&Entry<'_, '_>]) {
    if entries.is_empty() {
        return;
    }
    let columns = columns(entries);
    let _ = writeln!(text, "#### {heading}\n");
    let titles: Vec<String> = columns.iter().map(|column| figure(column).title.into_owned()).collect();
    let _ = writeln!(text, "| cell | {} |\n|---{}|", titles.join(" | "), "|---".repeat(columns.len()));
    for (label, line) in score::lines(entries) {
        let reported = |column: &&str| {
            let here = line.iter().find(|entry| entry.column() == *column);
            here.map(|here| mark(&here.row.outcome))
                .map(|(sign, reported)| format!("{sign} {reported}"))
                .unwrap_or_default()
        };
        let _ =
            writeln!(text, "| {} | {} |", plain(&label), columns.iter().map(reported).collect::<Vec<_>>().join(" | "));
    }
    text.push('\n');
}

fn spread((middle, spread): (String, Option<String>)) -> String {
    spread.map_or_else(|| middle.clone(), |spread| format!("{middle} ({spread})"))
}

fn write_floors(text: &mut String, input: Input<'_>, scenarios: &[Scenario<'_>]) {
    text.push_str("### Floors\n\n| this machine | | |\n|---|---|---|\n");
    for (title, middle, low_high, unit) in floors::bare(input.lines) {
        let _ = writeln!(text, "| {} | {} | {unit} |", plain(&title), spread((middle, low_high)));
    }
    let reported = |values: &Vec<f64>| value(values).map_or_else(|| "–".to_owned(), spread);
    text.push_str("\n| the null broker, publish, ms | cells | p50 | p99 | p99.9 |\n|---|---|---|---|---|\n");
    for floor in floors::null(scenarios) {
        let publish = floor.publish.each_ref().map(reported);
        let _ = writeln!(text, "| {} | {} | {} |", plain(floor.client), floor.cells, publish.join(" | "));
    }
    let flushed = floors::flushed(scenarios);
    if !flushed.is_empty() {
        text.push_str("\n| observed flushes | flushes/s | bytes per flush |\n|---|---|---|\n");
    }
    for seen in flushed {
        let _ = writeln!(text, "| {} | {} | {} |", plain(seen.side), reported(&seen.per_s), reported(&seen.bytes));
    }
    text.push('\n');
}

fn section(book: &mut Book, scenario: &Scenario<'_>, all: &[Scenario<'_>]) {
    let title = scenario.text.map_or("", |reported| reported.title);
    let _ = writeln!(book.text, "## {} {}\n", plain(scenario.id), plain(title));
    if let Some(reported) = scenario.text {
        let or = |said: &str, otherwise: &str| if said.is_empty() { otherwise.to_owned() } else { plain(said) };
        let _ = writeln!(
            book.text,
            "{}\n\n| published | run here |\n|---|---|\n| {} | {} |\n",
            plain(reported.what),
            or(reported.published, "No published result."),
            or(reported.scaled, "As published.")
        );
    }
    show(book, of_scenario(scenario));
    for cell in &scenario.cells {
        write_cell(book, cell, floors::beside(all, cell).as_ref());
    }
}

fn show(book: &mut Book, pictures: Vec<Picture>) {
    for picture in pictures {
        let name = format!("{}.svg", picture.name);
        let _ = writeln!(book.text, "![{}]({PICTURES}/{name})\n", plain(picture.svg.title()));
        if !picture.caption.is_empty() {
            let _ = writeln!(book.text, "{}\n", plain(&picture.caption));
        }
        book.pictures.push((name, picture.svg.file()));
    }
}

fn write_cell(book: &mut Book, cell: &Cell<'_>, floor: Option<&floors::Beside<'_>>) {
    let _ = writeln!(book.text, "### {}\n", plain(cell.name));
    for table in cell.tables() {
        let rows = cell.rows(&table, pairs_min(cell));
        write_table(&mut book.text, &table, rows.all());
    }
    if let Some(floor) = floor {
        let (client, speaks) = floor.client;
        let _ = writeln!(
            book.text,
            "Client alone: {} ({speaks}) with the null broker, publish {} ({}).\n",
            plain(client),
            floor.reported(),
            plain(floor.cell.0)
        );
    }
    show(book, of_cell(cell));
    let text = &mut book.text;
    let names: Vec<String> = cell.sides.iter().map(|side| plain(side.name)).collect();
    let _ = writeln!(
        text,
        "<details><summary>Conditions</summary>\n\n| | {} |\n|---{}|",
        names.join(" | "),
        "|---".repeat(names.len())
    );
    for (name, values) in conditions::of_cell(cell) {
        let values: Vec<String> = values.iter().map(|value| plain(value)).collect();
        let _ = writeln!(text, "| {} | {} |", plain(&name), values.join(" | "));
    }
    text.push_str("\n</details>\n\n");
    for failure in conditions::failures(cell) {
        let _ = writeln!(text, "- failed run, not counted: {}", plain(&failure));
    }
    text.push('\n');
}

fn write_table<'r>(text: &mut String, table: &Table<'_>, rows: impl Iterator<Item = &'r Row<'r>>) {
    let heading =
        if table.is_same_client { "The same client on all sides." } else { "Each system with its own client." };
    let names: Vec<String> = table.sides.iter().map(|side| plain(side.name)).collect();
    let _ = writeln!(
        text,
        "{heading}\n\n| figure | {} | ahead | by |\n|---{}|---|---|",
        names.join(" | "),
        "|---".repeat(names.len())
    );
    for row in rows {
        let known = figure(row.figure);
        let title =
            if known.unit.is_empty() { known.title.to_string() } else { format!("{}, {}", known.title, known.unit) };
        let values = table.sides.iter().zip(&row.values).map(|(side, values)| match value(values) {
            Some(reported) => spread(reported),
            None if side.mark != super::model::Mark::Counts => side.mark.text().to_owned(),
            None => "–".to_owned(),
        });
        let by =
            row.outcome.advantage.as_ref().map(|lead| format!("{} {}", times(lead), over(lead))).unwrap_or_default();
        let values: Vec<String> = values.collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            plain(&title),
            values.join(" | "),
            plain(&verdict(&row.outcome)),
            plain(&by)
        );
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::wellformed;
    use crate::results::ResultLine;

    #[test]
    fn text_and_charts_are_written_and_old_charts_removed() {
        let figures = [("publish_p50_ms", 1.0), ("publish_p99_ms", 2.0), ("produce_cpu_s_per_million", 3.0)];
        let lines = [
            ResultLine::example("A4/<script>|x", "polylogue-sync", 1, &figures),
            ResultLine::example("A4/<script>|x", "kafka", 1, &figures),
        ];
        let folder = std::env::temp_dir().join(format!("polylogue-bench-book-{}", std::process::id()));
        std::fs::create_dir_all(folder.join(PICTURES)).expect("a folder");
        std::fs::write(folder.join(PICTURES).join("old.svg"), "").expect("an old picture");
        write(Input { lines: &lines, scenarios: &[], not_run: &[] }, &folder).expect("it is written");
        let text = std::fs::read_to_string(folder.join(TEXT)).expect("the text");
        let mut found: Vec<String> = std::fs::read_dir(folder.join(PICTURES))
            .expect("the pictures")
            .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
            .collect();
        found.sort();
        assert_eq!(found, ["a4-broker-cpu-to-write-1.svg", "a4-script-x-publish.svg"]);
        for name in &found {
            assert!(text.contains(&format!("({PICTURES}/{name})")), "{name}: {text}");
            let picture = std::fs::read_to_string(folder.join(PICTURES).join(name)).expect("a picture");
            assert_eq!(wellformed::check(&picture), Ok(()));
        }
        assert!(text.contains("### A4/&lt;script&gt;\\|x") && !text.contains("<script"), "{text}");
        std::fs::remove_dir_all(&folder).expect("it is removed");
    }

    #[test]
    fn an_empty_report_states_that_nothing_was_measured() {
        let book = book(Input { lines: &[], scenarios: &[], not_run: &[] });
        assert!(book.text.contains("nothing has been measured") && book.pictures.is_empty(), "{}", book.text);
    }
}
