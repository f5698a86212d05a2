//! `polylogue queue move` and `polylogue queue redrive`: moves batch after batch until all messages present at the start are moved.

use super::Failure;
use super::args::{MoveArgs, RedriveArgs, VhostArgs};
use super::output::Out;
use super::queues::{messages, path};
use crate::client::ClientError;
use crate::client::http::{HttpClient, segment};
use polylogue_admin::api::queues::{MoveMessages, MoveTo, Moved, Queue};
use serde_json::json;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Messages per request.
const PIECE: u64 = 500;
/// The number of messages that stay after which the command ends: a server does not skip more.
const STAY_MAX: u64 = 10_000;

pub(super) fn queue(args: &MoveArgs, out: &Out) -> Result<(), Failure> {
    let routing_key = args.routing_key.clone();
    let to = MoveTo { queue: args.to.to.clone(), exchange: args.to.to_exchange.clone(), routing_key };
    run(&args.name, Some(to), args.limit, &args.within, out)
}

pub(super) fn redrive(args: &RedriveArgs, out: &Out) -> Result<(), Failure> {
    let to = args.to.clone().map(|queue| MoveTo { queue: Some(queue), ..MoveTo::default() });
    run(&args.name, to, args.limit, &args.within, out)
}

/// The outcome so far.
#[derive(Debug, Default)]
struct Progress {
    moved: u64,
    stay: u64,
    why: Option<String>,
    interrupted: bool,
}

fn run(name: &str, to: Option<MoveTo>, limit: Option<u64>, within: &VhostArgs, out: &Out) -> Result<(), Failure> {
    let client = Arc::new(within.at.client());
    let at = format!("{}/{}", path(within, "queues"), segment(name));
    let queue: Queue = client.get(&at)?;
    let total = limit.unwrap_or(u64::MAX).min(queue.ready);
    // Bounded by the number at the start: with a cycle, moved messages would come back forever.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut progress = Progress::default();
    let ended = runtime.block_on(pieces(&client, &format!("{at}/move"), to, total, &mut progress));
    if io::stderr().is_terminal() && total > PIECE {
        eprintln!();
    }
    let Progress { moved, stay, ref why, interrupted } = progress;
    if out.json {
        out.value(&json!({ "queue": name, "moved": moved, "stay": stay, "why": why, "interrupted": interrupted }))?;
    } else if moved > 0 || ended.is_ok() {
        out.line(&format!("moved {} from queue {name}", messages(moved)))?;
    }
    ended?;
    let text = match (why, interrupted) {
        (Some(why), _) => format!("{} stay in queue {name}: {why}", messages(stay)),
        (None, true) => "interrupted; messages moved so far are stored in the target".to_owned(),
        (None, false) => return Ok(()),
    };
    if out.json { Err(Failure::Reported) } else { Err(Failure::Other(text)) }
}

/// Requests batch after batch. Ctrl-C waits for the current batch, so that its result is reported.
async fn pieces(
    client: &Arc<HttpClient>,
    at: &str,
    to: Option<MoveTo>,
    total: u64,
    progress: &mut Progress,
) -> Result<(), Failure> {
    // Installed before the first request: without a handler Ctrl-C would end the process.
    let mut interrupt = signal(SignalKind::interrupt())?;
    while progress.moved + progress.stay < total && !progress.interrupted {
        let limit = (total - progress.moved - progress.stay).min(PIECE);
        let wanted = MoveMessages { to: to.clone(), limit: limit as u32, skip: progress.stay.min(STAY_MAX) as u32 };
        let (client, at) = (client.clone(), at.to_owned());
        let mut piece = tokio::task::spawn_blocking(move || client.post::<_, Moved>(&at, &wanted));
        let answer = tokio::select! {
            biased;
            answer = &mut piece => answer,
            _ = interrupt.recv() => {
                progress.interrupted = true;
                piece.await
            }
        };
        let gone = |e: tokio::task::JoinError| ClientError::new("internal", e.to_string());
        let Moved { moved, stay, why, done } = answer.map_err(gone)??;
        progress.moved += moved;
        progress.stay += stay;
        progress.why = progress.why.take().or(why);
        tell(progress.moved, total)?;
        // An interrupt that came too late to leave messages is not reported.
        progress.interrupted &= !done && progress.moved + progress.stay < total;
        if done || progress.stay >= STAY_MAX || moved + stay == 0 {
            break;
        }
    }
    Ok(())
}

/// Shows the progress on a terminal.
fn tell(moved: u64, total: u64) -> Result<(), Failure> {
    let mut err = io::stderr();
    if err.is_terminal() && total > PIECE {
        write!(err, "\r{moved} of {total} moved")?;
        err.flush()?;
    }
    Ok(())
}
