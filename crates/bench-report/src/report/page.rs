//! The report as one self-contained HTML file: style, script and charts are embedded.
//!
//! ```text
//!   head        machine, date and commit; links to the scenarios
//!   first       rows ahead and behind; floors
//!   scenario    published and measured settings; bars; each cell with its tables, curves and conditions
//!   not run     omissions with reasons
//!   reading     rules and terms
//! ```
//!
//! The page works without the script, which adds a choice of light or dark, a filter, and tooltips.

mod cell;
mod first;
mod floor;

use super::model::{Scenario, scenarios, slug};
use super::palette;
use super::pictures;
use super::scenario::Input;
use super::score::{self, Count};
use super::svg::{STYLE, escape};
use super::{commits, dates, floors, machines};
use std::fmt::Write;

const PAGE_STYLE: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/page.js");
/// Text of a smoke run.
pub const SMOKE: &str =
    "SMOKE RUN. These figures only show that every cell runs. They are not comparable and have no winner.";
/// Terms and rules of the report.
pub const RULES: [(&str, &str); 9] = [
    (
        "Ahead",
        "A side is ahead if all of its alternating pairs of rounds agree, and there are at least three pairs; five in the rows measured most. Otherwise the sides are level. A win is over every measured profile of a peer: the row names the default profile, the tuned one, or the closer of both.",
    ),
    (
        "Values",
        "Median of the rounds, with minimum and maximum in parentheses. Ratios are of pairs: median, minimum and maximum; above 1 the named side is better, whether lower or higher values are better.",
    ),
    (
        "Latency",
        "Measured from when a message was due, not from when it was sent. A percentile is reported only with 100 samples beyond it. p99.9 and beyond are compared with native clients only, because a JVM client has pauses of its own.",
    ),
    (
        "Client-bound",
        "The client used 85 % or more of the processor time it can use, so that the broker may be faster. Only the broker's CPU then has a winner.",
    ),
    (
        "Rate missed",
        "Less than 99 % of the rate was acknowledged, or the last messages were late: latencies are not compared.",
    ),
    ("Warm", "Reads that should have been from the disk were from memory: the run does not count."),
    (
        "Failed",
        "Messages were lost, duplicated or out of order, or there was an error: the run does not count and is listed.",
    ),
    (
        "Same client, own client",
        "Sides with the same client, and sides with each system's own client, are in separate tables.",
    ),
    (
        "Memory",
        "Verdicts are on anonymous memory. File-mapped memory and page cache, which the system can reclaim, are shown separately.",
    ),
];

/// Returns the page.
#[must_use]
pub fn html(input: Input<'_>) -> String {
    let scenarios = scenarios(input);
    let quick = input.lines.iter().any(|line| line.quick);
    let mut text = String::new();
    let _ = write!(
        text,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Message brokers, side by side</title>\n<style>{}{STYLE}{PAGE_STYLE}</style>\n</head>\n<body{}>\n",
        palette::style(),
        if quick { " class=\"quick\"" } else { "" }
    );
    head(&mut text, input, &scenarios, quick);
    text.push_str("<main>\n");
    first::write(&mut text, input, &scenarios);
    for scenario in scenarios.iter().filter(|scenario| !scenario.cells.is_empty()) {
        section(&mut text, scenario, &scenarios);
    }
    not_run(&mut text, input, &scenarios);
    rules(&mut text);
    let _ = write!(text, "</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n");
    text
}

// Writing to a string cannot fail, here and below.
fn head(text: &mut String, input: Input<'_>, scenarios: &[Scenario<'_>], quick: bool) {
    text.push_str("<header>\n<div class=\"top\"><h1>Message brokers, side by side</h1><button id=\"theme\" type=\"button\" hidden>Light or dark</button></div>\n");
    for machine in machines(input.lines) {
        let _ = writeln!(text, "<p class=\"where\">{}</p>", escape(&machine));
    }
    if !input.lines.is_empty() {
        let reported = format!("{}; commit {}.", dates(input.lines), commits(input.lines).join(", "));
        let _ = writeln!(text, "<p class=\"where\">{}</p>", escape(&reported));
    }
    if quick {
        let _ = writeln!(text, "<p class=\"smoke\">{SMOKE}</p>");
    }
    text.push_str("</header>\n<nav aria-label=\"Scenarios\"><a href=\"#first\">First page</a>");
    for scenario in scenarios.iter().filter(|scenario| !scenario.cells.is_empty()) {
        let _ = write!(text, "<a href=\"#{}\">{}</a>", anchor(scenario), escape(scenario.id));
    }
    text.push_str("<a href=\"#not-run\">Not run</a><a href=\"#reading\">How to read it</a></nav>\n");
}

/// Returns the id of a scenario's section.
fn anchor(scenario: &Scenario<'_>) -> String {
    format!("scenario-{}", slug(scenario.id))
}

fn section(text: &mut String, scenario: &Scenario<'_>, all: &[Scenario<'_>]) {
    let title = scenario.text.map_or("", |reported| reported.title);
    let heading = match title {
        "" => escape(scenario.id),
        title => format!("<span class=\"id\">{}</span> {}", escape(scenario.id), escape(title)),
    };
    let _ = writeln!(text, "<section id=\"{}\" class=\"scenario\">\n<h2>{heading}</h2>", anchor(scenario));
    if let Some(reported) = scenario.text {
        let _ = writeln!(text, "<p class=\"what\">{}</p>\n<div class=\"settings\">", escape(reported.what));
        for (heading, said, otherwise) in
            [("Published", reported.published, "No published result."), ("Run here", reported.scaled, "As published.")]
        {
            let said = if said.is_empty() { otherwise } else { said };
            let _ = writeln!(text, "<div><h3>{heading}</h3><p>{}</p></div>", escape(said));
        }
        text.push_str("</div>\n");
    }
    figures(text, &pictures::of_scenario(scenario), "b");
    for (at, cell) in scenario.cells.iter().enumerate() {
        cell::write(text, cell, floors::beside(all, cell).as_ref(), at == 0);
    }
    text.push_str("</section>\n");
}

/// Writes charts side by side, as many as fit.
fn figures(text: &mut String, pictures: &[pictures::Picture], prefix: &str) {
    if pictures.is_empty() {
        return;
    }
    text.push_str("<div class=\"figures\">\n");
    for picture in pictures {
        let _ = write!(
            text,
            "<figure><h4>{}</h4>\n{}",
            escape(picture.svg.title()),
            picture.svg.inline(&format!("{prefix}-{}", picture.name))
        );
        if !picture.caption.is_empty() {
            let _ = write!(text, "<figcaption>{}</figcaption>", escape(&picture.caption));
        }
        text.push_str("</figure>\n");
    }
    text.push_str("</div>\n");
}

fn not_run(text: &mut String, input: Input<'_>, scenarios: &[Scenario<'_>]) {
    text.push_str("<section id=\"not-run\">\n<h2>Not run</h2>\n");
    let rows = super::not_run(input, scenarios);
    if rows.is_empty() {
        text.push_str("<p>Everything was run.</p>\n");
    } else {
        text.push_str("<div class=\"scroll\"><table>\n<thead><tr><th>what</th><th>system</th><th>why</th></tr></thead>\n<tbody>\n");
        for (what, target, reason) in rows {
            let _ = writeln!(
                text,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"words\">{}</td></tr>",
                escape(&what),
                escape(&target),
                escape(&reason)
            );
        }
        text.push_str("</tbody></table></div>\n");
    }
    text.push_str("</section>\n");
}

fn rules(text: &mut String) {
    text.push_str("<section id=\"reading\">\n<h2>How to read it</h2>\n<dl>\n");
    for (term, said) in RULES {
        let _ = writeln!(text, "<div><dt>{term}</dt><dd>{said}</dd></div>");
    }
    text.push_str("</dl>\n</section>\n");
}

/// Returns a cell's name with a line-break opportunity after each of its parts.
fn broken(name: &str) -> String {
    escape(name).replace('/', "/<wbr>")
}

/// Formats counts: "1 behind, 12 ahead, 3 level", each with its colour; zeros are omitted.
fn tally(count: Count) -> String {
    let mut text = String::new();
    for (number, what, class) in [
        (count.behind, "behind", "bad"),
        (count.ahead, "ahead", "good"),
        (count.level, "level", "even"),
        (count.undecided, "no verdict", "none"),
    ] {
        if number > 0 {
            let _ = write!(text, "<span class=\"chip {class}\">{number} {what}</span>");
        }
    }
    text
}

fn standing_class(standing: &super::judge::Standing) -> &'static str {
    use super::judge::Standing;
    match standing {
        Standing::Ahead => "good",
        Standing::Behind(_) => "bad",
        Standing::Level => "even",
        Standing::Undecided(_) => "none",
    }
}

#[cfg(test)]
mod tests;
