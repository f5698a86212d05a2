//! Bar charts: the median of each side, with minimum and maximum of its rounds.

use super::{CHARACTER, WIDTH, fitted, room};
use crate::report::palette::Look;
use crate::report::scale::{Scale, short};
use crate::report::stats::median;
use crate::report::svg::{Anchor, Svg};

/// A bar, or a note instead of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// The side.
    pub name: String,
    /// Colour and line style.
    pub look: Look,
    /// The values of its rounds; for a stacked bar those of each part, from the left.
    pub parts: Vec<Vec<f64>>,
    /// Note after it: "client-bound", "rate missed".
    pub note: String,
}

/// A group of bars that are compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// Heading of the group.
    pub heading: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A bar chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart<'a> {
    /// Its title.
    pub title: &'a str,
    /// Unit of the values.
    pub unit: &'a str,
    /// Names of the parts of stacked bars; empty for bars with one part.
    pub parts: &'a [&'a str],
    /// The groups of bars.
    pub groups: &'a [Bars],
}

const BAR: f64 = 13.0;
const ROW: f64 = 20.0;
const HEADING: f64 = 20.0;
/// Widths reserved for values after the bars, and for notes after those.
const VALUES: f64 = 112.0;
const NOTES: f64 = 86.0;
/// If the values of groups differ by more than this factor, each group has a scale of its own.
const APART: f64 = 20.0;

impl Bar {
    fn medians(&self) -> Vec<f64> {
        self.parts.iter().filter_map(|values| median(values)).collect()
    }

    /// Returns the largest value drawn.
    fn reach(&self) -> f64 {
        let sum: f64 = self.medians().iter().sum();
        match self.parts.as_slice() {
            [values] => values.iter().copied().fold(sum, f64::max),
            _ => sum,
        }
    }
}

fn reach(group: &Bars) -> f64 {
    group.bars.iter().map(Bar::reach).fold(0.0, f64::max)
}

/// Draws the chart. `None` if no bar has a value.
#[must_use]
pub fn draw(chart: &Chart<'_>) -> Option<Svg> {
    let most = chart.groups.iter().map(reach).fold(0.0, f64::max);
    let least = chart.groups.iter().map(reach).filter(|reach| *reach > 0.0).fold(f64::MAX, f64::min);
    if most <= 0.0 {
        return None;
    }
    let is_own = most > APART * least;
    let names = chart.groups.iter().flat_map(|group| &group.bars).map(|bar| room(&bar.name)).fold(0.0, f64::max);
    let left = (names + 8.0).min(120.0);
    let has_notes =
        chart.groups.iter().flat_map(|group| &group.bars).any(|bar| !bar.note.is_empty() && bar.reach() > 0.0);
    let right = WIDTH - VALUES - if has_notes { NOTES } else { 0.0 };
    let title = match chart.unit {
        "" => chart.title.to_owned(),
        unit => format!("{}, {unit}", chart.title),
    };
    let mut svg = Svg::new(&title, &described(chart), WIDTH);
    let mut y = 0.0;
    if !chart.parts.is_empty() {
        y = part_legend(&mut svg, chart.parts);
    }
    for group in chart.groups.iter().filter(|group| !group.bars.is_empty()) {
        let top = if is_own { reach(group) } else { most };
        let scale = Scale::linear([top], 4).drawn(left, right);
        if !group.heading.is_empty() {
            svg.text("name", (0.0, y + 14.0), Anchor::Start, &fitted(&group.heading, WIDTH));
            y += HEADING;
        }
        svg.line("axis", (left, y), (left, y + ROW * group.bars.len() as f64 - 2.0));
        for bar in &group.bars {
            draw_bar(&mut svg, bar, scale, y, chart);
            y += ROW;
        }
        y += 6.0;
    }
    if is_own {
        svg.text("note", (0.0, y + 10.0), Anchor::Start, "Each group has a scale of its own.");
        y += 16.0;
    }
    svg.set_height(y);
    Some(svg)
}

fn part_legend(svg: &mut Svg, parts: &[&str]) -> f64 {
    let mut x = 0.0;
    for (at, part) in parts.iter().enumerate() {
        let class = if at == 0 { "swatch".to_owned() } else { format!("swatch part{at}") };
        svg.rect(&class, (x, 3.0), (11.0, 11.0), "");
        svg.text("", (x + 16.0, 13.0), Anchor::Start, part);
        x += 16.0 + room(part) + 12.0;
    }
    24.0
}

fn draw_bar(svg: &mut Svg, bar: &Bar, scale: Scale, y: f64, chart: &Chart<'_>) {
    let (left, middle) = (scale.place(0.0), y + ROW / 2.0);
    svg.text("", (left - 6.0, middle + 4.0), Anchor::End, &fitted(&bar.name, left));
    let medians = bar.medians();
    if medians.is_empty() {
        let note = if bar.note.is_empty() { "no value" } else { &bar.note };
        svg.text("note", (left + 6.0, middle + 4.0), Anchor::Start, note);
        return;
    }
    let mut so_far = 0.0;
    for (at, value) in medians.iter().enumerate() {
        let part = if at == 0 { "bar".to_owned() } else { format!("part{at}") };
        let class = format!("{part} {}", bar.look.class());
        let (from, to) = (scale.place(so_far), scale.place(so_far + value));
        let what = chart.parts.get(at).copied().unwrap_or(chart.title);
        let tells = format!("{}: {what} {} {}", bar.name, short(*value), chart.unit);
        svg.rect(&class, (from, middle - BAR / 2.0), ((to - from).max(0.8), BAR), tells.trim_end());
        so_far += value;
    }
    let mut end = scale.place(so_far);
    let mut reported = short(so_far);
    if let [values] = bar.parts.as_slice() {
        let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
        if values.len() > 1 {
            let (from, to) = (scale.place(low), scale.place(high));
            svg.line("whisker", (from, middle), (to, middle));
            for x in [from, to] {
                svg.line("whisker", (x, middle - 3.0), (x, middle + 3.0));
            }
            end = to;
            if short(low) != short(high) {
                reported = format!("{reported} ({}–{})", short(low), short(high));
            }
        }
    }
    let reported = if bar.note.is_empty() { reported } else { format!("{reported} {}", bar.note) };
    // Never beyond the right edge: a long note overlaps the end of the bar.
    let x = (end + 6.0).min(WIDTH - reported.chars().count() as f64 * (CHARACTER - 0.6)).max(left + 4.0);
    svg.text("value", (x, middle + 4.0), Anchor::Start, &reported);
}

fn described(chart: &Chart<'_>) -> String {
    let reported = |bar: &Bar| match bar.medians().as_slice() {
        [] => format!("{} none", bar.name),
        medians => format!("{} {}", bar.name, medians.iter().map(|v| short(*v)).collect::<Vec<_>>().join(" + ")),
    };
    let groups = chart.groups.iter().map(|group| {
        let bars: Vec<String> = group.bars.iter().map(reported).collect();
        format!("{}: {}", group.heading, bars.join(", "))
    });
    groups.collect::<Vec<_>>().join(". ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::palette::System;
    use crate::report::wellformed;

    fn bar(name: &str, parts: &[&[f64]], note: &str) -> Bar {
        let look = Look { system: System::of_target(name), nth: 0 };
        Bar {
            name: name.to_owned(),
            look,
            parts: parts.iter().map(|part| part.to_vec()).collect(),
            note: note.to_owned(),
        }
    }

    #[test]
    fn bars_show_median_and_spread_and_notes() {
        let bars = vec![bar("kafka", &[&[100.0, 300.0, 200.0]], "client-bound"), bar("pulsar", &[&[]], "rate missed")];
        let groups = [Bars { heading: "<a>".to_owned(), bars }];
        let svg =
            draw(&Chart { title: "written", unit: "messages/s", parts: &[], groups: &groups }).expect("it is drawn");
        let text = svg.file();
        assert_eq!(wellformed::check(&text), Ok(()));
        assert!(text.contains(">200 (100–300) client-bound</text>") && text.contains(">rate missed</text>"), "{text}");
        assert_eq!(text.matches(r#"class="bar "#).count(), 1, "a side with a note only has no bar: {text}");
    }

    #[test]
    fn parts_are_stacked_and_a_chart_without_values_is_none() {
        let groups = [Bars { heading: String::new(), bars: vec![bar("kafka", &[&[10.0], &[20.0], &[]], "")] }];
        let svg =
            draw(&Chart { title: "memory", unit: "MiB", parts: &["anonymous", "mapped", "cache"], groups: &groups });
        let text = svg.expect("it is drawn").file();
        assert!(text.contains("kafka: mapped 20 MiB") && text.contains(">30</text>"), "{text}");
        let none = [Bars { heading: String::new(), bars: vec![bar("kafka", &[&[0.0]], ""), bar("kafka", &[], "")] }];
        assert_eq!(draw(&Chart { title: "", unit: "", parts: &[], groups: &none }), None);
    }

    #[test]
    fn groups_of_different_magnitudes_have_scales_of_their_own() {
        let group = |value: f64| Bars { heading: String::new(), bars: vec![bar("kafka", &[&[value]], "")] };
        let is_own = |a, b| {
            let groups = [group(a), group(b)];
            draw(&Chart { title: "", unit: "", parts: &[], groups: &groups })
                .expect("drawn")
                .file()
                .contains("of its own")
        };
        assert!(is_own(1.0, 1_000.0) && !is_own(100.0, 1_000.0));
    }
}
