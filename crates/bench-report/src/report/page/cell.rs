//! A cell on the page: tables, curves, conditions, and runs that do not count.

use super::{figures, standing_class, tally};
use crate::report::conditions;
use crate::report::figures::{CAPPED, figure};
use crate::report::floors::Beside;
use crate::report::judge::Standing;
use crate::report::model::{Cell, Mark, Row, Rows, Side, Table};
use crate::report::palette::System;
use crate::report::pictures;
use crate::report::score::{Count, pairs_min};
use crate::report::svg::escape;
use crate::report::words::{over, times, value, verdict};
use std::fmt::Write;

/// Writes a cell, with the floor of its client. `is_open`: expanded at first.
pub(super) fn write(text: &mut String, cell: &Cell<'_>, floor: Option<&Beside<'_>>, is_open: bool) {
    let tables: Vec<(Table<'_>, Rows<'_>)> = cell
        .tables()
        .into_iter()
        .map(|table| {
            let rows = cell.rows(&table, pairs_min(cell));
            (table, rows)
        })
        .collect();
    // The client alone has no peers.
    let compared = tables.iter().filter(|_| !cell.is_floor());
    let count = counted(compared.flat_map(|(_, rows)| &rows.figures));
    let _ = write!(
        text,
        "<details class=\"cell\" id=\"{}\" data-name=\"{}\" data-behind=\"{}\"{}>\n<summary><span class=\"name\">{}</span>{}",
        cell.slug,
        escape(&cell.name.to_lowercase()),
        count.behind,
        if is_open { " open" } else { "" },
        escape(cell.rest()),
        if cell.quick { "<span class=\"chip none\">smoke run</span>".to_owned() } else { tally(count) }
    );
    for side in cell.sides.iter().filter(|side| side.mark != Mark::Counts) {
        let _ = write!(text, "<span class=\"chip mark\">{}: {}</span>", escape(side.name), side.mark.text());
    }
    for side in cell.sides.iter().filter(|side| cell.values(side, CAPPED).iter().any(|capped| *capped > 0.0)) {
        let _ = write!(text, "<span class=\"chip mark\">{}: warm-up capped</span>", escape(side.name));
    }
    text.push_str("</summary>\n");
    for (table, rows) in &tables {
        write_table(text, table, rows);
    }
    if let Some(floor) = floor {
        write_floor(text, floor);
    }
    figures(text, &pictures::of_cell(cell), "c");
    write_conditions(text, cell);
    text.push_str("</details>\n");
}

fn counted<'r>(rows: impl Iterator<Item = &'r Row<'r>>) -> Count {
    let mut count = Count::default();
    for row in rows {
        match &row.outcome.standing {
            Standing::Ahead => count.ahead += 1,
            Standing::Behind(_) => count.behind += 1,
            Standing::Level => count.level += 1,
            // A figure in which no side can be better needs no verdict.
            Standing::Undecided(why) if why.is_empty() => {}
            Standing::Undecided(_) => count.undecided += 1,
        }
    }
    count
}

fn write_floor(text: &mut String, floor: &Beside<'_>) {
    let ((client, speaks), (name, slug)) = (floor.client, floor.cell);
    let _ = writeln!(
        text,
        "<p class=\"soft\">Client alone: {} ({speaks}) with the null broker, publish {} (<a href=\"#{slug}\">{}</a>).</p>",
        escape(client),
        escape(&floor.reported()),
        super::broken(name)
    );
}

fn write_table(text: &mut String, table: &Table<'_>, rows: &Rows<'_>) {
    let heading = if table.is_same_client { "The same client on all sides" } else { "Each system with its own client" };
    let clients: Vec<String> = clients(&table.sides);
    let _ = writeln!(
        text,
        "<h4>{heading}<span class=\"soft\"> {}</span></h4>\n<div class=\"scroll\"><table class=\"rows\">",
        escape(&clients.join(", "))
    );
    write_head(text, &table.sides);
    for row in rows.figures.iter().chain(&rows.circumstances) {
        write_row(text, &table.sides, row);
    }
    text.push_str("</tbody></table></div>\n");
    if !rows.steps.is_empty() {
        text.push_str(
            "<details class=\"steps\"><summary>By rate</summary>\n<div class=\"scroll\"><table class=\"rows\">\n",
        );
        write_head(text, &table.sides);
        rows.steps.iter().for_each(|row| write_row(text, &table.sides, row));
        text.push_str("</tbody></table></div></details>\n");
    }
}

fn write_head(text: &mut String, sides: &[Side<'_>]) {
    text.push_str("<thead><tr><th>figure</th><th>ahead</th>");
    for side in sides {
        let _ = write!(text, "<th><i class=\"sign {}\"></i>{}</th>", side.system.class(), escape(side.name));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
}

fn clients(sides: &[Side<'_>]) -> Vec<String> {
    let mut reported: Vec<String> = Vec::new();
    for side in sides.iter().filter(|side| side.system != System::Null) {
        let (client, speaks) = side.client;
        let said = if client.is_empty() { String::new() } else { format!("{client} ({speaks})") };
        if !said.is_empty() && !reported.contains(&said) {
            reported.push(said);
        }
    }
    reported
}

fn write_row(text: &mut String, sides: &[Side<'_>], row: &Row<'_>) {
    let known = figure(row.figure);
    let unit = if known.unit.is_empty() { String::new() } else { format!(" <small>{}</small>", known.unit) };
    let is_circumstance = matches!(&row.outcome.standing, Standing::Undecided(why) if why.is_empty());
    let class = if is_circumstance { " class=\"circumstance\"" } else { "" };
    let _ = write!(text, "<tr{class}><th scope=\"row\">{}{unit}</th>", escape(&known.title));
    if is_circumstance {
        text.push_str("<td></td>");
    } else {
        let by = row.outcome.advantage.as_ref();
        let by = by.map(|lead| format!("<small>{} {}</small>", times(lead), escape(&over(lead)))).unwrap_or_default();
        let (class, reported) = (standing_class(&row.outcome.standing), escape(&verdict(&row.outcome)));
        let _ = write!(text, "<td class=\"verdict\"><span class=\"chip {class}\">{reported}</span>{by}</td>");
    }
    for (side, values) in sides.iter().zip(&row.values) {
        let is_winner = row.outcome.winner.as_deref() == Some(side.name);
        let class = if is_winner { "number winner" } else { "number" };
        let reported = match (value(values), side.mark) {
            (Some((middle, spread)), _) => {
                format!("{middle}{}", spread.map(|spread| format!("<small>{spread}</small>")).unwrap_or_default())
            }
            (None, Mark::Counts) => "–".to_owned(),
            (None, mark) => format!("<small>{}</small>", mark.text()),
        };
        let _ = write!(text, "<td class=\"{class}\">{reported}</td>");
    }
    text.push_str("</tr>\n");
}

fn write_conditions(text: &mut String, cell: &Cell<'_>) {
    text.push_str("<details class=\"conditions\"><summary>Conditions</summary>\n<div class=\"scroll\"><table>\n<thead><tr><th></th>");
    for side in &cell.sides {
        let _ = write!(text, "<th>{}</th>", escape(side.name));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for (name, values) in conditions::of_cell(cell) {
        let _ = write!(text, "<tr><th scope=\"row\">{}</th>", escape(&name));
        let is_same = values.windows(2).all(|pair| pair.first() == pair.last());
        if is_same && values.len() > 1 {
            let same = values.first().map(String::as_str).unwrap_or_default();
            let _ = write!(text, "<td class=\"words\" colspan=\"{}\">{}</td>", values.len(), escape(same));
        } else {
            for value in &values {
                let _ = write!(text, "<td class=\"words\">{}</td>", escape(value));
            }
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div></details>\n");
    let failures = conditions::failures(cell);
    if !failures.is_empty() {
        text.push_str("<details class=\"failures\" open><summary>Runs that do not count</summary>\n<ul>\n");
        for failure in failures {
            let _ = writeln!(text, "<li>{}</li>", escape(&failure));
        }
        text.push_str("</ul></details>\n");
    }
}
