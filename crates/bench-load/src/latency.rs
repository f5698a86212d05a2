//! Latency histograms with three digits from a nanosecond to ten minutes, and the rule for giving percentiles.

use crate::contract::Done;
use crate::error::{BenchError, Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The maximum latency; longer ones are clamped. Nanoseconds: ten minutes.
pub const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// Significant decimal digits of each value.
pub const DIGITS: u8 = 3;
/// The minimum number of samples beyond a percentile: fewer are not significant.
pub const SAMPLES_BEYOND_MIN: f64 = 100.0;
/// Points of a full curve for each halving of the rest.
const CURVE_TICKS: u32 = 5;
/// Points of a curve in each halving of the rest, and the maximum number of halvings.
const CURVE_STEPS: u32 = 4;
const CURVE_HALVES_MAX: u32 = 18;
/// The maximum length of a worker's encoded histogram. Bytes; a full one of three digits takes a tenth of it.
pub const TEXT_BYTES_MAX: usize = 4 << 20;

/// Latencies in nanoseconds.
#[derive(Clone)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Latency({} samples, max {} ns)", self.count(), self.max())
    }
}

impl Latency {
    /// Empty.
    #[must_use]
    #[allow(
        clippy::expect_used,
        reason = "refused are only a range or a precision that do not exist, and both are constants"
    )]
    pub fn new() -> Latency {
        Latency(Histogram::new_with_max(LATENCY_NS_MAX, DIGITS).expect("a range and a precision that exist"))
    }

    /// Adds a sample of `ns` nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Adds `count` samples of `ns` nanoseconds.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        self.0.saturating_record_n(ns, count);
    }

    /// Adds all samples of `other`.
    pub fn add(&mut self, other: &Latency) {
        // Only differing ranges are refused, and all are the same.
        let _ = self.0.add(&other.0);
    }

    /// Removes all samples.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// How many samples there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The maximum, 0 without samples. Nanoseconds.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// The mean, `None` without samples. Nanoseconds.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.0.mean())
    }

    /// The median, however few samples there are; `None` without any. Nanoseconds.
    #[must_use]
    pub fn median(&self) -> Option<u64> {
        (self.count() > 0).then(|| self.0.value_at_quantile(0.5))
    }

    /// Returns a percentile; `None` if fewer than [`SAMPLES_BEYOND_MIN`] samples are beyond it. Nanoseconds.
    #[must_use]
    pub fn percentile(&self, percentile: f64) -> Option<u64> {
        let beyond = self.0.len() as f64 * (100.0 - percentile) / 100.0;
        // A rounding error must not hide a percentile with exactly enough samples.
        (beyond + 1e-6 >= SAMPLES_BEYOND_MIN).then(|| self.0.value_at_quantile(percentile / 100.0))
    }

    /// Returns a percentile, however few samples are beyond it, for result files of other tools; 0 without samples. Nanoseconds.
    #[must_use]
    pub fn at(&self, percentile: f64) -> u64 {
        if self.count() == 0 { 0 } else { self.0.value_at_quantile(percentile / 100.0) }
    }

    /// Returns percentiles with values, as the histogram has them: denser towards the tail. Nanoseconds.
    #[must_use]
    pub fn curve_all(&self) -> Vec<(f64, u64)> {
        let point = |value: hdrhistogram::iterators::IterationValue<u64>| {
            (value.quantile_iterated_to() * 100.0, value.value_iterated_to())
        };
        self.0.iter_quantiles(CURVE_TICKS).map(point).collect()
    }

    /// Returns percentiles with milliseconds, denser towards the tail, if enough samples are beyond them.
    #[must_use]
    pub fn curve_ms(&self) -> Vec<(f64, f64)> {
        let halves = (0..CURVE_HALVES_MAX).flat_map(|half| (0..CURVE_STEPS).map(move |step| (half, step)));
        // Equal steps within each halving of the rest, and the usual percentiles.
        let mut percentiles: Vec<f64> = halves
            .map(|(half, step)| {
                let left = 100.0 / f64::from(1_u32 << half);
                100.0 - left * (1.0 - f64::from(step) / f64::from(2 * CURVE_STEPS))
            })
            .chain([90.0, 99.0, 99.9, 99.99, 99.999])
            .collect();
        percentiles.sort_by(f64::total_cmp);
        // A chart needs no more than microseconds, and percentiles with four decimals.
        let rounded = |percentile: f64| (percentile * 1e4).round() / 1e4;
        let stated =
            |percentile: f64| Some((rounded(percentile), (self.percentile(percentile)? as f64 / 1e3).round() / 1e3));
        percentiles.into_iter().map_while(stated).collect()
    }

    /// Returns the histogram in HdrHistogram's encoding: V2, compressed, base64.
    ///
    /// # Errors
    /// It cannot be compressed.
    pub fn to_text(&self) -> Result<String> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.0, &mut bytes).context(|| "cannot write a histogram".to_owned())?;
        Ok(STANDARD.encode(bytes))
    }

    /// Decodes a histogram of [`Latency::to_text`], or of another implementation of HdrHistogram.
    ///
    /// # Errors
    /// It is invalid, or its range differs from [`LATENCY_NS_MAX`].
    pub fn from_text(text: &str) -> Result<Latency> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(BenchError::new(format!(
                "a histogram of {} bytes; at most {TEXT_BYTES_MAX} are read",
                text.len()
            )));
        }
        let bytes = STANDARD.decode(text).context(|| "a histogram is not base64".to_owned())?;
        let read: Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).context(|| "not a histogram".to_owned())?;
        let mut latency = Latency::new();
        latency.0.add(&read).context(|| "the range of a histogram is not ours".to_owned())?;
        Ok(latency)
    }
}

/// Latency by percentile, more of them than in a result's figures, in milliseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Curves {
    /// From when a message was due to its acknowledgement.
    #[serde(default)]
    pub publish: Vec<(f64, f64)>,
    /// From when a message was due until it was read.
    #[serde(default)]
    pub end_to_end: Vec<(f64, f64)>,
}

impl Curves {
    /// Returns the curves of a worker's report.
    ///
    /// # Errors
    /// Its histograms are invalid.
    pub fn of(done: &Done) -> Result<Curves> {
        let curve = |text: &str| Ok(Latency::from_text(text)?.curve_ms());
        Ok(Curves { publish: curve(&done.publish)?, end_to_end: curve(&done.end_to_end)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_told_with_100_samples_beyond_it() {
        let mut latency = Latency::new();
        for ns in 1..=9_999 {
            latency.record(ns);
        }
        assert_eq!(latency.percentile(99.0), None, "99.99 samples lie beyond");
        latency.record(10_000);
        assert!(latency.percentile(99.0).is_some_and(|p99| (9_890..=9_910).contains(&p99)), "exactly 100 do now");
        assert_eq!(latency.percentile(99.9), None);
        assert!(latency.percentile(50.0).is_some());
        for _ in 0..90_000 {
            latency.record(1);
        }
        assert!(latency.percentile(99.9).is_some(), "100,000 samples have 100 beyond p99.9");
        assert_eq!(latency.percentile(99.99), None);
        assert_eq!(Latency::new().percentile(50.0), None);
    }

    #[test]
    fn a_curve_goes_as_far_as_there_are_samples_and_no_further() {
        let mut latency = Latency::new();
        for us in 1..=100_000 {
            latency.record(us * 1_000);
        }
        let curve = latency.curve_ms();
        assert!(curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1), "{curve:?}");
        assert_eq!(curve.first().map(|point| point.0), Some(0.0));
        let (last, ms) = *curve.last().expect("there is one");
        assert!(last == 99.9 && (99.8..=100.1).contains(&ms), "exactly 100 samples lie beyond p99.9: {last}, {ms}");
        for percentile in [50.0, 90.0, 99.0] {
            assert!(curve.iter().any(|point| point.0 == percentile), "{percentile}: {curve:?}");
        }
        assert!(curve.len() < 60, "{} points", curve.len());
        assert_eq!(Latency::new().curve_ms(), []);
    }

    #[test]
    fn a_histogram_goes_through_its_text_form() {
        let mut latency = Latency::new();
        for ns in (0..2_000_000).step_by(17) {
            latency.record(ns * 1_000);
        }
        let read = Latency::from_text(&latency.to_text().expect("it is written")).expect("it is read");
        assert_eq!(read.count(), latency.count());
        for percentile in [50.0, 99.0, 99.9] {
            assert_eq!(read.percentile(percentile), latency.percentile(percentile));
        }
        assert!(Latency::from_text("@").is_err());
        assert!(Latency::from_text("AAAA").is_err());
    }
}
