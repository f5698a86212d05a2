//! Runs increasing rates on one broker.

use super::judged::{is_drained, lost};
use super::window::WindowCost;
use super::{LADDER_ENDED, MEASURED_PRODUCER, OneSide, latency_figures, make_topic};
use crate::contract::{Done, Spec};
use crate::error::{BenchError, Result};
use crate::how::WarmUp;
use crate::ladder::{Climb, Ladder, Ran, Step};
use crate::look::series;
use crate::sample::{Sample, wait_idle};

/// Distance between the producer numbers of two steps.
const STEP_PRODUCERS: u32 = 1_000;

impl OneSide<'_> {
    /// Runs the rates of the load; then the highest one that was met, as long as any other run by time.
    pub(super) fn by_ladder(&mut self) -> Result<()> {
        let ladder = self.load.how.ladder.ok_or_else(|| BenchError::new("there are no rates to step through"))?;
        let (mut climb, mut topic, mut number) = (Climb::new(&ladder), self.topic.clone(), 0);
        while let Some(step) = climb.next() {
            self.around.interrupt.check()?;
            let (held, drained) = self.step(step, &ladder, number, &topic)?;
            climb.stated(step, held);
            number += 1;
            if !drained {
                // Leftovers of a step must not count for the next one.
                topic = format!("{}-{number}", self.topic);
                make_topic(&self.running, &topic, self.load, self.system)?;
                self.topics.push(topic.clone());
            }
        }
        match climb.maximum() {
            Some(rate) => {
                self.figure("held_max_per_s", rate as f64);
                self.figure(LADDER_ENDED, f64::from(u8::from(climb.ends_at(&ladder))));
            }
            None => self.fail_in_full("no rate was met".to_owned()),
        }
        Ok(())
    }

    /// Waits until the broker is idle, or for the maximum time: an overloaded one may continue to work.
    fn quiet(&self) -> Result<Option<Sample>> {
        self.around.interrupt.check()?;
        let pids = self.running.pids();
        if pids.is_empty() || self.line.quick { Ok(None) } else { wait_idle(&pids).map(|(sample, _)| Some(sample)) }
    }

    /// Runs a step; returns whether its rate was met, and whether everything was read.
    fn step(&mut self, step: Step, ladder: &Ladder, number: u32, topic: &str) -> Result<(bool, bool)> {
        let load = self.load;
        let (rate, confirms) = match step {
            Step::Try(rate) => (rate, false),
            Step::Confirm(rate) => (rate, true),
        };
        // The first step starts cold.
        let warms = confirms || number == 0;
        // A broker that stays up was warmed by earlier steps.
        let again_ms = Some(load.how.again_warmup_ms).filter(|again_ms| number > 0 && *again_ms > 0);
        let warmup_ms = if warms { again_ms.unwrap_or(load.warmup_ms) } else { ladder.step_warmup_ms };
        let window_ms =
            if confirms { load.window_ms } else { ladder.step_ms.saturating_sub(ladder.step_warmup_ms).max(1) };
        let spec = Spec {
            topic: topic.to_owned(),
            rate,
            producer_base: MEASURED_PRODUCER + number * STEP_PRODUCERS,
            warmup_ms,
            window_ms,
            open_warmup: warms && again_ms.is_none() && matches!(load.how.warm_up, WarmUp::Steady(_)),
            ..self.spec()
        };
        let groups = spec.groups;
        let before = self.quiet()?;
        let (stated, went) = self.drive_along(&[spec])?;
        let after = self.quiet()?;
        let stated = stated.into_iter().next().unwrap_or_default();
        let (done, seconds) = (&stated.done, stated.seconds.as_slice());
        let acked = done.acked_in_window()?;
        let ran = Ran { rate, groups, warmup_ms: went.warmup_ms, window_ms, acked, done, seconds };
        let drained = self.judge_step(rate, done, went.warmup_ms + window_ms);
        let held = ran.held();
        let name = |figure: &str| format!("step.{rate}.{figure}");
        if held.is_err() {
            // The figures are of a shorter run that met this rate: a missed rate has no latency.
            let latency = |figure: &str| figure.starts_with(&name("")) && figure.ends_with("_ms");
            self.line.figures.retain(|figure, _| !latency(figure));
        }
        self.figure(&name("held"), f64::from(u8::from(held.is_ok())));
        self.figure(&name("produce_per_s"), acked as f64 / (window_ms as f64 / 1e3));
        self.figure(&name("backlog_growth_per_s"), ran.growth_per_s());
        let cost = WindowCost::of(seconds, &went, window_ms);
        let (broker, client) = cost.map(|cost| cost.per_million()).unwrap_or_default();
        let cores = cost.and_then(|cost| cost.client_cores());
        for (figure, value) in
            [("cpu_s_per_million", broker), ("client_cpu_s_per_million", client), ("client_cpu_cores", cores)]
        {
            if let Some(value) = value {
                self.figure(&name(figure), value);
            }
        }
        if let Some((before, after)) = before.zip(after) {
            self.figure(&name("anonymous_mib"), after.anonymous_bytes as f64 / f64::from(1 << 20));
            self.figure(&name("written_bytes"), after.write_bytes.saturating_sub(before.write_bytes) as f64);
        }
        if held.is_ok() {
            for (figure, value) in latency_figures(done, rate)? {
                self.figure(&name(&figure), value);
                if confirms {
                    self.figure(&figure, value);
                }
            }
        }
        if confirms && held.is_ok() {
            self.line.curves = Some(crate::latency::Curves::of(done)?);
            self.figure("produce_per_s", acked as f64 / (window_ms as f64 / 1e3));
            self.whole_costs(before, after, done.acked);
            self.window_costs(cost);
            self.warmed(&went);
        }
        if confirms || self.line.series.is_none() || held.is_ok() {
            self.line.series = Some(series(seconds, groups, &went.looks));
        }
        Ok((held.is_ok(), drained))
    }

    /// Records failures that are not due to the rate: lost, duplicate or reordered messages. Returns whether everything was read.
    fn judge_step(&mut self, rate: u64, done: &Done, over_ms: u64) -> bool {
        let lost = lost(done, over_ms);
        for (what, count) in [("lost", lost), ("duplicated", done.duplicated), ("out of order", self.disorder(done))] {
            if count > 0 {
                self.fail(format!("{count} messages {what} at {rate} a second"));
            }
        }
        is_drained(done, over_ms)
    }
}
