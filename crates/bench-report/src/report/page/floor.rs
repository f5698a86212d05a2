//! The floors on the page: this machine, the null broker, and observed flushes of each broker.

use crate::report::floors;
use crate::report::model::Scenario;
use crate::report::scenario::Input;
use crate::report::svg::escape;
use crate::report::words::value;
use std::fmt::Write;

/// Writes the floors.
pub(super) fn write(text: &mut String, input: Input<'_>, scenarios: &[Scenario<'_>]) {
    text.push_str("<h3>Floors</h3>\n");
    let (bare, null, flushed) = (floors::bare(input.lines), floors::null(scenarios), floors::flushed(scenarios));
    if bare.is_empty() && null.is_empty() && flushed.is_empty() {
        text.push_str("<p>No run of the bare loops or of the null broker counts.</p>\n");
        return;
    }
    text.push_str(
        "<p class=\"soft\">Client, disk and machine without the work of a broker: lower bounds of the figures \
         above.</p>\n<div class=\"floors\">\n",
    );
    if !bare.is_empty() {
        card(text, "This machine: flushes and bare loops", &[], "");
        for (title, middle, spread, unit) in bare {
            let spread = spread.map(|spread| format!("<small>{spread}</small>")).unwrap_or_default();
            let _ = writeln!(
                text,
                "<tr><th scope=\"row\">{}<small> {unit}</small></th><td class=\"number\">{middle}{spread}</td></tr>",
                escape(&title)
            );
        }
        text.push_str("</tbody></table></div></div>\n");
    }
    if !null.is_empty() {
        let said = "Median, minimum and maximum over the cells. The null broker responds at once and stores nothing.";
        card(text, "The null broker: publish latency, ms", &["client", "cells", "p50", "p99", "p99.9"], said);
        for floor in null {
            let _ = write!(text, "<tr><th scope=\"row\">{}</th><td>{}</td>", escape(floor.client), floor.cells);
            floor.publish.iter().for_each(|values| square(text, values));
            text.push_str("</tr>\n");
        }
        text.push_str("</tbody></table></div></div>\n");
    }
    if !flushed.is_empty() {
        let said = "Flush calls counted in the running broker, to check its documented durability.";
        card(text, "Observed flushes of each broker", &["broker", "flushes/s", "bytes per flush"], said);
        for reported in flushed {
            let _ = write!(text, "<tr><th scope=\"row\">{}</th>", escape(reported.side));
            square(text, &reported.per_s);
            square(text, &reported.bytes);
            text.push_str("</tr>\n");
        }
        text.push_str("</tbody></table></div></div>\n");
    }
    text.push_str("</div>\n");
}

/// Writes the beginning of a card with a table.
fn card(text: &mut String, heading: &str, columns: &[&str], said: &str) {
    let _ = writeln!(text, "<div class=\"card\"><h4>{heading}</h4>");
    if !said.is_empty() {
        let _ = writeln!(text, "<p class=\"soft\">{said}</p>");
    }
    text.push_str("<div class=\"scroll\"><table>\n");
    if !columns.is_empty() {
        let _ = writeln!(text, "<thead><tr><th>{}</th></tr></thead>", columns.join("</th><th>"));
    }
    text.push_str("<tbody>\n");
}

fn square(text: &mut String, values: &[f64]) {
    let reported = value(values).map_or_else(
        || "–".to_owned(),
        |(middle, spread)| {
            format!("{middle}{}", spread.map(|spread| format!("<small>{spread}</small>")).unwrap_or_default())
        },
    );
    let _ = write!(text, "<td class=\"number\">{reported}</td>");
}
