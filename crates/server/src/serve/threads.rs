//! The thread of the http listeners, and the signals.

use super::StartError;
use crate::http::{self, App, HttpLimits};
use polylogue_env::{Env, JoinTask};
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use tokio::net::TcpListener as AsyncListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The exit code after a second signal.
const EXIT_AT_ONCE: i32 = 1;

/// What ends a server: SIGTERM and SIGINT (Ctrl-C).
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on. Inside a runtime.
    pub(super) fn new() -> io::Result<Signals> {
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Ends when one has come. A second one ends the process at once: nothing that was acknowledged is lost by that, only the
    /// next start takes longer.
    pub(super) async fn stop(mut self) {
        self.one().await;
        tokio::spawn(async move {
            self.one().await;
            eprintln!("polylogue: ended at once");
            std::process::exit(EXIT_AT_ONCE);
        });
    }

    async fn one(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The thread on which everything of http runs.
pub(super) struct HttpThread(Box<dyn JoinTask>);

impl HttpThread {
    /// Serves on all of `listeners` until `stopped` says so.
    pub(super) fn start(
        env: &Env,
        listeners: Vec<TcpListener>,
        app: Arc<App>,
        limits: HttpLimits,
        stopped: watch::Receiver<bool>,
    ) -> Result<HttpThread, StartError> {
        let fail = |e: io::Error| StartError(format!("cannot start the http listener: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
        let entered = runtime.enter();
        let listeners =
            listeners.into_iter().map(AsyncListener::from_std).collect::<io::Result<Vec<_>>>().map_err(fail)?;
        drop(entered);
        let body = move || {
            runtime.block_on(async {
                let mut all = JoinSet::new();
                for listener in listeners {
                    all.spawn(http::serve(listener, app.clone(), limits, stopped.clone()));
                }
                while all.join_next().await.is_some() {}
            });
            // What is in work is given up: nothing that it could still do is lost by that.
            runtime.shutdown_background();
        };
        env.tasks.spawn("pl-http", Box::new(body)).map(HttpThread).map_err(fail)
    }

    /// Waits for its end.
    pub(super) fn join(self) {
        self.0.join();
    }
}
