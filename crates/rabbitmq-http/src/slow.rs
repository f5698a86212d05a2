//! Patterns of policies that backtrack are asked on worker threads before a command that depends on them is proposed: what judges and
//! applies commands is waited for by all clients.

use super::Management;
use super::error::Failure;
use polylogue_amqp_model::{Command, SlowMatch};

/// Names that a worker asks about in one job: at most 24 ms.
const NAMES_PER_JOB: usize = 16;

/// Has workers ask whatever judging and applying the command will ask. Patterns remember it as long as they are in use somewhere: keep what
/// is returned until the command has been answered.
pub(super) async fn prepare(app: &Management, command: &Command) -> Result<Vec<SlowMatch>, Failure> {
    // Most commands are about no policy, and most policies have patterns that do not backtrack.
    if !may_ask(command) {
        return Ok(Vec::new());
    }
    let view = super::ask::view(app).await?;
    Ok(work_off(app, view.world.slow_matches(&view.routes, command)).await)
}

/// Has workers ask, and returns what was asked.
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
