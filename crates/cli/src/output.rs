//! Output for users and for programs.

use super::Failure;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// The output of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Out {
    /// Whether to write JSON.
    pub(super) json: bool,
    color: bool,
}

/// Whether colours may be used: `NO_COLOR` disables them (no-color.org).
pub(super) fn wants_color() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Out {
    /// Uses colours only on a terminal.
    pub(super) fn new(json: bool) -> Out {
        Out { json, color: wants_color() && !json && io::stdout().is_terminal() }
    }

    pub(super) fn line(self, text: &str) -> Result<(), Failure> {
        Ok(writeln!(io::stdout().lock(), "{text}")?)
    }

    /// Writes a JSON document, over several lines.
    pub(super) fn value<T: Serialize>(self, value: &T) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value).map_err(|e| Failure::Other(e.to_string()))?;
        self.line(&text)
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.painted(BOLD, text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.painted(DIM, text)
    }

    pub(super) fn red(self, text: &str) -> String {
        self.painted(RED, text)
    }

    fn painted(self, color: &str, text: &str) -> String {
        if self.color { format!("{color}{text}{PLAIN}") } else { text.to_owned() }
    }

    /// Writes a list: `value` as JSON, or as a table, or the word `empty`.
    pub(super) fn listing<T: Serialize>(
        self,
        value: &T,
        empty: &str,
        head: &[&str],
        rows: &[Vec<String>],
    ) -> Result<(), Failure> {
        match rows {
            _ if self.json => self.value(value),
            [] => self.line(empty),
            rows => self.table(head, rows),
        }
    }

    /// Writes a table with aligned columns; numbers are right-aligned.
    pub(super) fn table(self, head: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let widths: Vec<usize> = head
            .iter()
            .enumerate()
            .map(|(i, title)| {
                let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count());
                cells.chain([title.chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let numeric: Vec<bool> = (0..head.len())
            .map(|i| !rows.is_empty() && rows.iter().all(|row| row.get(i).is_some_and(|cell| is_number(cell))))
            .collect();
        let mut out = io::stdout().lock();
        let titles: Vec<String> = head.iter().map(|title| (*title).to_owned()).collect();
        writeln!(out, "{}", self.bold(&aligned(&titles, &widths, &numeric)))?;
        for row in rows {
            writeln!(out, "{}", aligned(row, &widths, &numeric))?;
        }
        Ok(())
    }
}

fn is_number(cell: &str) -> bool {
    cell == "-" || (!cell.is_empty() && cell.bytes().all(|b| b.is_ascii_digit()))
}

fn aligned(row: &[String], widths: &[usize], numeric: &[bool]) -> String {
    let cells = row.iter().zip(widths).zip(numeric).map(|((cell, width), number)| {
        let width = *width;
        if *number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// Formats a number of bytes.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut left = count;
    let mut rest = 0;
    while left >= 1024 && unit + 1 < UNITS.len() {
        rest = left % 1024 * 10 / 1024;
        left /= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 || left >= 100 { format!("{left} {name}") } else { format!("{left}.{rest} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let (widths, numeric) = ([5, 3, 4], [false, true, false]);
        assert_eq!(aligned(&row(["ab", "7", "c"]), &widths, &numeric), "ab       7  c");
        assert_eq!(aligned(&row(["ab", "-", ""]), &widths, &numeric), "ab       -");
    }

    #[test]
    fn sizes_are_short() {
        for (count, text) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (200 << 20, "200 MiB"), (3 << 40, "3.0 TiB")]
        {
            assert_eq!(bytes(count), text);
        }
    }
}
