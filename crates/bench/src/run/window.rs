//! The cost of a run's window, of broker and client, without the warm-up, in which programs compile and caches fill.

use super::along::Went;
use super::{MILLION, OneSide};
use crate::contract::{Second, whole_seconds};

/// The cost of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WindowCost {
    /// Its whole seconds.
    window_s: f64,
    /// Messages acknowledged in them.
    acked: u64,
    /// Processor time of the broker. Seconds; `None` for a running broker that was named.
    broker_cpu_s: Option<f64>,
    /// The same of the clients.
    client_cpu_s: Option<f64>,
    /// The same of the brokers that are up without a load.
    others_cpu_s: Option<f64>,
}

impl WindowCost {
    /// Computes it for a window of `window_ms`; `None` if it has no whole second, as in a smoke run.
    pub(super) fn of(seconds: &[Second], went: &Went, window_ms: u64) -> Option<WindowCost> {
        let whole = whole_seconds(went.warmup_ms, window_ms);
        let look = |second: u64| went.looks.get(usize::try_from(second).ok()?);
        let (first, last) = look(whole.start).zip(look(whole.end)).filter(|_| !whole.is_empty())?;
        let inside = seconds.iter().filter(|second| whole.contains(&second.second));
        Some(WindowCost {
            window_s: (whole.end - whole.start) as f64,
            acked: inside.map(|second| second.acked).sum(),
            broker_cpu_s: first.broker.zip(last.broker).map(|(first, last)| last.cpu_s - first.cpu_s),
            client_cpu_s: first.client_cpu_s.zip(last.client_cpu_s).map(|(first, last)| last - first),
            others_cpu_s: first.others_cpu_s.zip(last.others_cpu_s).map(|(first, last)| last - first),
        })
    }

    /// Returns the processor time per million messages, of the broker and of the clients. Seconds.
    pub(super) fn per_million(&self) -> (Option<f64>, Option<f64>) {
        let each = |cpu_s: f64| cpu_s / (self.acked as f64 / MILLION);
        (self.broker_cpu_s.map(each), self.client_cpu_s.map(each))
    }

    /// Returns the cores used by the clients. `None` if unknown.
    pub(super) fn client_cores(&self) -> Option<f64> {
        self.client_cpu_s.map(|cpu_s| cpu_s / self.window_s)
    }
}

impl OneSide<'_> {
    /// Records the cost of a window. A lagging reader is served in it as well: that is not the cost of writing.
    pub(super) fn window_costs(&mut self, cost: Option<WindowCost>) {
        let Some(cost) = cost else { return };
        let (broker, client) = cost.per_million();
        let reads_behind = self.load.cold_bytes_per_s > 0;
        let broker_name = if reads_behind { "with_reader_cpu_s_per_million" } else { "produce_cpu_s_per_million" };
        for (name, value) in [
            (broker_name, broker),
            ("produce_client_cpu_s_per_million", client.filter(|_| !reads_behind)),
            ("window_cpu_cores", cost.broker_cpu_s.map(|cpu_s| cpu_s / cost.window_s)),
            ("idle_brokers_cpu_cores", cost.others_cpu_s.map(|cpu_s| cpu_s / cost.window_s)),
            ("window_client_cpu_cores", cost.client_cores()),
        ] {
            if let Some(value) = value {
                self.figure(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Look;
    use crate::sample::Sample;

    /// Regression test: a broker that compiles for two seconds and is cheap afterwards was reported at three times its cost.
    #[test]
    fn what_a_warm_up_has_cost_is_not_the_windows() {
        let looks = [0.0, 1.0, 2.0, 2.1, 2.2, 2.3].map(|cpu_s| Look {
            broker: Some(Sample { cpu_s, ..Sample::default() }),
            client_cpu_s: Some(2.0 * cpu_s),
            ..Look::default()
        });
        let went = Went { looks: looks.into(), warmup_ms: 2_000, warm_messages: 0, capped: None };
        let seconds: Vec<Second> =
            (0..5).map(|second| Second { second, acked: 100_000, ..Second::default() }).collect();
        let cost = WindowCost::of(&seconds, &went, 3_000).expect("three seconds");
        let (broker, client) = cost.per_million();
        assert_eq!(broker.map(|s| (s * 100.0).round()), Some(100.0), "0.3 s for 300,000 messages");
        assert_eq!(client.map(|s| (s * 100.0).round()), Some(200.0));
        assert_eq!(WindowCost::of(&seconds, &went, 900), None, "it has no whole second");
    }
}
