//! A short separate run in which the broker's flushes are counted, so that the measured run is undisturbed.

use super::{OneSide, make_topic, start};
use crate::contract::Spec;
use crate::error::Result;
use crate::flush::Counter;
use crate::process::{Folder, SpawnSettings};
use crate::target::Target;

/// Warm-up and duration. Milliseconds.
const WARMUP_MS: u64 = 2_000;
const WINDOW_MS: u64 = 5_000;
/// The same in a smoke run.
const QUICK_WARMUP_MS: u64 = 500;
const QUICK_WINDOW_MS: u64 = 1_500;

impl OneSide<'_> {
    /// Runs the load once more on an empty broker whose flushes are counted. The broker of the previous run is ended first, unless it `stays`.
    pub(super) fn trace_flushes(&mut self, stays: bool) -> Result<()> {
        if matches!(self.target, Target::Null | Target::At(_)) {
            return Ok(());
        }
        if !stays {
            self.running.end();
        }
        let place = Folder::create(&self.around.work.join("traced"))?;
        let counter = Counter::create(&self.around.programs.bench, place.path(), 0)?;
        let spawn_settings = SpawnSettings { environment: counter.environment(), ..self.spawn_settings.clone() };
        let traced = spawn_settings.apply(|| start(&self.target, self.load, self.around, place.path()))?;
        let before = std::mem::replace(&mut self.running, traced);
        make_topic(&self.running, &self.topic, self.load, self.system)?;
        self.idle()?;
        let quick = self.line.quick;
        let (warmup_ms, window_ms) = if quick { (QUICK_WARMUP_MS, QUICK_WINDOW_MS) } else { (WARMUP_MS, WINDOW_MS) };
        let spec = Spec { warmup_ms, window_ms, ..self.spec() };
        self.counter = Some(counter);
        let span = self.begin_span()?;
        let stated = self.drive(&[spec]);
        self.end_span(span)?;
        // Before the directory is removed.
        self.running.end();
        self.running = before;
        stated.map(drop)
    }
}
