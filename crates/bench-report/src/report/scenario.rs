//! Input of a report: result lines, and texts about scenarios that the lines do not contain.

/// The text of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScenarioText<'a> {
    /// Its id, the first part of the names of its cells: `A4`.
    pub id: &'a str,
    /// Title.
    pub title: &'a str,
    /// What it measures.
    pub what: &'a str,
    /// The published setting and result; empty if there is none.
    pub published: &'a str,
    /// The setting here, and by which factors it is scaled down.
    pub scaled: &'a str,
}

/// An omission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotRun<'a> {
    /// The scenario or the cell.
    pub what: &'a str,
    /// The system; empty for all.
    pub target: &'a str,
    /// The reason.
    pub reason: &'a str,
}

/// Input of a report.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The result lines.
    pub lines: &'a [crate::results::ResultLine],
    /// The scenarios in the order of the report. Scenarios of lines without a text come after them.
    pub scenarios: &'a [ScenarioText<'a>],
    /// The omissions.
    pub not_run: &'a [NotRun<'a>],
}
