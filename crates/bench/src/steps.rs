//! The steps to run, in order, without those that an earlier run has done.
//!
//! ```text
//!   results file            run 10:00  commit a   cost  kafka           round 1   ok         -> done, not run again
//!                           run 10:00  commit a   cost  polylogue-sync  round 1   failed     -> run again, unless a message was lost,
//!                                                                                               duplicated or reordered: that is final
//!                           (stopped)
//!   versus --resume         run 10:00  commit a   cost  polylogue-sync  round 1              appended to the same run, so that
//!                           run 10:00  commit a   cost  kafka           round 2              the sides of a round stay a pair
//! ```
//!
//! A line counts as of the same build if its programs are the current ones ([`Built`]): the commit of a checkout with local changes, or of none,
//! matches any build.

use crate::built::Built;
use crate::matrix::{Cell, Kind, Side, turns};
pub use crate::results::MACHINE;
use crate::results::{Conditions, ResultLine, Stamped};
use crate::run::conditions;

/// One side of one round of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Step<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// The side; none for the bare loops.
    pub side: Option<&'a Side>,
    /// The round, from 1 on.
    pub round: u32,
    /// The run that its line belongs to.
    pub run: String,
    /// The line of an earlier run, if it has one that counts.
    pub done: Option<&'a ResultLine>,
}

impl Step<'_> {
    /// Returns the side's label.
    #[must_use]
    pub fn label(&self) -> &str {
        self.side.map_or(MACHINE, |side| &side.label)
    }
}

/// Returns the programs that a side runs with, if known.
pub type BuiltOf<'a> = &'a dyn Fn(&Side) -> Option<Built>;

/// Returns all steps of `cells`, with as many rounds as the same index of `rounds`. Steps with `earlier` lines of this commit and build, this machine
/// and these conditions are done; the rest of their cell then belongs to the same run.
#[must_use]
pub fn steps<'a>(
    cells: &'a [Cell],
    rounds: &[u32],
    earlier: &'a [ResultLine],
    (now, built): (&Stamped, BuiltOf<'_>),
) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    for (cell, rounds) in cells.iter().zip(rounds) {
        let same: Vec<&ResultLine> = earlier.iter().filter(|line| is_same(line, cell, now, built)).collect();
        let newest = same.iter().max_by(|a, b| (&a.date, &a.run).cmp(&(&b.date, &b.run)));
        let run = newest.map_or(&now.run, |line| &line.run);
        for round in 1..=*rounds {
            let sides = match cell.kind {
                Kind::Bare => vec![None],
                _ => turns(cell, round).into_iter().map(Some).collect(),
            };
            for side in sides {
                let mut step = Step { cell, side, round, run: run.clone(), done: None };
                let is_it = |line: &&ResultLine| line.run == *run && line.round == round && line.side == step.label();
                let of_it = || same.iter().copied().filter(is_it);
                let is_right = |line: &&ResultLine| line.failures.is_empty();
                step.done = of_it().find(|line| line.is_final()).or_else(|| of_it().find(is_right));
                steps.push(step);
            }
        }
    }
    steps
}

/// Whether a line is of one of a cell's sides, with the same build, machine and conditions.
fn is_same(line: &ResultLine, cell: &Cell, now: &Stamped, built: BuiltOf<'_>) -> bool {
    let here = (&line.commit, &line.machine, line.quick) == (&now.commit, &now.machine, now.quick);
    let side = cell.sides.iter().find(|side| side.label == line.side);
    let built = side.map_or_else(|| now.built.clone(), built);
    let is_same_build = built.is_some() && line.built == built;
    here && is_same_build
        && line.cell == cell.name
        && expected(cell, &line.side).is_some_and(|expected| expected == line.conditions)
}

/// Returns the conditions of a side of a cell, of which the bare loops have none; `None` if there is no such side.
fn expected(cell: &Cell, label: &str) -> Option<Option<Conditions>> {
    if cell.kind == Kind::Bare {
        return (label == MACHINE).then_some(None);
    }
    let side = cell.sides.iter().find(|side| side.label == label)?;
    Some(Some(conditions(cell.driver, side)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{Scale, cells};
    use crate::results::Machine;

    fn now(commit: &str) -> Stamped {
        let machine = Machine { cores: 2, processor: "p".to_owned(), memory_bytes: 1, kernel: "6".to_owned() };
        Stamped { run: "now".to_owned(), commit: commit.to_owned(), built: Some(built("b")), machine, quick: false }
    }

    fn built(polylogue: &str) -> Built {
        Built { polylogue: polylogue.to_owned(), ..Built::default() }
    }

    fn two(scale: Scale) -> Vec<Cell> {
        let mut cells = cells(scale);
        cells.retain(|cell| ["bare", "cost/partitions=1/client=raw"].contains(&cell.name.as_str()));
        cells
    }

    /// The lines of a run that was stopped in its second round.
    fn left(cells: &[Cell], run: &str, commit: &str) -> Vec<ResultLine> {
        let stamped = Stamped { run: run.to_owned(), ..now(commit) };
        let mut lines: Vec<ResultLine> = Vec::new();
        for step in steps(cells, &vec![2; cells.len()], &[], (&stamped, &|_| stamped.built.clone())) {
            let mut line = stamped.line(&step.cell.name, step.label(), step.round);
            line.conditions = step.side.map(|side| conditions(step.cell.driver, side));
            lines.push(line);
        }
        lines.pop();
        lines
    }

    fn to_do(cells: &[Cell], earlier: &[ResultLine], now: &Stamped) -> Vec<String> {
        let steps = steps(cells, &vec![2; cells.len()], earlier, (now, &|_| now.built.clone()));
        let left = steps.iter().filter(|step| step.done.is_none());
        left.map(|step| format!("{} {} {}", step.run, step.label(), step.round)).collect()
    }

    #[test]
    fn a_fresh_run_does_everything_in_turns() {
        let cells = two(Scale::FULL);
        let all = to_do(&cells, &[], &now("c"));
        let wanted = [
            "now machine 1",
            "now machine 2",
            "now polylogue-sync 1",
            "now polylogue-async 1",
            "now kafka 1",
            "now kafka 2",
            "now polylogue-async 2",
            "now polylogue-sync 2",
        ];
        assert_eq!(all, wanted);
    }

    #[test]
    fn what_counts_is_not_run_again_and_the_rest_joins_its_run() {
        let cells = two(Scale::FULL);
        let mut lines = left(&cells, "before", "c");
        lines[3].failures.push("the broker was not idle after 90 s".to_owned());
        assert_eq!(lines[3].side, "polylogue-async");
        assert_eq!(to_do(&cells, &lines, &now("c")), ["before polylogue-async 1", "before polylogue-sync 2"]);
        assert_eq!(
            steps(&cells, &[2, 2], &lines, (&now("c"), &|_| now("c").built))[4].done,
            Some(&lines[4]),
            "the line is at hand for the report"
        );
    }

    #[test]
    fn another_commit_machine_or_scale_is_another_run() {
        let cells = two(Scale::FULL);
        let lines = left(&cells, "before", "c");
        assert_eq!(to_do(&cells, &lines, &now("d")).len(), 8);
        assert_eq!(to_do(&cells, &lines, &now("d"))[2], "now polylogue-sync 1");
        let mut other = now("c");
        other.machine.cores = 4;
        assert_eq!(to_do(&cells, &lines, &other).len(), 8);
        let shorter = two(Scale { messages: 1_000, ..Scale::FULL });
        assert_eq!(to_do(&shorter, &lines, &now("c")).len(), 6, "only the bare loops are as they were");
    }

    /// Regression test: "c+" matched any other "c+", and "unknown" matched "unknown".
    #[test]
    fn another_build_is_another_run_whatever_the_commit() {
        let cells = two(Scale::FULL);
        for commit in ["c", "c+", "unknown"] {
            let lines = left(&cells, "before", commit);
            assert_eq!(to_do(&cells, &lines, &now(commit)), ["before polylogue-sync 2"], "the same programs");
            let rebuilt = Stamped { built: Some(built("another")), ..now(commit) };
            assert_eq!(to_do(&cells, &lines, &rebuilt).len(), 8, "{commit}");
            let mut untold = lines.clone();
            untold.iter_mut().for_each(|line| line.built = None);
            assert_eq!(to_do(&cells, &untold, &now(commit)).len(), 8, "{commit}: no one knows what those were");
            let unknown = Stamped { built: None, ..now(commit) };
            assert_eq!(to_do(&cells, &untold, &unknown).len(), 8, "{commit}: not knowing is no agreement");
        }
    }

    /// Regression test: a side with a loss was run again until there was none.
    #[test]
    fn a_loss_is_final() {
        let cells = two(Scale::FULL);
        for failure in
            ["1 messages lost", "2 acknowledged messages lost", "3 messages duplicated", "4 messages out of order"]
        {
            let mut lines = left(&cells, "before", "c");
            lines[3].failures.push(failure.to_owned());
            assert_eq!(to_do(&cells, &lines, &now("c")), ["before polylogue-sync 2"], "{failure}");
            // Nor is it replaced by a later line that counts.
            let again = ResultLine { failures: Vec::new(), ..lines[3].clone() };
            let lines: Vec<ResultLine> = std::iter::once(again).chain(lines).collect();
            let stamped = now("c");
            let steps = steps(&cells, &[2, 2], &lines, (&stamped, &|_| stamped.built.clone()));
            let done = steps.iter().filter_map(|step| step.done).find(|line| !line.failures.is_empty());
            assert_eq!(done.map(|line| line.failures.len()), Some(1), "{failure}");
        }
    }

    /// Regression test: the size of a backlog, its read rate and the number of connections were not part of the conditions.
    #[test]
    fn another_backlog_or_number_of_connections_is_another_run() {
        let cells = two(Scale::FULL);
        let lines = left(&cells, "before", "c");
        let changes: [fn(&mut Side); 3] =
            [|side| side.load.backlog += 1, |side| side.load.cold_bytes_per_s += 1, |side| side.load.connections += 1];
        for change in changes {
            let mut others = cells.clone();
            others.iter_mut().flat_map(|cell| &mut cell.sides).for_each(change);
            assert_eq!(to_do(&others, &lines, &now("c")).len(), 6, "only the bare loops are as they were");
        }
    }

    #[test]
    fn of_two_runs_the_newest_goes_on() {
        let cells = two(Scale::FULL);
        let (mut older, newer) = (left(&cells, "older", "c"), left(&cells, "newer", "c"));
        older.iter_mut().for_each(|line| line.date = "2026-01-01T00:00:00Z".to_owned());
        let lines = [newer, older].concat();
        assert_eq!(to_do(&cells, &lines, &now("c")), ["newer polylogue-sync 2"]);
    }
}
