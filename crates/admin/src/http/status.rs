//! Health, status and configuration.

use super::App;
use crate::api::{FailureStatus, OptionValue, Options, ProtocolStatus, StageStatus, Status};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use polylogue_net::ProtocolCounts;
use polylogue_net::handle::{Failure, STAGE_BUCKETS_US, Stage};
use std::sync::Arc;

/// Liveness: the process answers.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness: whether clients should be routed here.
pub(super) async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    if app.ready.get() { (StatusCode::OK, "ready\n") } else { not_ready().await }
}

/// [`readyz`] before the broker has started.
pub(super) async fn not_ready() -> (StatusCode, &'static str) {
    (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
}

pub(super) async fn status(State(app): State<Arc<App>>) -> Json<Status> {
    let catalog = app.broker.catalog();
    let cluster = catalog.cluster();
    let topics = catalog.topics();
    let broker = app.broker.status();
    let protocol = |counts: ProtocolCounts| ProtocolStatus {
        protocol: counts.protocol.to_owned(),
        connections: counts.open,
        requests: counts.requests,
        received_bytes: counts.received_bytes,
        sent_bytes: counts.sent_bytes,
    };
    let stage = |stage: &Stage| StageStatus {
        stage: stage.name.trim_start_matches("journal_").to_owned(),
        count: stage.times.count,
        ns: stage.times.ns,
        bounds_us: STAGE_BUCKETS_US.to_vec(),
        buckets: stage.times.buckets.to_vec(),
    };
    let failure = |(what, failure): (&str, Failure)| {
        let Failure { count, last } = failure;
        (what.to_owned(), FailureStatus { count, last })
    };
    Json(Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cluster_id: cluster.cluster_id.to_string(),
        node: cluster.node.0,
        ready: app.ready.get(),
        refuses_writes: broker.health.refuses_writes,
        uptime_ms: app.broker.now().monotonic_ms,
        connections: app.net.connections.len(),
        topics: topics.iter().filter(|topic| !topic.internal).count(),
        partitions: topics.iter().map(|topic| topic.partitions.len()).sum(),
        listeners: app.listeners.clone(),
        protocols: app.net.metrics.counts().into_iter().map(protocol).collect(),
        stages: broker.stages.iter().map(stage).collect(),
        disk_free_bytes: broker.disk_free_bytes,
        disk_alarm: broker.health.disk_alarm,
        memory_alarm: app.net.memory.alarm(),
        memory_bytes: app.net.memory.used_bytes(),
        failures: broker.health.failures.into_iter().map(failure).collect(),
        figures: broker.figures.into_iter().map(|figure| (figure.name, figure.value)).collect(),
    })
}

pub(super) async fn config(State(app): State<Arc<App>>) -> Json<Options> {
    let options = app.settings.iter().map(OptionValue::from);
    Json(Options { options: options.collect() })
}
