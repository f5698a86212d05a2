//! Latency by percentile, with the axes of HdrHistogram's plots.

use super::{WIDTH, across, legend};
use crate::report::palette::Look;
use crate::report::scale::{Scale, short};
use crate::report::stats::median;
use crate::report::svg::{Anchor, Svg};
use std::collections::BTreeMap;

/// The percentile curves of a side, one per round: percentile and milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// The side.
    pub name: String,
    /// Colour and line style.
    pub look: Look,
    /// The rounds.
    pub rounds: Vec<Vec<(f64, f64)>>,
}

/// Limit on points that are all shown as dots.
const DOTS_MAX: usize = 8;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = WIDTH - 14.0;

/// A percentile with median, minimum and maximum of the rounds.
type Point = (f64, f64, f64, f64);

impl Curve {
    /// Returns the percentiles that at least half of the rounds have.
    fn points(&self) -> Vec<Point> {
        let mut by_percentile: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for (percentile, ms) in
            self.rounds.iter().flatten().filter(|(p, ms)| (0.0..100.0).contains(p) && ms.is_finite())
        {
            by_percentile.entry((percentile * 1e6).round() as u64).or_default().push(*ms);
        }
        let reported = by_percentile.into_iter().filter(|(_, values)| 2 * values.len() >= self.rounds.len());
        let point = |(percentile, values): (u64, Vec<f64>)| {
            let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
            Some((percentile as f64 / 1e6, median(&values)?, low, high))
        };
        reported.filter_map(point).collect()
    }
}

/// Draws the curves, with `note` below. `None` if no curve has two points.
#[must_use]
pub fn draw(title: &str, curves: &[Curve], note: &str) -> Option<Svg> {
    let points: Vec<(&Curve, Vec<Point>)> =
        curves.iter().map(|curve| (curve, curve.points())).filter(|(_, points)| !points.is_empty()).collect();
    let all = || points.iter().flat_map(|(_, points)| points.iter());
    let high = all().map(|point| point.0).fold(f64::MIN, f64::max);
    let low = all().map(|point| point.0).fold(f64::MAX, f64::min);
    // A single point is not drawn; it is in the table.
    if points.iter().all(|(_, points)| points.len() < 2) {
        return None;
    }
    let mut svg = Svg::new(title, &described(&points), WIDTH);
    let entries: Vec<(String, Look)> = points.iter().map(|(curve, _)| (curve.name.clone(), curve.look)).collect();
    let top = legend(&mut svg, 0.0, &entries) + 8.0;
    let bottom = top + HEIGHT;
    let across_scale = Scale::percentile(low.min(50.0), high.max(99.0)).drawn(LEFT, RIGHT);
    let up = Scale::log(all().flat_map(|(_, middle, low, high)| [*middle, *low, *high])).drawn(bottom, top);
    across(&mut svg, up, 5, LEFT, RIGHT);
    for (percentile, label) in across_scale.ticks(5) {
        let x = across_scale.place(percentile);
        svg.line("grid", (x, top), (x, bottom));
        svg.text("tick value", (x, bottom + 15.0), Anchor::Middle, &label);
    }
    svg.line("axis", (LEFT, bottom), (RIGHT, bottom));
    svg.text("note", (0.0, bottom + 15.0), Anchor::Start, "ms");
    for (curve, points) in &points {
        draw_curve(&mut svg, curve, points, across_scale, up);
    }
    svg.text("note", ((LEFT + RIGHT) / 2.0, bottom + 31.0), Anchor::Middle, "percentile");
    let mut height = bottom + 38.0;
    if !note.is_empty() {
        svg.text("note", (0.0, height + 10.0), Anchor::Start, note);
        height += 18.0;
    }
    svg.set_height(height);
    Some(svg)
}

fn draw_curve(svg: &mut Svg, curve: &Curve, points: &[Point], across: Scale, up: Scale) {
    let class = curve.look.class();
    let at = |percentile: f64, ms: f64| (across.place(percentile), up.place(ms));
    if curve.rounds.len() > 1 {
        let above = points.iter().map(|(p, _, _, high)| at(*p, *high));
        let below = points.iter().rev().map(|(p, _, low, _)| at(*p, *low));
        svg.area(&format!("band {class}"), &above.chain(below).collect::<Vec<_>>());
    }
    let line: Vec<Option<(f64, f64)>> = points.iter().map(|(p, ms, ..)| Some(at(*p, *ms))).collect();
    svg.path(&format!("curve {class}"), &line, "");
    let is_marked = |percentile: f64| points.len() <= DOTS_MAX || [50.0, 90.0, 99.0, 99.9, 99.99].contains(&percentile);
    for (percentile, ms, low, high) in points.iter().filter(|point| is_marked(point.0)) {
        let spread =
            if curve.rounds.len() > 1 { format!(" ({}–{})", short(*low), short(*high)) } else { String::new() };
        let tells = format!("{} p{percentile}: {} ms{spread}", curve.name, short(*ms));
        svg.dot(&format!("point {class}"), at(*percentile, *ms), 3.2, &tells);
    }
}

fn described(points: &[(&Curve, Vec<Point>)]) -> String {
    let reported = |(curve, points): &(&Curve, Vec<Point>)| {
        let ends = [points.first(), points.last()].into_iter().flatten();
        let ends: Vec<String> = ends.map(|(p, ms, ..)| format!("p{p} {} ms", short(*ms))).collect();
        format!("{}: {}", curve.name, ends.join(" to "))
    };
    points.iter().map(reported).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::palette::System;
    use crate::report::wellformed;

    fn curve(rounds: &[&[(f64, f64)]]) -> Curve {
        let look = Look { system: System::Kafka, nth: 0 };
        Curve { name: "kafka".to_owned(), look, rounds: rounds.iter().map(|round| round.to_vec()).collect() }
    }

    #[test]
    fn a_point_is_the_median_of_the_rounds_that_have_it() {
        let rounds: [&[(f64, f64)]; 3] =
            [&[(50.0, 1.0), (99.9, 9.0)], &[(50.0, 3.0)], &[(50.0, 2.0), (100.0, 50.0), (90.0, f64::NAN)]];
        assert_eq!(curve(&rounds).points(), [(50.0, 2.0, 1.0, 3.0)], "one of three is too few, and 100 % has no place");
        assert_eq!(draw("publish", &[curve(&rounds)], ""), None, "a point is no curve");
        let more: [&[(f64, f64)]; 2] = [&[(50.0, 1.0), (99.0, 4.0)], &[(50.0, 3.0), (99.0, 6.0)]];
        let text = draw("publish", &[curve(&more)], "a note").expect("it is drawn").file();
        assert_eq!(wellformed::check(&text), Ok(()));
        assert!(text.contains("kafka p50: 2 ms (1–3)") && text.contains("a note"), "{text}");
    }

    #[test]
    fn empty_curves_are_not_drawn_and_zeros_are() {
        assert_eq!(draw("", &[], ""), None);
        assert_eq!(draw("", &[curve(&[&[]])], ""), None);
        let text = draw("", &[curve(&[&[(50.0, 0.0), (99.0, 0.0)]])], "").expect("it is drawn").file();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
