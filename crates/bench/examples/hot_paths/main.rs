//! Cost of the hot paths in instructions and allocations: `make hot-paths`.
//!
//! ```text
//!   hot_paths ─┬─ runs ──▶ hot_paths_heap               every path, allocations counted
//!              └─ runs ──▶ valgrind hot_paths --count   every path, instructions counted; a callgrind file for each
//!                             both ──▶ a table, and lines in benches/results/hot-paths.jsonl
//! ```
//!
//! Counts do not depend on other load of the machine. They are those of user space: system calls, copies into the page cache and flushes in
//! the kernel are not included. Valgrind does not support AVX-512: checksums and copies run with AVX2 and PCLMULQDQ, and take several
//! times the instructions of newer processors. The allocator is the server's.
//!
//! Arguments: `--out FILE` for another file of results, `--only GROUP` for one group of paths.

mod cases;
mod node;
mod queue;

use cases::{Case, Meter};
use node::Result;
use polylogue_bench::results::{Machine, Stamped};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// As in the server.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Directory of callgrind's files, for `callgrind_annotate`.
const PROFILES: &str = "target/hot-paths";
/// The file of results.
const RESULTS: &str = "benches/results/hot-paths.jsonl";
/// Copies without `rep movsb`, which valgrind counts as one instruction per byte.
const TUNABLES: &str = "glibc.cpu.hwcaps=-ERMS";
/// The allocator without its thread and its timers, whose work would be counted at random.
const MALLOC: &str = "background_thread:false,narenas:4,dirty_decay_ms:-1,muzzy_decay_ms:-1";

/// The table's head.
const HEAD: &str = "| path | partitions (connections) | batch bytes | batches a request | instructions a message | a batch | \
                    in all | allocations a batch | bytes a batch |";

/// Callgrind counts within the function of this name.
#[inline(never)]
fn counted_by_callgrind(work: &mut dyn FnMut()) {
    work();
    // Prevents a tail call.
    std::hint::black_box(());
}

/// Callgrind writes a file when the function of this name returns.
#[inline(never)]
fn case_ends_for_callgrind() {
    std::hint::black_box(());
}

struct Callgrind;

impl Meter for Callgrind {
    fn count(&mut self, work: &mut dyn FnMut()) {
        counted_by_callgrind(work);
    }

    fn end(&mut self, case: Case) -> Result<()> {
        case_ends_for_callgrind();
        println!("{}", serde_json::to_string(&case)?);
        Ok(())
    }
}

/// The cost of one unit.
#[derive(Debug, Serialize)]
struct Cost {
    instructions: f64,
    allocations: f64,
    allocated_bytes: f64,
}

/// A line of results.
#[derive(Debug, Serialize)]
struct Line<'a> {
    bench: &'static str,
    date: &'a str,
    commit: &'a str,
    machine: &'a Machine,
    path: &'a str,
    parameters: &'a BTreeMap<String, u64>,
    units: &'a BTreeMap<String, f64>,
    instructions: u64,
    allocations: u64,
    allocated_bytes: u64,
    per: BTreeMap<&'a str, Cost>,
}

/// Returns the cases that a program prints.
fn cases_of(mut program: Command) -> Result<Vec<Case>> {
    let name = format!("{program:?}");
    let out = program.stderr(Stdio::inherit()).output();
    let out = out.map_err(|e| format!("cannot start {name}: {e} (is it built, and valgrind installed?)"))?;
    if !out.status.success() {
        return Err(format!("{name} ended with {}", out.status).into());
    }
    let text = String::from_utf8(out.stdout)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Returns the instruction count in one of callgrind's files.
fn instructions(file: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let total = text.lines().rev().find_map(|line| line.strip_prefix("totals: "));
    Ok(total.ok_or_else(|| format!("{} has no totals", file.display()))?.trim().parse()?)
}

/// Runs every path once with each of the two counters.
fn measure(profiles: &Path, only: Option<&str>) -> Result<Vec<(Case, u64)>> {
    let own = std::env::current_exe()?;
    let mut heap = Command::new(own.with_file_name("hot_paths_heap"));
    heap.args(only);
    let heap = cases_of(heap)?;
    if profiles.exists() {
        std::fs::remove_dir_all(profiles)?;
    }
    std::fs::create_dir_all(profiles)?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["-q", "--tool=callgrind", "--toggle-collect=*counted_by_callgrind*"]);
    // Compressed names are defined in the first of the files only.
    valgrind.args(["--dump-after=*case_ends_for_callgrind*", "--compress-strings=no"]);
    valgrind.arg(format!("--callgrind-out-file={}", profiles.join("part").display()));
    valgrind.arg(own).arg("--count").args(only).env("GLIBC_TUNABLES", TUNABLES).env("_RJEM_MALLOC_CONF", MALLOC);
    let counted = cases_of(valgrind)?;
    let same = counted.len() == heap.len() && counted.iter().zip(&heap).all(|(a, b)| a.path == b.path);
    if !same {
        return Err("the two programs did not run the same paths: build both".into());
    }
    let read = |(number, case): (usize, Case)| {
        let file = profiles.join(format!("part.{}", number + 1));
        Ok((case, instructions(&file)?))
    };
    heap.into_iter().enumerate().map(read).collect()
}

fn line<'a>(stamped: &'a Stamped, case: &'a Case, instructions: u64) -> Line<'a> {
    let cost = |count: f64| Cost {
        instructions: instructions as f64 / count,
        allocations: case.allocations as f64 / count,
        allocated_bytes: case.allocated_bytes as f64 / count,
    };
    Line {
        bench: "hot-paths",
        date: &stamped.run,
        commit: &stamped.commit,
        machine: &stamped.machine,
        path: &case.path,
        parameters: &case.parameters,
        units: &case.units,
        instructions,
        allocations: case.allocations,
        allocated_bytes: case.allocated_bytes,
        per: case.units.iter().map(|(unit, count)| (unit.as_str(), cost(*count))).collect(),
    }
}

/// Formats a row of the table, in Markdown.
fn row(line: &Line<'_>) -> String {
    let parameter = |name: &str| line.parameters.get(name).map_or(String::new(), u64::to_string);
    let of = |unit: &str, figure: fn(&Cost) -> f64, digits: usize| {
        line.per.get(unit).map_or(String::new(), |cost| format!("{:.digits$}", figure(cost)))
    };
    let whole =
        ["request", "flush", "burst", "start"].into_iter().find(|unit| line.per.contains_key(unit)).unwrap_or("start");
    let connections = parameter("connections");
    let many = if connections.is_empty() { parameter("partitions") } else { format!("({connections})") };
    format!(
        "| {} | {many} | {} | {} | {} | {} | {} a {whole} | {} | {} |",
        line.path,
        parameter("batch_bytes"),
        parameter("batches_per_request"),
        of("message", |c| c.instructions, 0),
        of("batch", |c| c.instructions, 0),
        of(whole, |c| c.instructions, 0),
        of("batch", |c| c.allocations, 1),
        of("batch", |c| c.allocated_bytes, 0),
    )
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [option, only @ ..] = arguments.as_slice()
        && option == "--count"
    {
        return cases::run(&mut Callgrind, only.first().map(String::as_str));
    }
    let (mut results, mut only) = (PathBuf::from(RESULTS), None);
    for pair in arguments.chunks(2) {
        match pair {
            [option, file] if option == "--out" => results = PathBuf::from(file),
            [option, group] if option == "--only" => only = Some(group.as_str()),
            other => return Err(format!("unknown arguments {other:?}: there are --out FILE and --only GROUP").into()),
        }
    }
    let stamped = Stamped::here(false)?;
    let measured = measure(Path::new(PROFILES), only)?;
    let mut out = OpenOptions::new().create(true).append(true).open(&results)?;
    println!("{HEAD}\n{}", "|---".repeat(HEAD.matches('|').count() - 1) + "|");
    for (case, instructions) in &measured {
        let line = line(&stamped, case, *instructions);
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
        println!("{}", row(&line));
    }
    println!("profiles: callgrind_annotate {PROFILES}/part.1 and so on, in the order of the table");
    Ok(())
}
