//! A minimal SVG writer: the elements of the charts.
//!
//! Colours come from CSS classes (see [`super::palette`]), so that a chart is light or dark with its page. Inline in HTML it uses the page's
//! style sheet; as a file it contains its own.

use super::palette;
use std::fmt::Write;

/// Style sheet of marks, lines and text; colours are variables.
pub const STYLE: &str = include_str!("assets/chart.css");
/// The XML namespace of SVG.
const NAMESPACE: &str = "http://www.w3.org/2000/svg";

/// Escapes text for HTML and SVG, between tags and in attributes. Characters that XML does not allow are removed.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(character),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}

/// Formats a coordinate with one decimal digit.
pub(super) fn place(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Alignment of text relative to its coordinate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The coordinate is its start.
    Start,
    /// The coordinate is its middle.
    Middle,
    /// The coordinate is its end.
    End,
}

/// A chart being drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Svg {
    title: String,
    description: String,
    width: f64,
    height: f64,
    body: String,
    stamp: &'static str,
}

// Writing to a string cannot fail.
impl Svg {
    /// Creates an empty chart. Title and description are for screen readers.
    #[must_use]
    pub fn new(title: &str, description: &str, width: f64) -> Svg {
        Svg {
            title: title.to_owned(),
            description: description.to_owned(),
            width,
            height: 0.0,
            body: String::new(),
            stamp: "",
        }
    }

    /// Sets the height.
    pub fn set_height(&mut self, height: f64) {
        self.height = height;
    }

    /// Sets a stamp across the chart.
    pub fn set_stamp(&mut self, stamp: &'static str) {
        self.stamp = stamp;
    }

    fn stamped(&self) -> String {
        let (x, y) = (place(self.width / 2.0), place(self.height / 2.0));
        match self.stamp {
            "" => String::new(),
            stamp => format!(
                "<text class=\"stamp\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" transform=\"rotate(-14 {x} {y})\">{}</text>\n",
                escape(stamp)
            ),
        }
    }

    /// Returns the width.
    #[must_use]
    pub fn width(&self) -> f64 {
        self.width
    }

    /// Returns the title.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Draws a straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.body,
            r#"<line class="{class}" x1="{}" y1="{}" x2="{}" y2="{}"/>"#,
            place(from.0),
            place(from.1),
            place(to.0),
            place(to.1)
        );
    }

    /// Draws a rectangle with a tooltip, which may be empty.
    pub fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), tells: &str) {
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{}" y="{}" width="{}" height="{}""#,
            place(at.0),
            place(at.1),
            place(size.0.max(0.0)),
            place(size.1.max(0.0))
        );
        let _ = match tells {
            "" => writeln!(self.body, "/>"),
            _ => writeln!(self.body, "><title>{}</title></rect>", escape(tells)),
        };
    }

    /// Draws text.
    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{}" y="{}"{anchor}>{}</text>"#,
            place(at.0),
            place(at.1),
            escape(text)
        );
    }

    /// Draws a dot with a tooltip.
    pub fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, tells: &str) {
        let _ = writeln!(
            self.body,
            r#"<circle class="{class}" cx="{}" cy="{}" r="{}"><title>{}</title></circle>"#,
            place(at.0),
            place(at.1),
            place(radius),
            escape(tells)
        );
    }

    /// Draws a line through points; `None` is a gap. `attributes`: further attributes, escaped by the caller.
    pub fn path(&mut self, class: &str, points: &[Option<(f64, f64)>], attributes: &str) {
        let mut data = String::new();
        let mut pen_is_down = false;
        for point in points {
            let Some((x, y)) = point else {
                pen_is_down = false;
                continue;
            };
            let _ = write!(data, "{}{} {}", if pen_is_down { 'L' } else { 'M' }, place(*x), place(*y));
            pen_is_down = true;
        }
        if !data.is_empty() {
            let _ = writeln!(self.body, r#"<path class="{class}" d="{data}"{attributes}/>"#);
        }
    }

    /// Draws a filled polygon.
    pub fn area(&mut self, class: &str, points: &[(f64, f64)]) {
        let reported: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", place(*x), place(*y))).collect();
        if reported.len() > 2 {
            let _ = writeln!(self.body, r#"<polygon class="{class}" points="{}"/>"#, reported.join(" "));
        }
    }

    /// Returns the chart for embedding in a page. `id` must be unique in the page.
    #[must_use]
    pub fn inline(&self, id: &str) -> String {
        format!(
            "<svg class=\"chart\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\n\
             <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>\n{}{}</svg>\n",
            escape(&self.title),
            escape(&self.description),
            self.body,
            self.stamped(),
            w = place(self.width),
            h = place(self.height),
        )
    }

    /// Returns the chart as a file, with its title.
    #[must_use]
    pub fn file(&self) -> String {
        let (width, height) = (self.width + 2.0 * MARGIN, self.height + HEAD + MARGIN);
        let (x, y, w, h) = (place(-MARGIN), place(-HEAD), place(width), place(height));
        let (title, description) = (escape(&self.title), escape(&self.description));
        format!(
            "<svg xmlns=\"{NAMESPACE}\" viewBox=\"{x} {y} {w} {h}\" width=\"{}\" height=\"{}\" role=\"img\" aria-labelledby=\"t d\">\n\
             <title id=\"t\">{title}</title><desc id=\"d\">{description}</desc>\n<style>{}{STYLE}</style>\n\
             <rect class=\"ground\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"/>\n\
             <text class=\"name\" x=\"0\" y=\"-14\">{title}</text>\n{}{}</svg>\n",
            place(width * FILE_TIMES),
            place(height * FILE_TIMES),
            palette::style(),
            self.body,
            self.stamped(),
        )
    }
}

/// Margin of a file, and height of its title.
const MARGIN: f64 = 14.0;
const HEAD: f64 = 32.0;
/// Scale factor of files: charts are drawn for phones.
const FILE_TIMES: f64 = 1.4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::wellformed;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("<script>\"&'"), "&lt;script&gt;&quot;&amp;&#39;");
        assert_eq!(escape("a\u{0}\u{1b}b"), "ab", "XML does not allow these");
        let mut svg = Svg::new("<script>", "a & b", 10.0);
        svg.text("t", (1.0, 2.0), Anchor::End, "</svg><script>");
        svg.rect("r", (0.0, 0.0), (-1.0, 1.0), "<b>");
        svg.dot("d", (0.0, 0.0), 1.0, "]]>");
        svg.set_height(5.0);
        svg.set_stamp("a < b");
        for text in [svg.file(), svg.inline("x")] {
            assert!(!text.contains("<script") && !text.contains("<b>"), "{text}");
            assert_eq!(wellformed::check(&text), Ok(()));
        }
    }

    #[test]
    fn a_gap_interrupts_a_path() {
        let mut svg = Svg::new("", "", 1.0);
        svg.path("p", &[Some((0.0, 0.0)), Some((1.0, 1.25)), None, Some((3.0, 3.0))], "");
        svg.path("q", &[None], "");
        let text = svg.file();
        assert!(text.contains(r#"d="M0 0L1 1.2M3 3""#) || text.contains(r#"d="M0 0L1 1.3M3 3""#), "{text}");
        assert!(!text.contains(r#"class="q""#), "an empty path is not drawn");
    }
}
