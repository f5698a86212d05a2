//! Runs cells, alternating their sides, and stores every result as soon as it exists.
//!
//! ```text
//!   cells x rounds --> steps (without those done by an earlier run) --> settle, run --> append a line --> the next
//!   the brokers of a cell may stay up for all its rounds
//!   a smoke run: broker after broker, each with all its cells, in two concurrent lanes: it measures nothing, and mostly waits
//! ```

use crate::built::Built;
use crate::contract::Second;
use crate::error::Result;
use crate::lanes::in_lanes;
use crate::machine::machine_figures;
use crate::matrix::{Cell, Side};
use crate::peers::about::heap_bytes;
use crate::plan::of_side;
use crate::process::{Folder, Interrupt, lock_folder};
use crate::progress::Progress;
use crate::results::{ResultLine, Stamped, append, read};
use crate::run::lives::{Kept, heaps_fit};
use crate::run::{Surroundings, run};
use crate::steps::{Step, steps};
use crate::target::{Programs, Target};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Idle time between two sides, after dirty pages have been flushed.
const SETTLE: Duration = Duration::from_secs(1);
/// Brokers that run concurrently in a smoke run, if memory allows.
const QUICK_LANES: usize = 2;

/// A job.
#[derive(Debug)]
pub struct Job {
    /// The cells.
    pub cells: Vec<Cell>,
    /// Rounds of each.
    pub rounds: Vec<u32>,
    /// Whether it is a smoke run.
    pub quick: bool,
    /// Whether brokers stay up: in a smoke run one for all its cells, else those of a cell for its rounds, if its load allows it.
    pub keeps_brokers: bool,
    /// Whether results of this commit under the same conditions are kept.
    pub resume: bool,
    /// The file of result lines.
    pub results: PathBuf,
    /// The directory of brokers' data.
    pub work: PathBuf,
}

/// Runs the job; returns the lines, including those of an earlier run. A side that cannot be run yields a failed line, and the
/// rest continues.
///
/// # Errors
/// Results cannot be read or written, or the user interrupts: completed results are in the file.
pub fn work_through(
    job: &Job,
    programs: &Programs,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<Vec<ResultLine>> {
    let _alone = lock_folder(&job.work)?;
    let stamped = Stamped::here(job.quick)?.with(programs);
    let earlier = if job.resume && job.results.exists() { read(&job.results)? } else { Vec::new() };
    let lot = Lot { job, programs, interrupt, stamped: &stamped, lines: Mutex::default() };
    let steps = steps(&job.cells, &job.rounds, &earlier, (&stamped, &|side| lot.built(side)));
    let done = steps.iter().filter(|step| step.done.is_some()).count();
    progress.start(steps.len() - done, done);
    if job.quick && job.keeps_brokers {
        lot.smoke(by_broker(steps), progress)?;
    } else {
        lot.run(&steps, &job.work, Kept::of_cells(), progress)?;
    }
    progress.end();
    Ok(lot.lines.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// State shared by the lanes of a job.
struct Lot<'a> {
    job: &'a Job,
    programs: &'a Programs,
    interrupt: &'a Interrupt,
    stamped: &'a Stamped,
    /// All lines; the lock also guards the file.
    lines: Mutex<Vec<ResultLine>>,
}

/// The environment of one lane.
struct Lane {
    place: Folder,
    progress: Progress,
}

impl Lot<'_> {
    /// Returns the programs that a side runs with.
    fn built(&self, side: &Side) -> Option<Built> {
        self.stamped.built.as_ref().map(|built| built.with_peer(&side.target, self.programs))
    }

    /// Runs the steps of each broker, in lanes; those without a broker first, alone.
    fn smoke(&self, mut brokers: Vec<Vec<Step<'_>>>, progress: &mut Progress) -> Result<()> {
        if brokers.first().is_some_and(|steps| steps.iter().all(|step| step.side.is_none())) {
            self.run(&brokers.remove(0), &self.job.work, Kept::default(), progress)?;
        }
        brokers.sort_by(|one, other| quick_s(other).total_cmp(&quick_s(one)));
        let lane = |number: usize| {
            let place = Folder::create(&self.job.work.join(format!("lane-{number}")))?;
            Ok(Lane { place, progress: progress.beside() })
        };
        let lanes = (0..lanes(&brokers, self.stamped.machine.memory_bytes)).map(lane).collect::<Result<Vec<_>>>()?;
        in_lanes(lanes, brokers, |lane, steps| self.run(&steps, lane.place.path(), Kept::default(), &mut lane.progress))
    }

    /// Runs steps sequentially, in a directory used by no other process.
    fn run(&self, steps: &[Step<'_>], work: &Path, kept: Kept, progress: &mut Progress) -> Result<()> {
        let kept = RefCell::new(kept);
        let Lot { programs, interrupt, .. } = *self;
        let around = Surroundings { programs, work, interrupt, kept: self.job.keeps_brokers.then_some(&kept) };
        let mut cell = None;
        for step in steps {
            if cell.replace(&step.cell.name) != Some(&step.cell.name) {
                kept.borrow_mut().end_cell();
            }
            match step.done {
                Some(line) => self.lines().push(line.clone()),
                None => self.step(step, &around, progress)?,
            }
        }
        Ok(())
    }

    fn step(&self, step: &Step<'_>, around: &Surroundings<'_>, progress: &mut Progress) -> Result<()> {
        self.interrupt.check()?;
        let stamped = Stamped { run: step.run.clone(), ..self.stamped.clone() };
        let line = match step.side {
            None => {
                progress.side(&step.cell.name, step.label(), step.round);
                bare_line(self.job, &stamped, step)?
            }
            Some(side) => {
                settle(self.job.quick);
                progress.side(&step.cell.name, step.label(), step.round);
                let stamped = Stamped { built: self.built(side), ..stamped };
                side_line(&stamped, step, side, around, progress)
            }
        };
        // An interrupted step has no result.
        self.interrupt.check()?;
        let mut lines = self.lines();
        append(&self.job.results, &line)?;
        progress.line(&line);
        lines.push(line);
        Ok(())
    }

    fn lines(&self) -> MutexGuard<'_, Vec<ResultLine>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the key by which steps share a broker: the target and the protocol. Steps without a broker come first.
fn broker<'a>(step: &Step<'a>) -> Option<(&'a Target, bool)> {
    step.side.map(|side| (&side.target, side.load.queue.is_some()))
}

/// Groups steps by broker, in order.
fn by_broker(mut steps: Vec<Step<'_>>) -> Vec<Vec<Step<'_>>> {
    steps.sort_by(|one, other| broker(one).cmp(&broker(other)));
    steps.chunk_by(|one, other| broker(one) == broker(other)).map(<[Step<'_>]>::to_vec).collect()
}

/// Estimates the duration of steps in a smoke run. Seconds.
fn quick_s(steps: &[Step<'_>]) -> f64 {
    let left = steps.iter().filter(|step| step.done.is_none());
    let cost =
        |step: &Step<'_>| step.side.map_or(0.0, |side| of_side(step.cell.kind, step.cell.driver, side, true).seconds);
    left.map(cost).sum()
}

/// Returns the number of lanes for a smoke run of these brokers, given the machine's memory: any of them may be up together.
fn lanes(brokers: &[Vec<Step<'_>>], memory_bytes: u64) -> usize {
    let mut targets: Vec<&Target> = brokers.iter().filter_map(|steps| Some(broker(steps.first()?)?.0)).collect();
    targets.sort_by_key(|target| std::cmp::Reverse(heap_bytes(target)));
    if heaps_fit(targets.into_iter().take(QUICK_LANES), memory_bytes) { QUICK_LANES } else { 1 }
}

fn side_line(
    stamped: &Stamped,
    step: &Step<'_>,
    side: &Side,
    around: &Surroundings<'_>,
    progress: &mut Progress,
) -> ResultLine {
    let mut line = stamped.line(&step.cell.name, step.label(), step.round);
    let mut second = |second: &Second| progress.second(second);
    if let Err(e) = run(step.cell.kind, step.cell.driver, side, around, &mut line, &mut second) {
        line.failures.push(e.to_string());
    }
    line
}

fn settle(quick: bool) {
    if quick {
        return;
    }
    rustix::fs::sync();
    std::thread::sleep(SETTLE);
}

fn bare_line(job: &Job, stamped: &Stamped, step: &Step<'_>) -> Result<ResultLine> {
    let mut line = stamped.line(&step.cell.name, step.label(), step.round);
    line.figures = machine_figures(&job.work.join("bare"), job.quick)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Kind;
    use crate::results::Machine;
    use crate::scenarios::{Length, rows};

    fn job() -> (Vec<Cell>, Vec<u32>) {
        let mut rows = rows(Length::QUICK);
        rows.retain(|row| ["bare", "A4", "F1"].contains(&row.id));
        rows.into_iter().map(|row| (row.cell, row.rounds)).unzip()
    }

    fn now() -> Stamped {
        let machine = Machine { cores: 2, processor: "p".to_owned(), memory_bytes: 1, kernel: "6".to_owned() };
        Stamped { run: "now".to_owned(), commit: "c".to_owned(), built: None, machine, quick: true }
    }

    /// Regression test: a smoke run starts sixteen brokers, not one for each of hundreds of sides.
    #[test]
    fn a_smoke_run_goes_from_broker_to_broker() {
        let (cells, rounds) = job();
        let steps = steps(&cells, &rounds, &[], (&now(), &|_| None));
        let all = steps.len();
        let brokers = by_broker(steps);
        assert_eq!(brokers.iter().map(Vec::len).sum::<usize>(), all);
        assert!(brokers[0].iter().all(|step| step.cell.kind == Kind::Bare));
        for steps in &brokers {
            assert!(steps.iter().all(|step| broker(step) == broker(&steps[0])), "{:?}", broker(&steps[0]));
        }
        let mut started: Vec<_> = brokers.iter().map(|steps| broker(&steps[0])).collect();
        started.dedup();
        assert_eq!(started.len(), brokers.len(), "none is started twice");
    }

    #[test]
    fn a_small_machine_has_one_broker_up_at_a_time() {
        let (cells, rounds) = job();
        let brokers = by_broker(steps(&cells, &rounds, &[], (&now(), &|_| None)));
        assert_eq!([24, 4].map(|gib: u64| lanes(&brokers, gib << 30)), [QUICK_LANES, 1]);
        assert_eq!(lanes(&[], 1), QUICK_LANES, "nothing needs memory");
    }

    fn smoke(name: &str) -> (Folder, Job, Programs) {
        let place =
            Folder::create(&std::env::temp_dir().join(format!("polylogue-bench-engine-{name}-{}", std::process::id())))
                .expect("a folder");
        let (mut cells, mut rounds) = job();
        cells.remove(0);
        rounds.remove(0);
        // A target that cannot be started fails at once.
        let chosen =
            |side: &Side| !["kafka", "pulsar"].contains(&side.target.name().split('-').next().unwrap_or_default());
        cells.iter_mut().for_each(|cell| cell.sides.retain(chosen));
        let at = |name: &str| place.path().join(name);
        let [results, work] = ["results.jsonl", "work"].map(at);
        let job = Job { cells, rounds, quick: true, keeps_brokers: true, resume: false, results, work };
        // There is nothing to start.
        let programs = Programs {
            polylogue: at("none"),
            peers: at("none"),
            kafka: at("none"),
            rabbitmq: at("none"),
            bench: at("none"),
            librdkafka: at("none"),
            java: at("none"),
        };
        (place, job, programs)
    }

    /// Lanes share the file of results, and no directory.
    #[test]
    fn every_side_of_a_smoke_run_has_its_line() {
        let (_place, job, programs) = smoke("lanes");
        let lines = work_through(&job, &programs, &Interrupt::default(), &mut Progress::silent()).expect("it goes on");
        let wanted: usize = job.cells.iter().map(|cell| cell.sides.len()).sum();
        assert!(wanted > 20 && lines.iter().all(|line| !line.failures.is_empty()), "{wanted}: none can be started");
        let busy =
            lines.iter().flat_map(|line| &line.failures).find(|failure| failure.contains("another polylogue-bench"));
        assert_eq!(busy, None, "each lane has a folder of its own");
        let mut kept: Vec<_> =
            read(&job.results).expect("whole lines").into_iter().map(|line| (line.cell, line.side)).collect();
        assert_eq!((lines.len(), kept.len()), (wanted, wanted));
        kept.sort();
        kept.dedup();
        assert_eq!(kept.len(), wanted, "each once");
        let left = std::fs::read_dir(&job.work).expect("a folder").count();
        assert_eq!(left, 0, "the lanes' folders are gone");
    }

    #[test]
    fn whoever_wants_to_stop_stops_all_lanes() {
        let (_place, job, programs) = smoke("stop");
        let interrupt = Interrupt::default();
        interrupt.set();
        assert!(work_through(&job, &programs, &interrupt, &mut Progress::silent()).is_err());
        assert!(!job.results.exists(), "nothing was begun");
    }
}
