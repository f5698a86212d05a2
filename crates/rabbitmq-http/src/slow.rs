//! Evaluates policy patterns that backtrack on worker threads, before a command that depends on them is proposed: the state machine that
//! validates and applies commands must not block, since all clients wait for it.

use super::Management;
use super::error::Failure;
use polylogue_amqp_model::{Command, SlowMatch};

/// Names that a worker matches in one job: at most 24 ms.
const NAMES_PER_JOB: usize = 16;

/// Has workers evaluate all matches that validating and applying the command needs. Patterns cache them while they are in use: keep the
/// returned value until the command has been answered.
pub(super) async fn prepare(app: &Management, command: &Command) -> Result<Vec<SlowMatch>, Failure> {
    // Most commands involve no policy, and most policies have patterns that do not backtrack.
    if !may_ask(command) {
        return Ok(Vec::new());
    }
    let view = super::ask::view(app).await?;
    Ok(work_off(app, view.metadata.slow_matches(&view.routes, command)).await)
}

/// Has workers evaluate the matches, and returns them.
pub(super) async fn work_off(app: &Management, mut matches: Vec<SlowMatch>) -> Vec<SlowMatch> {
    let mut asked = Vec::new();
    while !matches.is_empty() {
        let some = matches.split_off(matches.len().saturating_sub(NAMES_PER_JOB));
        let run = move || {
            some.iter().for_each(SlowMatch::run);
            some
        };
        asked.extend(app.net.workers.run("policies".into(), "policies", run).await);
    }
    asked
}

fn may_ask(command: &Command) -> bool {
    matches!(command, Command::SetPolicy(..) | Command::SetParameter(..) | Command::Import(_))
}
