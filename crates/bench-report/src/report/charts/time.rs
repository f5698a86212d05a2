//! Time series: small panels, one below the other, with a common time axis.

use super::{WIDTH, across, legend};
use crate::report::palette::Look;
use crate::report::scale::{Scale, short};
use crate::report::svg::{Anchor, Svg};

/// The time series of one side.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The side.
    pub name: String,
    /// Colour and line style.
    pub look: Look,
    /// A value for each second.
    pub values: Vec<f64>,
    /// Milliseconds of garbage collection in each second; empty without a collector.
    pub collections_ms: Vec<f64>,
}

/// A panel: the same series of all sides.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Name of the series.
    pub title: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// Whether its axis is logarithmic.
    pub is_log: bool,
    /// The sides.
    pub runs: Vec<Run>,
}

const HEIGHT: f64 = 76.0;
const HEADING: f64 = 23.0;
/// Distance from one panel to the next.
const STEP: f64 = HEADING + HEIGHT + 8.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = WIDTH - 8.0;
/// Limit on points of a line; more cannot be distinguished.
const POINTS_MAX: usize = 360;
/// Minimum milliseconds of garbage collection in a second for a mark.
const COLLECTION_MS_MIN: f64 = 1.0;

/// Draws the panels, with the first `warmup_s` seconds shaded. `None` if no series has two values.
#[must_use]
pub fn draw(title: &str, panels: &[Panel], warmup_s: f64) -> Option<Svg> {
    let drawn: Vec<&Panel> = panels.iter().filter(|panel| panel.runs.iter().any(|run| run.values.len() > 1)).collect();
    let runs = || drawn.iter().flat_map(|panel| panel.runs.iter());
    let seconds = runs().map(|run| run.values.len()).max()?;
    let mut svg = Svg::new(title, &described(&drawn), WIDTH);
    let mut entries: Vec<(String, Look)> = Vec::new();
    for run in runs() {
        if !entries.iter().any(|(name, _)| *name == run.name) {
            entries.push((run.name.clone(), run.look));
        }
    }
    let mut y = legend(&mut svg, 0.0, &entries) + 4.0;
    let time = Scale::linear([(seconds.max(2) - 1) as f64], 6);
    // The axis ends at the last second, not at the next round number.
    let time = Time { scale: time, last: (seconds.max(2) - 1) as f64 };
    let top = y;
    for (nth, panel) in drawn.iter().enumerate() {
        draw_panel(&mut svg, panel, &time, (top, nth), warmup_s);
        y += STEP;
    }
    for (value, label) in time.scale.ticks(6).into_iter().filter(|(value, _)| *value <= time.last) {
        svg.text("tick value", (time.place(value), y + 6.0), Anchor::Middle, &label);
    }
    let mut below = "seconds".to_owned();
    if runs().any(|run| run.collections_ms.iter().any(|ms| *ms >= COLLECTION_MS_MIN)) {
        below.push_str(" · marks at the bottom of a panel: garbage collection");
    }
    svg.text("note", ((LEFT + RIGHT) / 2.0, y + 22.0), Anchor::Middle, &below);
    svg.set_height(y + 28.0);
    Some(svg)
}

struct Time {
    scale: Scale,
    last: f64,
}

impl Time {
    fn place(&self, second: f64) -> f64 {
        LEFT + (second / self.last).clamp(0.0, 1.0) * (RIGHT - LEFT)
    }
}

/// Draws panel number `nth`; the first one begins at y coordinate `first`.
fn draw_panel(svg: &mut Svg, panel: &Panel, time: &Time, (first, nth): (f64, usize), warmup_s: f64) {
    let y = first + STEP * nth as f64;
    let heading = match panel.unit {
        "" => panel.title.clone(),
        unit => format!("{}, {unit}", panel.title),
    };
    svg.text("name", (0.0, y + 13.0), Anchor::Start, &heading);
    let (top, bottom) = (y + HEADING, y + HEADING + HEIGHT);
    if warmup_s > 0.0 {
        svg.rect("warmup", (LEFT, top), (time.place(warmup_s) - LEFT, HEIGHT), "warm-up");
    }
    let values = || panel.runs.iter().flat_map(|run| run.values.iter().copied());
    let up = if panel.is_log { Scale::log(values()) } else { Scale::linear(values(), 3) };
    let up = up.drawn(bottom, top);
    across(svg, up, 3, LEFT, RIGHT);
    for (side, run) in panel.runs.iter().enumerate() {
        let (every, values) = thinned(&run.values);
        let at = |(nth, value): (usize, &f64)| {
            value.is_finite().then(|| (time.place((nth * every) as f64), up.place(*value)))
        };
        let line: Vec<Option<(f64, f64)>> = values.iter().enumerate().map(at).collect();
        let reported: Vec<String> = values.iter().map(|value| short(*value)).collect();
        // Values for the tooltip of the page's script.
        let attributes = format!(
            r#" data-name="{}" data-unit="{}" data-every="{every}" data-last="{}" data-panel="{nth}" data-top="{first}" data-step="{STEP}" data-values="{}""#,
            crate::report::svg::escape(&run.name),
            crate::report::svg::escape(panel.unit),
            time.last,
            reported.join(" ")
        );
        svg.path(&format!("thin {}", run.look.class()), &line, &attributes);
        for (second, ms) in run.collections_ms.iter().enumerate().filter(|(_, ms)| **ms >= COLLECTION_MS_MIN) {
            // Side by side if collectors of several sides ran in the same second.
            let x = time.place(second as f64) + 1.8 * side as f64;
            let tall = 3.0 + ms.log10().clamp(0.0, 3.0) * 3.0;
            svg.line(&format!("gc {}", run.look.class()), (x, bottom), (x, bottom - tall));
        }
    }
    svg.line("axis", (LEFT, bottom), (RIGHT, bottom));
}

/// Thins values to at most [`POINTS_MAX`]. Returns the interval in seconds, and the maximum of each interval: a mean would hide peaks.
fn thinned(values: &[f64]) -> (usize, Vec<f64>) {
    let every = values.len().div_ceil(POINTS_MAX).max(1);
    (every, values.chunks(every).map(|chunk| chunk.iter().copied().fold(f64::MIN, f64::max)).collect())
}

fn described(panels: &[&Panel]) -> String {
    let reported = |panel: &&Panel| {
        let most =
            |run: &Run| format!("{} at most {}", run.name, short(run.values.iter().copied().fold(0.0, f64::max)));
        let runs: Vec<String> = panel.runs.iter().map(most).collect();
        format!("{}: {} {}", panel.title, runs.join(", "), panel.unit)
    };
    panels.iter().map(reported).collect::<Vec<_>>().join(". ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::palette::System;
    use crate::report::wellformed;

    fn panel(values: &[f64], collections_ms: &[f64], is_log: bool) -> Panel {
        let look = Look { system: System::Kafka, nth: 0 };
        let (values, collections_ms) = (values.to_vec(), collections_ms.to_vec());
        let run = Run { name: "kafka & co".to_owned(), look, values, collections_ms };
        Panel { title: "publish p99".to_owned(), unit: "ms", is_log, runs: vec![run] }
    }

    #[test]
    fn panels_have_a_common_time_axis_and_marks_of_collections() {
        let panels = [panel(&[0.0, 5.0, 2.0], &[0.0, 30.0, 0.0], true), panel(&[1.0, 2.0, 3.0], &[], false)];
        let text = draw("over time", &panels, 1.0).expect("it is drawn").file();
        assert_eq!(wellformed::check(&text), Ok(()));
        assert_eq!(text.matches(r#"class="gc "#).count(), 1);
        assert_eq!(text.matches(r#"class="warmup""#).count(), 2);
        assert!(text.contains("garbage collection") && text.contains(r#"data-values="0 5 2""#), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn series_with_less_than_two_seconds_are_not_drawn() {
        assert_eq!(draw("", &[], 0.0), None);
        assert_eq!(draw("", &[panel(&[1.0], &[], false)], 0.0), None);
    }

    #[test]
    fn long_runs_are_thinned_and_keep_their_peaks() {
        let mut values = vec![1.0; 1_801];
        values[777] = 300.0;
        let (every, reported) = thinned(&values);
        assert!(reported.len() <= POINTS_MAX && every == 6);
        assert!(reported.contains(&300.0), "a peak of one second is kept");
    }
}
