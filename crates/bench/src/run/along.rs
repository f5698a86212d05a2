//! Accompanies the workers of a run by time: takes measurements each second, and ends the warm-up.

use crate::clock::{MS_NS, SECOND_NS, unix_ns};
use crate::contract::{Measure, Second, Spec};
use crate::drive::Watch;
use crate::error::Result;
use crate::how::WarmUp;
use crate::look::{Look, Probe};
use crate::sample::Sampler;
use crate::steady::Warming;

/// Time from the command that ends a warm-up to the window: every worker has received it by then. Nanoseconds.
const MEASURE_AFTER_NS: u64 = 300 * MS_NS;

/// The course of a run.
#[derive(Debug)]
pub(super) struct Went {
    /// Measurements at the start and at each whole second after it.
    pub(super) looks: Vec<Look>,
    /// Time from the start to the window. Milliseconds.
    pub(super) warmup_ms: u64,
    /// Approximate number of messages of the warm-up.
    pub(super) warm_messages: u64,
    /// Whether a warm-up until steady took its maximum time; `None` for a fixed warm-up.
    pub(super) capped: Option<bool>,
}

pub(super) struct Along<'a> {
    probe: Probe,
    sampler: Option<Sampler<Look>>,
    /// The state of an open warm-up, until it ends.
    warming: Option<Warming>,
    opened: bool,
    warm_messages: u64,
    cap_ms: u64,
    window_ms: u64,
    start_ns: u64,
    measure: Option<Measure>,
    /// Whether the run was steady when the maximum warm-up ended.
    steady: bool,
    each_second: &'a mut dyn FnMut(&Second),
}

impl<'a> Along<'a> {
    /// Accompanies workers that run `spec`.
    pub(super) fn new(
        probe: Probe,
        warm_up: WarmUp,
        spec: Option<&Spec>,
        each_second: &'a mut dyn FnMut(&Second),
    ) -> Along<'a> {
        let opened = spec.is_some_and(|spec| spec.open_warmup);
        let warming = match warm_up {
            WarmUp::Steady(steadiness) if opened => Some(Warming::new(steadiness)),
            _ => None,
        };
        Along {
            probe,
            sampler: None,
            warming,
            opened,
            warm_messages: 0,
            cap_ms: spec.map_or(0, |spec| spec.warmup_ms),
            window_ms: spec.map_or(0, |spec| spec.window_ms),
            start_ns: 0,
            measure: None,
            steady: false,
            each_second,
        }
    }

    pub(super) fn finish(self) -> Went {
        let stated = self.measure.map(|measure| (measure.measure_ns - self.start_ns) / MS_NS);
        Went {
            looks: self.sampler.map(Sampler::finish).unwrap_or_default(),
            warmup_ms: stated.unwrap_or(self.cap_ms),
            warm_messages: self.warm_messages,
            capped: self.opened.then_some(stated.is_none() && !self.steady),
        }
    }
}

/// Returns the first whole second after the start that every worker can still be notified of; `None` if the warm-up ends by then anyway.
fn window_begins(start_ns: u64, now_ns: u64, cap_ms: u64) -> Option<u64> {
    let passed = now_ns.saturating_add(MEASURE_AFTER_NS).saturating_sub(start_ns);
    let measure_ns = start_ns + passed.div_ceil(SECOND_NS) * SECOND_NS;
    (measure_ns < start_ns.saturating_add(cap_ms.saturating_mul(MS_NS))).then_some(measure_ns)
}

impl Watch for Along<'_> {
    fn started(&mut self, pids: &[u32], start_ns: u64) -> Result<()> {
        self.start_ns = start_ns;
        let mut probe = self.probe.clone();
        probe.with_clients(pids);
        self.sampler = Some(Sampler::start_at(start_ns, move || probe.look())?);
        Ok(())
    }

    fn second(&mut self, second: &Second) -> Option<Measure> {
        (self.each_second)(second);
        let warming = self.warming.as_mut()?;
        let warm = warming.second(second, self.probe.broker_cpu_s());
        self.warm_messages = warming.messages();
        let over = (second.second + 1).saturating_mul(1_000) >= self.cap_ms;
        self.steady = warm;
        if warm && !over {
            let measure_ns = window_begins(self.start_ns, unix_ns(), self.cap_ms);
            self.measure = measure_ns.map(|measure_ns| Measure { measure_ns, window_ms: self.window_ms });
        }
        if over || self.measure.is_some() {
            self.warming = None;
        }
        self.measure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_begins_with_a_whole_second_before_the_longest_warm_up_is_over() {
        let start = 1_000 * SECOND_NS;
        assert_eq!(window_begins(start, start + 61 * SECOND_NS, 90_000), Some(start + 62 * SECOND_NS));
        assert_eq!(
            window_begins(start, start + 61_800 * MS_NS, 90_000),
            Some(start + 63 * SECOND_NS),
            "time to hear it"
        );
        assert_eq!(window_begins(start, start + 89_500 * MS_NS, 90_000), None);
    }
}
