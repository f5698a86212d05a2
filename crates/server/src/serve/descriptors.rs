//! How many files and connections the system lets this process have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the log, the listeners and the runtime need beside connections.
const OTHERS: u64 = 1_024;

/// Raises the limit on open descriptors as far as this process may, and warns when that is not enough for so many
/// connections: the soft limit is 1,024 on most systems, for the sake of programs that use `select`.
pub(super) fn raise(connections_max: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = connections_max as u64 + OTHERS;
    let reachable = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let Some(now) = current.filter(|current| *current < wanted) else { return };
    let raised = reachable > now && setrlimit(Resource::Nofile, Rlimit { current: Some(reachable), maximum }).is_ok();
    let limit = if raised { reachable } else { now };
    if limit < wanted {
        tracing::warn!(
            limit,
            wanted,
            "the system allows fewer open files than server.connections_max may need: raise `ulimit -n`"
        );
    }
}
