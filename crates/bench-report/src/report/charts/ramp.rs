//! A figure of a ladder by offered rate, with the rates that were missed.

use super::{WIDTH, across, legend};
use crate::report::palette::Look;
use crate::report::scale::{Scale, short};
use crate::report::stats::median;
use crate::report::svg::{Anchor, Svg};

/// The steps of a side.
#[derive(Debug, Clone, PartialEq)]
pub struct Ramp {
    /// The side.
    pub name: String,
    /// Colour and line style.
    pub look: Look,
    /// Each rate, the values of its rounds, and whether all rounds met the rate.
    pub steps: Vec<(u64, Vec<f64>, bool)>,
}

const HEIGHT: f64 = 170.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = WIDTH - 22.0;
/// Height reserved above the values for marks of missed rates.
const MISSED: f64 = 16.0;

/// Draws the ramps. `None` if no step has a value.
#[must_use]
pub fn draw(title: &str, unit: &str, is_log: bool, ramps: &[Ramp]) -> Option<Svg> {
    let steps = || ramps.iter().flat_map(|ramp| &ramp.steps);
    let values = || steps().flat_map(|(_, values, _)| values.iter().copied());
    values().next()?;
    let mut svg = Svg::new(title, &described(ramps, unit), WIDTH);
    let shown = || ramps.iter().filter(|ramp| !ramp.steps.is_empty());
    let entries: Vec<(String, Look)> = shown().map(|ramp| (ramp.name.clone(), ramp.look)).collect();
    let top = legend(&mut svg, 0.0, &entries) + 6.0;
    let bottom = top + MISSED + HEIGHT;
    let rates = Scale::log(steps().map(|(rate, ..)| *rate as f64)).drawn(LEFT, RIGHT);
    let up = if is_log { Scale::log(values()) } else { Scale::linear(values(), 4) };
    let up = up.drawn(bottom, top + MISSED);
    across(&mut svg, up, 4, LEFT, RIGHT);
    for (rate, label) in rates.ticks(6) {
        let x = rates.place(rate);
        svg.line("grid", (x, top + MISSED), (x, bottom));
        svg.text("tick value", (x, bottom + 15.0), Anchor::Middle, &label);
    }
    svg.line("axis", (LEFT, bottom), (RIGHT, bottom));
    svg.text("note", (0.0, bottom + 15.0), Anchor::Start, if unit.len() < 6 { unit } else { "" });
    let mut lost = false;
    for (nth, ramp) in shown().enumerate() {
        let class = ramp.look.class();
        let point =
            |(rate, values, _): &(u64, Vec<f64>, bool)| Some((rates.place(*rate as f64), up.place(median(values)?)));
        svg.path(&format!("curve {class}"), &ramp.steps.iter().map(point).collect::<Vec<_>>(), "");
        for step in &ramp.steps {
            let (rate, values, is_met) = step;
            if let (Some(at), Some(value)) = (point(step), median(values)) {
                let tells = format!("{} at {}/s: {} {unit}", ramp.name, short(*rate as f64), short(value));
                svg.dot(&format!("point {class}"), at, 3.4, tells.trim_end());
            }
            if !is_met {
                lost = true;
                // Side by side if several sides miss the same rate.
                let x = rates.place(*rate as f64) + 7.0 * (nth as f64 - (entries.len() as f64 - 1.0) / 2.0);
                let y = top + MISSED / 2.0;
                for (from, to) in [((-3.2, -3.2), (3.2, 3.2)), ((-3.2, 3.2), (3.2, -3.2))] {
                    svg.line(&format!("gc {class}"), (x + from.0, y + from.1), (x + to.0, y + to.1));
                }
            }
        }
    }
    let below = if lost { "offered rate, messages a second · ×: missed" } else { "offered rate, messages a second" };
    svg.text("note", ((LEFT + RIGHT) / 2.0, bottom + 31.0), Anchor::Middle, below);
    svg.set_height(bottom + 38.0);
    Some(svg)
}

fn described(ramps: &[Ramp], unit: &str) -> String {
    let reported = |ramp: &Ramp| {
        let step = |(rate, values, is_met): &(u64, Vec<f64>, bool)| match median(values) {
            _ if !is_met => format!("{}/s missed", short(*rate as f64)),
            Some(value) => format!("{}/s {} {unit}", short(*rate as f64), short(value)),
            None => format!("{}/s", short(*rate as f64)),
        };
        format!("{}: {}", ramp.name, ramp.steps.iter().map(step).collect::<Vec<_>>().join(", "))
    };
    ramps.iter().map(reported).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::palette::System;
    use crate::report::wellformed;

    #[test]
    fn missed_rates_are_marked() {
        let look = Look { system: System::Rabbitmq, nth: 0 };
        let steps = vec![(5_000, vec![1.0, 3.0, 2.0], true), (10_000, vec![], false)];
        let ramp = Ramp { name: "rabbitmq".to_owned(), look, steps };
        let text = draw("publish p99", "ms", true, &[ramp]).expect("it is drawn").file();
        assert_eq!(wellformed::check(&text), Ok(()));
        assert!(text.contains("rabbitmq at 5000/s: 2 ms") && text.contains("×: missed"), "{text}");
        assert_eq!(text.matches(r#"class="gc "#).count(), 2, "one cross");
    }

    #[test]
    fn steps_without_a_value_are_not_drawn() {
        let look = Look { system: System::Kafka, nth: 0 };
        assert_eq!(draw("", "", false, &[]), None);
        assert_eq!(draw("", "", false, &[Ramp { name: String::new(), look, steps: vec![(1, vec![], false)] }]), None);
    }
}
