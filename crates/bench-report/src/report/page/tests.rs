use super::*;
use crate::latency::Curves;
use crate::report::scenario::{NotRun, ScenarioText};
use crate::report::wellformed;
use crate::results::{ResultLine, Series};

fn input(lines: &[ResultLine]) -> Input<'_> {
    Input { lines, scenarios: &[], not_run: &[] }
}

fn page(lines: &[ResultLine]) -> String {
    let text = html(input(lines));
    assert_eq!(wellformed::check(&text), Ok(()));
    text
}

fn line(cell: &str, side: &str, round: u32, p99: f64) -> ResultLine {
    let figures =
        [("publish_p50_ms", p99 / 3.0), ("publish_p99_ms", p99), ("produce_cpu_s_per_million", p99), ("files", 20.0)];
    let mut line = ResultLine::example(cell, side, round, &figures);
    let reported = line.conditions.as_mut().expect("it has some");
    (reported.rate, reported.warmup_ms, reported.window_ms) = (1_000, 1_000, 3_000);
    let seconds = vec![900, 0, 1_000, 1_000, 7];
    line.series = Some(Series { acked: seconds.clone(), publish_us: seconds, ..Series::default() });
    line.curves = Some(Curves { publish: vec![(0.0, 0.1), (50.0, p99 / 3.0), (99.0, p99)], end_to_end: Vec::new() });
    line
}

fn rounds(cell: &str, ours: f64, theirs: f64) -> Vec<ResultLine> {
    (1..=5).flat_map(|round| [line(cell, "polylogue-sync", round, ours), line(cell, "kafka", round, theirs)]).collect()
}

/// The tags of the page without the text between them: only text may contain URLs.
fn tags(page: &str) -> String {
    page.split('<').skip(1).filter_map(|part| part.split_once('>')).map(|(tag, _)| tag).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let mut lines = rounds("A4/x", 1.0, 2.0);
    lines[0].failures.push("see https://example.org/".to_owned());
    let text = page(&lines);
    assert!(text.contains("https://example.org/"), "text may name an address");
    for bad in ["http:", "https:", "src=", "@import", "url(", "<link", "<img", "<iframe"] {
        assert!(!tags(&text).contains(bad.trim_start_matches('<')) || bad == "<img", "{bad}");
        for part in [PAGE_STYLE, SCRIPT, STYLE, &palette::style()] {
            assert!(!part.contains(bad), "{bad} in style or script");
        }
    }
    assert!(!text.contains("<link") && !text.contains("<img") && !text.contains("<iframe"));
}

#[test]
fn text_of_lines_is_escaped() {
    let evil = "A4/<script>alert(1)</script>\"'&";
    let mut lines = rounds(evil, 1.0, 2.0);
    for line in &mut lines {
        line.commit = "<b>".to_owned();
        line.machine.processor = "</p><script>".to_owned();
        line.figures.insert("<i>_per_s".to_owned(), 1.0);
        line.conditions.as_mut().expect("it has some").durability = "<img src=x>".to_owned();
    }
    lines[1].side = "</td><script>".to_owned();
    lines[3].failures.push("<script>".to_owned());
    let text = page(&lines);
    assert_eq!(text.matches("<script").count(), 1, "the page's own script only");
    assert!(!text.contains("<img") && !text.contains("<i>") && !text.contains("<b>\n"), "nothing else became markup");
    assert!(
        text.replace("<wbr>", "").contains("A4/&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"),
        "it is reported unchanged"
    );
}

#[test]
fn a_page_without_lines_states_that_nothing_was_measured() {
    assert!(page(&[]).contains("nothing has been measured"));
}

#[test]
fn one_side_only_and_missing_figures_have_no_verdict() {
    let mut lines =
        vec![line("A4/x", "kafka", 1, 2.0), line("A4/y", "polylogue-sync", 1, 1.0), line("A4/y", "kafka", 1, 2.0)];
    lines[2].figures.clear();
    lines[2].conditions = None;
    lines[2].series = None;
    lines[2].curves = None;
    let text = page(&lines);
    assert!(text.contains("polylogue was not run"), "a cell without polylogue");
    assert!(!text.contains("chip good") && !text.contains("chip bad"), "no side is ahead");
}

#[test]
fn losses_come_before_wins() {
    let lines: Vec<ResultLine> = [rounds("A4/won", 1.0, 2.0), rounds("A4/lost", 3.0, 1.0)].concat();
    let text = page(&lines);
    let (behind, ahead) = (text.find("Where polylogue is behind"), text.find("Where polylogue is ahead"));
    assert!(behind.is_some() && behind < ahead, "losses come first");
    assert!(text.contains("<b>publish p99</b> kafka 3.00× over polylogue-sync, 5 pairs"), "{text}");
    assert!(text.contains("<b>publish p99</b> 2.00× over kafka (its default profile), 5 pairs"), "{text}");
    assert!(text.contains("▼ 3.0×") && text.contains("▲ 2.0×"));
}

#[test]
fn a_smoke_run_is_marked_and_has_no_winner() {
    let mut lines = rounds("A4/x", 1.0, 2.0);
    lines.iter_mut().for_each(|line| line.quick = true);
    let text = page(&lines);
    assert!(text.contains("<body class=\"quick\">") && text.contains(SMOKE));
    assert!(!text.contains("chip good") && !text.contains("chip bad") && !text.contains("number winner"));
    assert_eq!(
        text.matches("class=\"chart\"").count(),
        text.matches("class=\"stamp\"").count(),
        "every chart has the stamp"
    );
}

#[test]
fn failed_and_omitted_runs_are_listed() {
    let mut lines = rounds("A4/x", 1.0, 2.0);
    for line in lines.iter_mut().filter(|line| line.side == "polylogue-sync") {
        line.failures.push("the rate was not held: 50.0 % acknowledged".to_owned());
    }
    let scenarios = [
        ScenarioText { id: "A4", title: "Latency", what: "w", published: "p < q", scaled: "" },
        ScenarioText { id: "F3", title: "A node lost", what: "", published: "", scaled: "" },
        ScenarioText { id: "F4", title: "Soak", what: "", published: "", scaled: "" },
    ];
    let not_run = [NotRun { what: "F3", target: "", reason: "it needs three nodes" }];
    let text = html(Input { lines: &lines, scenarios: &scenarios, not_run: &not_run });
    assert_eq!(wellformed::check(&text), Ok(()));
    assert!(
        text.contains(
            "no run of polylogue counts (rate missed: the rate was not held: 50.0 % acknowledged), runs of kafka do"
        ),
        "among the rows in which polylogue is behind"
    );
    assert!(text.contains("<span class=\"chip mark\">polylogue-sync: rate missed</span>"));
    assert!(text.contains("polylogue-sync in round 1: the rate was not held"));
    assert!(text.contains("p &lt; q") && text.contains("As published."), "published and here side by side");
    assert!(text.contains("it needs three nodes") && text.contains("F4 Soak"));
    assert_eq!(text.matches("<td class=\"words\">no result lines</td>").count(), 1, "F3 has another reason");
}

/// Regression test: the bare loops were listed under "Not run" although there were lines.
#[test]
fn bare_loops_with_lines_are_not_listed_as_not_run() {
    let scenarios = [ScenarioText { id: "bare", title: "The machine alone", what: "w", published: "", scaled: "" }];
    let reported =
        |lines: &[ResultLine]| html(Input { lines, scenarios: &scenarios, not_run: &[] }).contains(">no result lines<");
    let mut lines = rounds("A4/x", 1.0, 2.0);
    assert!(reported(&lines));
    lines.push(ResultLine { conditions: None, ..ResultLine::example("bare", "machine", 1, &[]) });
    assert!(!reported(&lines));
}

#[test]
fn ids_are_unique_and_links_resolve() {
    let lines = [rounds("A4/a=1", 1.0, 2.0), rounds("A4/a-1", 1.0, 2.0), rounds("zz", 1.0, 2.0)].concat();
    let text = page(&lines);
    let attribute = |name: &str| {
        let start = format!(" {name}=\"");
        text.match_indices(&start)
            .filter_map(|(at, _)| text.get(at + start.len()..)?.split('"').next())
            .collect::<Vec<_>>()
    };
    let ids = attribute("id");
    let unique: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), unique.len(), "{ids:?}");
    for link in attribute("href") {
        assert!(link.strip_prefix('#').is_some_and(|id| unique.contains(id)), "{link}");
    }
}

#[test]
fn the_client_alone_is_shown_and_not_compared() {
    let mut lines = rounds("A4/x", 1.0, 2.0);
    let compared = |lines: &[ResultLine]| score::entries(&scenarios(input(lines))).len();
    let before = compared(&lines);
    assert!(!page(&lines).contains("Client alone:"));
    lines.push(line("floors/x", "null", 1, 0.3));
    let text = page(&lines);
    let said = "Client alone: raw (kafka) with the null broker, publish p50 0.10, p99 0.30 ms (<a href=\"#floors-x\">";
    assert_eq!(text.matches("Client alone:").count(), 1, "not in its own cell");
    assert!(text.contains(said) && text.contains("id=\"floors-x\""), "{text}");
    let summary =
        text.split("id=\"floors-x\"").nth(1).and_then(|rest| rest.split("</summary>").next()).unwrap_or_default();
    assert!(!summary.contains("no verdict"), "{summary}");
    assert_eq!(compared(&lines), before, "it has no rows on the first page");
    let book = crate::report::book::book(input(&lines)).text;
    assert!(
        book.contains("Client alone: raw (kafka) with the null broker, publish p50 0.10, p99 0.30 ms (floors/x)."),
        "{book}"
    );
}
