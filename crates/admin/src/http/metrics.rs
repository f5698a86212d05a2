//! `/metrics`.

use super::App;
use super::error::Failure;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use polylogue_auth::QuotaKind;
use polylogue_net::handle::{STAGE_BUCKETS_US, StageTimes};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;
use std::time::Duration;

/// Prefix of all metric names.
const PREFIX: &str = "polylogue";
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Label: the quota's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuotaLabel {
    quota: &'static str,
}

/// A stage's counters, encoded as a histogram.
#[derive(Debug)]
struct Times(StageTimes);

impl EncodeMetric for Times {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let bounds = STAGE_BUCKETS_US.iter().map(|us| Duration::from_micros(*us).as_secs_f64()).chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.0.buckets).collect();
        let seconds = Duration::from_nanos(self.0.ns).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(seconds, self.0.count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Returns a registry whose metrics have the prefix.
#[must_use]
pub fn registry() -> Registry {
    Registry::with_prefix(PREFIX)
}

pub(super) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, Failure> {
    let mut text = String::new();
    let unwritable = |e: std::fmt::Error| Failure::internal(format!("the metrics cannot be written: {e}"));
    encode(&mut text, &app.registry).map_err(unwritable)?;
    encode(&mut text, &now(&app)).map_err(unwritable)?;
    // Each encoding ends with "# EOF"; only the last one may stay.
    let ends = text.matches("# EOF\n").count();
    let text = text.replacen("# EOF\n", "", ends.saturating_sub(1));
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

/// Metrics before the broker has started: a failing scrape would look like a process that is down.
pub(super) async fn starting() -> Result<Response, Failure> {
    let (mut registry, mut text) = (registry(), String::new());
    tell_ready(&mut registry, false);
    encode(&mut text, &registry).map_err(|e| Failure::internal(format!("the metrics cannot be written: {e}")))?;
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

fn tell_ready(registry: &mut Registry, ready: bool) {
    registry.register("ready", "Whether the broker serves clients", ConstGauge::new(i64::from(ready)));
}

/// Returns a registry with the gauges that are read at scrape time.
fn now(app: &App) -> Registry {
    let mut registry = registry();
    tell_ready(&mut registry, app.ready.get());
    let mut gauge = |name: &str, help: &str, value: usize| {
        registry.register(name, help, ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)));
    };
    let (used, waiting) = app.net.lanes.load();
    gauge("request_memory_bytes", "Memory of requests in progress", used);
    gauge("request_memory_waiting", "Connections that wait for memory for a request", waiting);
    gauge("response_memory_bytes", "Memory of responses that clients have not received", app.net.output.bytes());
    gauge("read_memory_bytes", "Memory reserved for reads in progress", app.net.output.asked());
    gauge(
        "answer_memory_bytes",
        "Memory of responses of unbounded length, in progress or not received",
        app.net.answers.bytes(),
    );
    gauge(
        "answer_memory_waiting",
        "Connections that wait for memory for a response of unbounded length",
        app.net.answers.waiting(),
    );
    gauge("console_sessions", "Sessions of the console, at most 1,024", app.tokens.lock().len());
    let topics = app.broker.catalog().topics();
    gauge("topics", "Topics", topics.len());
    gauge("partitions", "Partitions of all topics", topics.iter().map(|topic| topic.partitions.len()).sum());
    let quotas = app.directory.quotas();
    gauge("quotas", "Users and client ids that have quotas, at most 100,000", quotas.table_len());
    gauge("quota_buckets", "Clients whose use of a quota is tracked, at most 65,536", quotas.bucket_count());
    gauge("acls", "Bindings of access control lists, at most 100,000", app.directory.acl_count());
    let throttled = Family::<QuotaLabel, Counter>::default();
    for kind in QuotaKind::ALL {
        throttled.get_or_create(&QuotaLabel { quota: kind.key() }).inc_by(quotas.throttled(kind));
    }
    registry.register("throttled", "How often clients were throttled, by the key of the quota", throttled);
    let status = app.broker.status();
    for stage in status.stages {
        let name = format!("{}_duration", stage.name);
        registry.register_with_unit(name, stage.help, Unit::Seconds, Times(stage.times));
    }
    for figure in status.figures {
        if figure.is_counter {
            registry.register(figure.name, figure.help, ConstCounter::new(figure.value));
        } else {
            registry.register(
                figure.name,
                figure.help,
                ConstGauge::new(i64::try_from(figure.value).unwrap_or(i64::MAX)),
            );
        }
    }
    registry
}
