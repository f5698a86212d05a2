//! The first page: who is ahead, who is behind, all rows at a glance, and the floors.

use super::{score, standing_class, tally};
use crate::report::figures::figure;
use crate::report::floors;
use crate::report::judge::{FIRST_PAGE_PAIRS_MIN, Standing};
use crate::report::model::Scenario;
use crate::report::scenario::Input;
use crate::report::score::{Entry, columns, count, entries, failed};
use crate::report::svg::escape;
use crate::report::words::{mark, over, sentence, times, value};
use std::fmt::Write;

/// Writes it.
pub(super) fn write(text: &mut String, input: Input<'_>, scenarios: &[Scenario<'_>]) {
    let entries = entries(scenarios);
    text.push_str("<section id=\"first\">\n<h2>Where polylogue stands</h2>\n");
    if input.lines.is_empty() {
        text.push_str("<p>There are no result lines: nothing has been measured.</p>\n");
    }
    tiles(text, count(entries.iter()));
    text.push_str("<div class=\"sides\">\n");
    let lost = failed(scenarios);
    list(
        text,
        "Where polylogue is behind",
        "bad",
        &entries,
        |standing| matches!(standing, Standing::Behind(_)),
        |text| {
            for (cell, mark, peers) in &lost {
                let said = format!("polylogue {}; {} held", mark.text(), peers.join(", "));
                let _ = writeln!(
                    text,
                    "<li><a href=\"#{}\">{}</a><ul><li>{}</li></ul></li>",
                    cell.slug,
                    escape(cell.name),
                    escape(&said)
                );
            }
            lost.len()
        },
    );
    list(text, "Where polylogue is ahead", "good", &entries, |standing| *standing == Standing::Ahead, |_| 0);
    text.push_str("</div>\n");
    for (is_same, heading) in
        [(true, "All rows: the same client on all sides"), (false, "All rows: each system with its own client")]
    {
        let of_kind: Vec<&Entry<'_, '_>> = entries.iter().filter(|entry| entry.is_same_client == is_same).collect();
        matrix(text, heading, &of_kind);
    }
    write_floors(text, input, scenarios);
    text.push_str("</section>\n");
}

fn tiles(text: &mut String, count: score::Count) {
    text.push_str("<div class=\"tiles\">\n");
    for (number, what, class) in [
        (count.behind, "rows behind a peer", "bad"),
        (count.ahead, "rows ahead of every peer", "good"),
        (count.level, "rows level", "even"),
        (count.undecided, "rows without a verdict", "none"),
    ] {
        let _ = writeln!(text, "<div class=\"tile {class}\"><b>{number}</b><span>{what}</span></div>");
    }
    let _ = writeln!(
        text,
        "</div>\n<p class=\"soft\">On this page a side is ahead only when all of at least {FIRST_PAGE_PAIRS_MIN} alternating pairs agree; \
         with fewer it is level. The tables below want three. polylogue acknowledges after the flush where nothing else is said; what the others do stands with each cell.</p>"
    );
}

/// The rows of one standing, cell by cell. `before` writes what comes first, and says how much that is.
fn list(
    text: &mut String,
    heading: &str,
    class: &str,
    entries: &[Entry<'_, '_>],
    is_it: impl Fn(&Standing) -> bool,
    before: impl Fn(&mut String) -> usize,
) {
    let _ = writeln!(text, "<div class=\"card {class}\">\n<h3>{heading}</h3>\n<ul class=\"cells\">");
    let mut written = before(text);
    let mut cell = "";
    for entry in entries.iter().filter(|entry| is_it(&entry.row.outcome.standing)) {
        if entry.cell.name != cell {
            if !cell.is_empty() {
                text.push_str("</ul></li>\n");
            }
            cell = entry.cell.name;
            let _ = write!(text, "<li><a href=\"#{}\">{}</a><ul>", entry.cell.slug, escape(cell));
        }
        let title = figure(entry.row.figure).title;
        let _ = write!(text, "<li><b>{}</b> {}</li>", escape(&title), escape(&told(entry)));
        written += 1;
    }
    if !cell.is_empty() {
        text.push_str("</ul></li>\n");
    }
    text.push_str("</ul>\n");
    if written == 0 {
        text.push_str("<p>In no row.</p>\n");
    }
    text.push_str("</div>\n");
}

fn told(entry: &Entry<'_, '_>) -> String {
    let outcome = &entry.row.outcome;
    match (&outcome.standing, &outcome.winner, &outcome.advantage) {
        (Standing::Behind(peers), Some(winner), Some(lead)) => {
            let others: Vec<&str> = peers.iter().map(String::as_str).filter(|peer| peer != winner).collect();
            let also = if others.is_empty() { String::new() } else { format!("; {} too", others.join(", ")) };
            format!("{winner} {} {}{also}", times(lead), over(lead))
        }
        (Standing::Ahead, _, Some(lead)) => format!("{} {}", times(lead), over(lead)),
        _ => sentence(outcome),
    }
}

/// All rows at a glance: a line for each cell, a column for each figure.
fn matrix(text: &mut String, heading: &str, entries: &[&Entry<'_, '_>]) {
    if entries.is_empty() {
        return;
    }
    let columns = columns(entries);
    let _ = writeln!(
        text,
        "<h3>{heading}</h3>\n<p class=\"key\">{} <span class=\"soft\">▲ ahead of the closest peer, ▼ behind the best peer, = level, by how many times</span></p>",
        tally(count(entries.iter().copied()))
    );
    text.push_str("<div class=\"scroll\"><table class=\"matrix\">\n<thead><tr><th>cell</th>");
    for column in &columns {
        let _ = write!(text, "<th>{}</th>", escape(&figure(column).title));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    let mut cells: Vec<&str> = Vec::new();
    for entry in entries {
        if cells.contains(&entry.cell.name) {
            continue;
        }
        cells.push(entry.cell.name);
        let _ =
            write!(text, "<tr><th scope=\"row\"><a href=\"#{}\">{}</a></th>", entry.cell.slug, escape(entry.cell.name));
        for column in &columns {
            let here = entries.iter().find(|other| other.cell.name == entry.cell.name && other.row.figure == *column);
            match here {
                Some(here) => square(text, here),
                None => text.push_str("<td></td>"),
            }
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>\n");
}

fn square(text: &mut String, entry: &Entry<'_, '_>) {
    let outcome = &entry.row.outcome;
    let (sign, told) = mark(outcome);
    let class = standing_class(&outcome.standing);
    let few = match (&outcome.standing, &outcome.ours) {
        (Standing::Level, Some(ours)) if ours.pairs < FIRST_PAGE_PAIRS_MIN => {
            let pairs = if ours.pairs == 1 { "pair" } else { "pairs" };
            format!("<small>{} {pairs}</small>", ours.pairs)
        }
        _ => String::new(),
    };
    let shown = if sign == "·" {
        format!("<small>{}</small>", escape(&told))
    } else {
        format!("{sign} {}{few}", escape(&told))
    };
    let _ = write!(text, "<td class=\"{class}\" title=\"{}\">{shown}</td>", escape(&sentence(outcome)));
}

fn write_floors(text: &mut String, input: Input<'_>, scenarios: &[Scenario<'_>]) {
    let (bare, null) = (floors::bare(input.lines), floors::null(scenarios));
    if bare.is_empty() && null.is_empty() {
        text.push_str("<h3>The floors</h3>\n<p>Neither the bare loops nor the null broker were run.</p>\n");
        return;
    }
    text.push_str("<h3>The floors</h3>\n<p class=\"soft\">What a client, a disk and this machine cost without any broker's work: nothing above can be better than these.</p>\n<div class=\"sides\">\n");
    if !bare.is_empty() {
        text.push_str("<div class=\"card\"><h4>This machine: flushes and bare loops</h4>\n<div class=\"scroll\"><table>\n<tbody>\n");
        for (title, middle, spread, unit) in bare {
            let spread = spread.map(|spread| format!("<small>{spread}</small>")).unwrap_or_default();
            let _ = writeln!(
                text,
                "<tr><th scope=\"row\">{}</th><td class=\"number\">{middle}{spread}</td><td class=\"words soft\">{unit}</td></tr>",
                escape(&title)
            );
        }
        text.push_str("</tbody></table></div></div>\n");
    }
    if !null.is_empty() {
        text.push_str("<div class=\"card\"><h4>The null broker, which answers at once: publish latency, ms</h4>\n<div class=\"scroll\"><table>\n<thead><tr><th>client</th><th>cells</th><th>p50</th><th>p99</th><th>p99.9</th></tr></thead>\n<tbody>\n");
        for floor in null {
            let _ = write!(
                text,
                "<tr><th scope=\"row\">{}</th><td class=\"number\">{}</td>",
                escape(floor.client),
                floor.cells
            );
            for values in &floor.publish {
                let told = value(values).map_or_else(
                    || "–".to_owned(),
                    |(middle, spread)| {
                        format!(
                            "{middle}{}",
                            spread.map(|spread| format!("<small>{spread}</small>")).unwrap_or_default()
                        )
                    },
                );
                let _ = write!(text, "<td class=\"number\">{told}</td>");
            }
            text.push_str("</tr>\n");
        }
        text.push_str("</tbody></table></div><p class=\"soft\">Medians of the cells, and from the least to the most of them.</p></div>\n");
    }
    text.push_str("</div>\n");
}
