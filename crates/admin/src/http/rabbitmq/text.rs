//! Prometheus' text format: like RabbitMQ, the exporter ignores the `Accept` header.

use std::fmt::{Display, Write as _};

/// The content type.
pub(super) const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Untyped,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Untyped => "untyped",
        }
    }
}

/// Label names and values.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// The text of an exposition.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// The series of one family.
#[derive(Debug)]
pub(super) struct Series<'a> {
    out: &'a mut String,
    name: &'a str,
}

impl Text {
    /// Starts a family.
    pub(super) fn family<'a>(&'a mut self, kind: Kind, name: &'a str, help: &str) -> Series<'a> {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
        Series { out: &mut self.0, name }
    }

    /// Writes a family with one series that has no labels.
    pub(super) fn one(&mut self, kind: Kind, name: &str, help: &str, value: impl Display) {
        self.family(kind, name, help).with(&[], value);
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

impl Series<'_> {
    /// Writes a series.
    pub(super) fn with(&mut self, labels: Labels<'_>, value: impl Display) {
        self.part("", labels, value);
    }

    /// Writes a series of a histogram, with the suffix of its name.
    pub(super) fn part(&mut self, suffix: &str, labels: Labels<'_>, value: impl Display) {
        let _ = write!(self.out, "{}{suffix}", self.name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.out, "{}{label}=\"", if at == 0 { '{' } else { ',' });
            for c in text.chars() {
                match c {
                    '\\' | '"' => self.out.extend(['\\', c]),
                    '\n' => self.out.push_str("\\n"),
                    c => self.out.push(c),
                }
            }
            self.out.push('"');
        }
        let _ = writeln!(self.out, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_as_scrapers_read_them() {
        let mut text = Text::default();
        text.one(Kind::Gauge, "a", "What it is", 0.5);
        let mut series = text.family(Kind::Counter, "b_total", "Another");
        series.with(&[("queue", "a \"b\" \\ c\nd"), ("vhost", "/")], 7);
        let mut series = text.family(Kind::Histogram, "c", "Sizes");
        series.part("_bucket", &[("le", "+Inf")], 2);
        series.part("_sum", &[], 3);
        let expected = "# HELP a What it is\n# TYPE a gauge\na 0.5\n# HELP b_total Another\n# TYPE b_total counter\n\
            b_total{queue=\"a \\\"b\\\" \\\\ c\\nd\",vhost=\"/\"} 7\n# HELP c Sizes\n# TYPE c histogram\nc_bucket{le=\"+Inf\"} 2\nc_sum 3\n";
        assert_eq!(text.into_string(), expected);
    }
}
