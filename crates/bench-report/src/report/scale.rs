//! Axes: mapping values to coordinates, and ticks.
//!
//! ```text
//!   linear       0    20    40    60        steps of 1, 2 or 5 times a power of ten
//!   log          0.1  1     10    100       decades; with 3, or 2 and 5, between if there is room
//!   percentile   50   90   99   99.9        as in HdrHistogram's plots: by the logarithm of 1 - p
//! ```

use super::stats::number;

/// The kind of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Linear.
    Linear,
    /// Logarithmic. Values up to 0 are at the lower end.
    Log,
    /// Percentiles below 100, by the logarithm of the share beyond them.
    Percentile,
}

/// An axis: a range of values, mapped to a range of coordinates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

/// Limit on decades that all have a tick.
const DECADES_MAX: i32 = 7;
/// Percentiles that have a tick.
const PERCENTILES: [f64; 7] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999];

impl Scale {
    /// Creates a linear axis from 0, or the minimum if negative, to a round value above the maximum.
    #[must_use]
    pub fn linear(values: impl IntoIterator<Item = f64>, ticks: usize) -> Scale {
        let (low, high) = extent(values.into_iter().chain([0.0])).unwrap_or((0.0, 1.0));
        let high = if high > low { high } else { low + 1.0 };
        let step = nice_step(high - low, ticks);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Scale { kind: Kind::Linear, low, high, from: 0.0, to: 1.0 }
    }

    /// Creates a logarithmic axis around the positive values, with a margin.
    #[must_use]
    pub fn log(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = extent(values.into_iter().filter(|value| *value > 0.0)).unwrap_or((1.0, 10.0));
        // At least half a decade wide, so that noise does not fill the chart.
        let widen = (10_f64.powf(0.5) / (high / low)).max(1.0).sqrt();
        Scale { kind: Kind::Log, low: low / widen / 1.15, high: high * widen * 1.15, from: 0.0, to: 1.0 }
    }

    /// Creates an axis of percentiles, clamped below 100.
    #[must_use]
    pub fn percentile(low: f64, high: f64) -> Scale {
        let low = low.clamp(0.0, 99.0);
        Scale { kind: Kind::Percentile, low, high: high.clamp(low + 0.5, 99.999_9), from: 0.0, to: 1.0 }
    }

    /// Sets the range of coordinates.
    #[must_use]
    pub fn drawn(self, from: f64, to: f64) -> Scale {
        Scale { from, to, ..self }
    }

    fn along(&self, value: f64) -> f64 {
        match self.kind {
            Kind::Linear => value,
            Kind::Log => value.max(self.low).log10(),
            Kind::Percentile => -(1.0 - value.min(99.999_9) / 100.0).log10(),
        }
    }

    /// Returns the coordinate of a value, clamped to the range.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let (low, high) = (self.along(self.low), self.along(self.high));
        let share = if value.is_nan() { 0.0 } else { ((self.along(value) - low) / (high - low)).clamp(0.0, 1.0) };
        self.from + share * (self.to - self.from)
    }

    /// Returns about `about` ticks: values with labels.
    #[must_use]
    pub fn ticks(&self, about: usize) -> Vec<(f64, String)> {
        match self.kind {
            Kind::Linear => self.linear_ticks(about),
            Kind::Log => self.log_ticks(about).into_iter().map(|value| (value, short(value))).collect(),
            Kind::Percentile => {
                let inside = |value: &f64| (self.low..=self.high + 1e-9).contains(value);
                PERCENTILES.into_iter().filter(inside).map(|value| (value, format!("{value}"))).collect()
            }
        }
    }

    fn linear_ticks(&self, about: usize) -> Vec<(f64, String)> {
        let step = nice_step(self.high - self.low, about);
        let count = ((self.high - self.low) / step + 1e-6).floor() as usize;
        let first = (self.low / step).ceil() * step;
        let digits = (-(step.log10() + 1e-9).floor()).clamp(0.0, 9.0) as usize;
        let label = |value: f64| if step >= 1.0 { short(value) } else { format!("{value:.digits$}") };
        (0..=count).map(|at| first + step * at as f64).map(|value| (value, label(value))).collect()
    }

    fn log_ticks(&self, about: usize) -> Vec<f64> {
        let (low, high) = (self.low.log10(), self.high.log10());
        let (first, last) = (low.floor() as i32, high.ceil() as i32);
        let every = (last - first).div_euclid(DECADES_MAX) + 1;
        // Ticks between decades, as space permits.
        let between: &[f64] = match about as f64 / (high - low) {
            room if room >= 3.0 => &[1.0, 2.0, 5.0],
            room if room >= 2.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let decades = (first..=last).filter(|decade| decade.rem_euclid(every) == 0);
        let all = decades.flat_map(|decade| between.iter().map(move |times| times * 10_f64.powi(decade)));
        all.filter(|value| (self.low..=self.high).contains(value)).collect()
    }
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |so_far: Option<(f64, f64)>, value| {
        Some(so_far.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    })
}

/// Returns 1, 2 or 5 times a power of ten, such that a span has about `about` of them.
fn nice_step(span: f64, about: usize) -> f64 {
    let rough = (span / about.max(1) as f64).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| rough <= times * power * 1.000_001).unwrap_or(10.0);
    times * power
}

/// Formats a number briefly: 250k, 1.2M, 0.05.
#[must_use]
pub fn short(value: f64) -> String {
    let size = value.abs();
    let trimmed = |value: f64, unit: &str| {
        // Three significant digits.
        let digits = if value.abs() >= 100.0 { 0 } else { usize::from(value.abs() < 10.0) + 1 };
        let text = format!("{value:.digits$}");
        let text = if text.contains('.') { text } else { format!("{text}.") };
        format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match size {
        v if !v.is_finite() => number(value),
        v if v >= 1e9 => trimmed(value / 1e9, "G"),
        v if v >= 1e6 => trimmed(value / 1e6, "M"),
        v if v >= 10_000.0 => trimmed(value / 1e3, "k"),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 0.01 || v == 0.0 => trimmed(value, ""),
        _ => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, about: usize) -> Vec<String> {
        scale.ticks(about).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn linear_ticks_are_round_and_cover_all_values() {
        assert_eq!(labels(Scale::linear([3.0, 94.0], 5), 5), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(Scale::linear([0.13], 4), 4), ["0.00", "0.05", "0.10", "0.15"]);
        assert_eq!(labels(Scale::linear([450_000.0], 5), 5), ["0", "100k", "200k", "300k", "400k", "500k"]);
        let scale = Scale::linear([-3.0, 5.0], 4);
        assert!(scale.place(-3.0) > 0.0 && scale.place(5.0) <= 1.0, "negative values are within the range");
    }

    #[test]
    fn an_axis_without_values_or_with_zeros_only_can_be_drawn() {
        for scale in [Scale::linear([], 4), Scale::linear([0.0, 0.0], 4), Scale::log([]), Scale::log([0.0, -1.0])] {
            assert!(scale.ticks(4).len() >= 2, "{scale:?}");
            assert!(
                [0.0, 1.0, -1.0, f64::NAN, f64::INFINITY].iter().all(|value| scale.place(*value).is_finite()),
                "{scale:?}"
            );
        }
    }

    #[test]
    fn a_log_axis_has_zeros_at_its_lower_end_and_decades_at_equal_steps() {
        let scale = Scale::log([0.0, 0.1, 1_000.0]).drawn(0.0, 100.0);
        assert_eq!(scale.place(0.0), 0.0);
        assert_eq!(labels(scale, 5), ["0.1", "1", "10", "100", "1000"]);
        let step = scale.place(10.0) - scale.place(1.0);
        assert!((scale.place(100.0) - scale.place(10.0) - step).abs() < 1e-9);
        assert_eq!(labels(Scale::log([1.0, 9.0]), 5), ["1", "2", "5", "10"], "ticks between decades");
        assert_eq!(labels(Scale::log([0.3, 29.0]), 5), ["0.3", "1", "3", "10", "30"]);
        assert_eq!(labels(Scale::log([0.3, 29.0]), 3), ["1", "10"]);
        assert!(labels(Scale::log([1e-6, 1e9]), 5).len() <= 8, "not every decade has a tick");
        assert!(labels(Scale::log([5.0, 5.0]), 5).len() >= 2, "a single value has an axis around it");
    }

    #[test]
    fn percentiles_are_placed_by_the_share_beyond_them() {
        let scale = Scale::percentile(0.0, 99.99).drawn(0.0, 4.0);
        for (percentile, place) in [(0.0, 0.0), (90.0, 1.0), (99.0, 2.0), (99.9, 3.0), (99.99, 4.0), (100.0, 4.0)] {
            assert!((scale.place(percentile) - place).abs() < 1e-6, "{percentile}: {}", scale.place(percentile));
        }
        assert_eq!(labels(scale, 5), ["0", "50", "90", "99", "99.9", "99.99"]);
        assert_eq!(labels(Scale::percentile(50.0, 99.0), 5), ["50", "90", "99"]);
    }

    #[test]
    fn numbers_are_brief() {
        let reported: Vec<String> =
            [0.0, 0.05, 0.001, 1.5, 250.0, 9_999.0, 250_000.0, 1.25e6, 3e9].into_iter().map(short).collect();
        assert_eq!(reported, ["0", "0.05", "1e-3", "1.5", "250", "9999", "250k", "1.25M", "3G"]);
    }
}
