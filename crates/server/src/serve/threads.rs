//! The thread of the http listeners, and the signals.

use polylogue_admin::http::{self, Door, Entrance};
use polylogue_cli::StartError;
use polylogue_env::{Env, JoinTask};
use polylogue_net::tls::Tls;
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
            eprintln!("polylogue: ended immediately");
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

/// A listener of an http protocol.
pub(super) struct HttpListener {
    pub(super) listener: TcpListener,
    pub(super) door: Door,
    pub(super) tls: Option<Arc<Tls>>,
}

/// A thread on which everything of an http protocol runs.
pub(super) struct HttpThread {
    task: Option<Box<dyn JoinTask>>,
    stop: watch::Sender<bool>,
}

impl HttpThread {
    /// Serves on all of `listeners` until [`HttpThread::stop`].
    pub(super) fn start(
        env: &Env,
        name: &str,
        listeners: Vec<HttpListener>,
        entrance: Arc<Entrance>,
    ) -> Result<HttpThread, StartError> {
        let (stop, stopped) = watch::channel(false);
        let fail = |e: io::Error| StartError(format!("cannot start the http listener: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
        let entered = runtime.enter();
        let started = |one: HttpListener| Ok((AsyncListener::from_std(one.listener)?, one.door, one.tls));
        let listeners = listeners.into_iter().map(started).collect::<io::Result<Vec<_>>>().map_err(fail)?;
        drop(entered);
        let body = move || {
            runtime.block_on(async {
                let mut all = JoinSet::new();
                for (listener, door, tls) in listeners {
                    all.spawn(http::serve(listener, door, tls, entrance.clone(), stopped.clone()));
                }
                while all.join_next().await.is_some() {}
            });
            // What is in work is given up: nothing that it could still do is lost by that.
            runtime.shutdown_background();
        };
        let task = env.tasks.spawn(name, Box::new(body)).map_err(fail)?;
        Ok(HttpThread { task: Some(task), stop })
    }

    /// The same, unless there are none.
    pub(super) fn start_some(
        env: &Env,
        name: &str,
        listeners: Vec<HttpListener>,
        entrance: &Arc<Entrance>,
    ) -> Result<Option<HttpThread>, StartError> {
        match listeners.is_empty() {
            true => Ok(None),
            false => HttpThread::start(env, name, listeners, entrance.clone()).map(Some),
        }
    }

    /// Ends it, if it has not ended, and waits for that.
    pub(super) fn stop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(task) = self.task.take() {
            task.join();
        }
    }
}
