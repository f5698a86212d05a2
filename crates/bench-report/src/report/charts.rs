//! Charts: drawing values as SVG.
//!
//! All are [`WIDTH`] wide with a font size of 12: a phone shows one per row, a wider screen two.

pub mod bars;
pub mod curve;
pub mod ramp;
pub mod time;

use super::palette::Look;
use super::scale::Scale;
use super::svg::{Anchor, Svg};

/// Width of a chart.
pub const WIDTH: f64 = 440.0;
/// Upper estimate of the width of a character.
const CHARACTER: f64 = 7.3;
/// Height of a row of a legend.
const LEGEND_ROW: f64 = 18.0;
/// Length of the sample line in a legend.
const SAMPLE: f64 = 22.0;

/// Estimates the width of text.
#[must_use]
pub fn room(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// Shortens text to a width, if needed in its middle: names differ at both ends.
#[must_use]
pub fn fitted(text: &str, width: f64) -> String {
    let most = (width / CHARACTER).max(5.0) as usize;
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let head = most / 2;
    let tail = most - head - 1;
    text.chars().take(head).chain(['…']).chain(text.chars().skip(count - tail)).collect()
}

/// Draws a legend of names and line styles, in as many rows as needed. Returns the y coordinate below it.
pub fn legend(svg: &mut Svg, top: f64, entries: &[(String, Look)]) -> f64 {
    let (mut x, mut y) = (0.0, top);
    for (name, look) in entries {
        let name = fitted(name, WIDTH - SAMPLE - 10.0);
        let width = SAMPLE + 6.0 + room(&name) + 12.0;
        if x > 0.0 && x + width - 12.0 > svg.width() {
            (x, y) = (0.0, y + LEGEND_ROW);
        }
        let middle = y + LEGEND_ROW / 2.0;
        svg.path(&format!("curve {}", look.class()), &[Some((x, middle)), Some((x + SAMPLE, middle))], "");
        svg.text("", (x + SAMPLE + 6.0, middle + 4.0), Anchor::Start, &name);
        x += width;
    }
    if entries.is_empty() { top } else { y + LEGEND_ROW }
}

/// Draws the ticks of a vertical axis with horizontal grid lines.
fn across(svg: &mut Svg, scale: Scale, ticks: usize, left: f64, right: f64) {
    for (value, label) in scale.ticks(ticks) {
        let y = scale.place(value);
        svg.line("grid", (left, y), (right, y));
        svg.text("tick value", (left - 5.0, y + 4.0), Anchor::End, &label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::palette::System;

    #[test]
    fn long_names_are_shortened_in_their_middle() {
        assert_eq!(fitted("kafka", 100.0), "kafka");
        assert_eq!(fitted("rate=10000/partitions=1000", 85.0), "rate=…=1000");
    }

    #[test]
    fn a_legend_has_as_many_rows_as_needed() {
        let mut svg = Svg::new("", "", WIDTH);
        let look = Look { system: System::Kafka, nth: 0 };
        let of = |count: usize| vec![("rocketmq-tuned".to_owned(), look); count];
        assert_eq!(legend(&mut svg, 5.0, &of(0)), 5.0);
        assert_eq!(legend(&mut svg, 0.0, &of(2)), LEGEND_ROW);
        assert!(legend(&mut svg, 0.0, &of(12)) >= 4.0 * LEGEND_ROW);
    }
}
