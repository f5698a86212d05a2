//! What the pages say about scenarios that result lines cannot know.

/// A scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScenarioText<'a> {
    /// Its id, the first part of the names of its cells: `A4`.
    pub id: &'a str,
    /// A few words.
    pub title: &'a str,
    /// What it shows.
    pub what: &'a str,
    /// The published setting and what was found in it; empty when nothing is published.
    pub published: &'a str,
    /// The setting here, and by which factors it is smaller than the published one.
    pub scaled: &'a str,
}

/// Something that was not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotRun<'a> {
    /// The scenario or the cell.
    pub what: &'a str,
    /// The system; empty when none was.
    pub target: &'a str,
    /// Why not.
    pub reason: &'a str,
}

/// What a report is made of.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The result lines.
    pub lines: &'a [crate::results::ResultLine],
    /// The scenarios, in the order of the report; those that lines name and this does not come after them.
    pub scenarios: &'a [ScenarioText<'a>],
    /// What was not run.
    pub not_run: &'a [NotRun<'a>],
}
