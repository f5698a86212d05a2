//! The first section of the page: rows behind and ahead, an overview of all rows, and the floors.

use super::{broken, floor, score, standing_class, tally};
use crate::report::figures::figure;
use crate::report::itself;
use crate::report::judge::{FIRST_PAGE_PAIRS_MIN, Standing};
use crate::report::model::Scenario;
use crate::report::scenario::Input;
use crate::report::score::{Entry, Failed, columns, count, entries, failed, pairs_min};
use crate::report::stats::{PAIRS_MIN, number};
use crate::report::svg::escape;
use crate::report::words::{KEY, mark, over, sentence, times};
use std::fmt::Write;

/// Writes the section.
pub(super) fn write(text: &mut String, input: Input<'_>, scenarios: &[Scenario<'_>]) {
    let entries = entries(scenarios);
    text.push_str("<section id=\"first\">\n<h2>Summary</h2>\n");
    if input.lines.is_empty() {
        text.push_str("<p>No result lines: nothing has been measured.</p>\n");
    }
    let lost = failed(scenarios);
    let counted = count(entries.iter());
    let is_few = |entry: &&Entry<'_, '_>| {
        let pairs = entry.row.outcome.ours.as_ref().map_or(0, |ours| ours.pairs);
        entry.row.outcome.standing == Standing::Level && pairs < pairs_min(entry.cell)
    };
    let few = entries.iter().filter(is_few).count();
    tiles(text, score::Count { behind: counted.behind + lost.len(), ..counted }, few);
    text.push_str("<div class=\"sides\">\n");
    let is_behind = |standing: &Standing| matches!(standing, Standing::Behind(_));
    list(text, "Where polylogue is behind", "bad", &entries, is_behind, |text| {
        for Failed { cell, said, .. } in &lost {
            let (name, said) = (broken(cell.name), escape(said));
            let _ = writeln!(text, "<li><a href=\"#{}\">{name}</a><ul><li>{said}</li></ul></li>", cell.slug);
        }
        lost.len()
    });
    list(text, "Where polylogue is ahead", "good", &entries, |standing| *standing == Standing::Ahead, |_| 0);
    text.push_str("</div>\n");
    let _ = writeln!(text, "<h3>All rows</h3>\n<p class=\"soft\">{KEY}.</p>");
    for (heading, of_kind) in score::tables(&entries) {
        matrix(text, &heading, &of_kind);
    }
    beside(text, scenarios);
    floor::write(text, input, scenarios);
    text.push_str("</section>\n");
}

fn tiles(text: &mut String, count: score::Count, few: usize) {
    text.push_str("<div class=\"tiles\">\n");
    for (number, what, class) in [
        (count.behind, "rows behind a peer", "bad"),
        (count.ahead, "rows ahead of every peer", "good"),
        (count.level, "rows level", "even"),
        (count.undecided, "rows without a verdict", "none"),
    ] {
        let _ = writeln!(text, "<div class=\"tile {class}\"><b>{number}</b><span>{what}</span></div>");
    }
    let few = match few {
        0 => String::new(),
        few => format!(" {few} of the level rows have fewer."),
    };
    let _ = writeln!(
        text,
        "</div>\n<p class=\"soft\">A side is ahead if all of its alternating pairs of rounds agree: {FIRST_PAGE_PAIRS_MIN} pairs in the rows measured \
         most, {PAIRS_MIN} in the others.{few} polylogue acknowledges after the flush unless stated otherwise; the conditions of \
         each cell state when the others acknowledge.</p>"
    );
}

/// Writes the rows of one standing, by cell. `before` writes preceding items and returns their number.
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
            let _ = write!(text, "<li><a href=\"#{}\">{}</a><ul>", entry.cell.slug, broken(cell));
        }
        let title = figure(entry.row.figure).title;
        let own = if entry.is_same_client { "" } else { " · own clients" };
        let _ = write!(text, "<li><b>{}</b> {}{own}</li>", escape(&title), escape(&reported(entry)));
        written += 1;
    }
    if !cell.is_empty() {
        text.push_str("</ul></li>\n");
    }
    text.push_str("</ul>\n");
    if written == 0 {
        text.push_str("<p>No row.</p>\n");
    }
    text.push_str("</div>\n");
}

fn reported(entry: &Entry<'_, '_>) -> String {
    let outcome = &entry.row.outcome;
    match (&outcome.standing, &outcome.winner, &outcome.advantage) {
        (Standing::Behind(peers), Some(winner), Some(lead)) => {
            let others: Vec<&str> = peers.iter().map(String::as_str).filter(|peer| peer != winner).collect();
            let also = if others.is_empty() { String::new() } else { format!("; also {}", others.join(", ")) };
            format!("{winner} {} {}{also}", times(lead), over(lead))
        }
        (Standing::Ahead, _, Some(lead)) => format!("{} {}", times(lead), over(lead)),
        _ => sentence(outcome),
    }
}

fn beside(text: &mut String, scenarios: &[Scenario<'_>]) {
    let reported = itself::beside(scenarios);
    if reported.is_empty() {
        return;
    }
    let _ = writeln!(text, "<h3>{}</h3>\n<p class=\"soft\">{}</p>", itself::HEADING, itself::SAID);
    text.push_str(
        "<div class=\"scroll\"><table>\n<thead><tr><th>cell</th><th>side</th><th>figure</th><th>baseline</th><th>with more</th>\
         <th>ratio</th><th>limit</th><th>rounds</th></tr></thead>\n<tbody>\n",
    );
    for one in reported {
        let class = match one.is_met() {
            Some(true) => "good",
            Some(false) => "bad",
            None => "none",
        };
        let _ = writeln!(
            text,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td class=\"{class}\">{}</td><td class=\"number\">{}</td></tr>",
            broken(one.cell),
            escape(one.side),
            escape(&figure(one.figure).title),
            number(one.medians.0),
            number(one.medians.1),
            number(one.times()),
            one.limit(),
            one.rounds
        );
    }
    text.push_str("</tbody></table></div>\n");
}

/// Writes an overview table: a line for each cell, a column for each figure.
fn matrix(text: &mut String, heading: &str, entries: &[&Entry<'_, '_>]) {
    if entries.is_empty() {
        return;
    }
    let columns = columns(entries);
    let _ = writeln!(text, "<h4>{heading} {}</h4>", tally(count(entries.iter().copied())));
    text.push_str("<div class=\"scroll\"><table class=\"matrix\">\n<thead><tr><th>cell</th>");
    for column in &columns {
        let _ = write!(text, "<th>{}</th>", escape(&figure(column).title));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for (label, line) in score::lines(entries) {
        let slug = line.first().map_or("", |entry| entry.cell.slug.as_str());
        let _ = write!(text, "<tr><th scope=\"row\"><a href=\"#{slug}\">{}</a></th>", broken(&label));
        for column in &columns {
            match line.iter().find(|entry| entry.column() == *column) {
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
    let (sign, reported) = mark(outcome);
    let class = standing_class(&outcome.standing);
    let few = match (&outcome.standing, &outcome.ours) {
        (Standing::Level, Some(ours)) if ours.pairs < pairs_min(entry.cell) => {
            let pairs = if ours.pairs == 1 { "pair" } else { "pairs" };
            format!("<small>{} {pairs}</small>", ours.pairs)
        }
        _ => String::new(),
    };
    let shown = if sign == "·" {
        format!("<small>{}</small>", escape(&reported))
    } else {
        format!("{sign} {}{few}", escape(&reported))
    };
    let _ = write!(text, "<td class=\"{class}\" title=\"{}\">{shown}</td>", escape(&sentence(outcome)));
}
