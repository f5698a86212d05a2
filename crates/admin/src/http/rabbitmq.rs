//! The metrics of RabbitMQ's own exporter, under RabbitMQ's names, so that its public dashboards and alert rules work unmodified.
//!
//! | path | content |
//! | --- | --- |
//! | `GET /metrics` | all families, summed over queues |
//! | `GET /metrics/per-object` | all families, by queue, up to a limit |
//! | `GET /metrics/detailed?family=...&vhost=...` | selected groups of families, by queue, with their own prefix |
//!
//! These are the paths of the listener `rabbitmq-metrics`; on the listener `http` they begin with `/metrics/rabbitmq`. Families without a
//! counterpart in polylogue are missing: docs/metrics.md lists them with the reasons.

mod families;
mod text;

use super::App;
use super::error::Failure;
use super::objects::OBJECTS_MAX;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use families::Group;
use polylogue_amqp::settings::AmqpSettings;
use polylogue_amqp_model::Queue;
use polylogue_api::QueueCounts;
use polylogue_net::declared;
use polylogue_router::VhostId;
use std::collections::BTreeSet;
use std::sync::Arc;
use text::{FORMAT, Kind, Text};

/// Prefix of family names, and of those of `/metrics/detailed`.
const PREFIX: &str = "rabbitmq_";
const DETAILED_PREFIX: &str = "rabbitmq_detailed_";
/// The maximum number of groups and virtual hosts of one request; further ones are ignored.
const NAMED_MAX: usize = 256;

/// Configuration values shown in these metrics.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The server properties that clients see.
    pub amqp: Arc<AmqpSettings>,
    /// The limit on client connections.
    pub connections_max: usize,
    /// The free disk space below which publishers to queues are blocked. Bytes.
    pub disk_free_limit_bytes: u64,
}

/// A queue to show: its virtual host, its definition, and its counts.
struct ShownQueue {
    vhost: String,
    queue: Arc<Queue>,
    counts: QueueCounts,
}

/// The queues to show.
enum Queues {
    /// The sum over all queues, and their number.
    Together(QueueCounts, usize),
    /// Single queues, and the number of those left out.
    Each(Vec<ShownQueue>, usize),
}

/// Returns the routes below a path.
pub(super) fn routes(at: &str) -> Router<Arc<App>> {
    Router::new()
        .route(at, get(aggregated))
        .route(&format!("{at}/per-object"), get(per_object))
        .route(&format!("{at}/detailed"), get(detailed))
}

async fn aggregated(State(app): State<Arc<App>>) -> Result<Response, Failure> {
    let queues = together(&app).await?;
    Ok(everything(&app, "aggregated", &queues))
}

async fn per_object(State(app): State<Arc<App>>) -> Result<Response, Failure> {
    let queues = each(&app, &[]).await?;
    Ok(everything(&app, "per-object", &queues))
}

/// As in RabbitMQ, unknown groups and virtual hosts are ignored, and without a group the response is empty.
async fn detailed(
    State(app): State<Arc<App>>,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Response, Failure> {
    let Query(query) = query.map_err(|e| Failure::invalid(e.body_text()))?;
    let (mut groups, mut vhosts) = (Vec::new(), Vec::new());
    for (name, value) in query.into_iter().take(NAMED_MAX) {
        match name.as_str() {
            "family" => groups.extend(Group::named(&value).filter(|group| !groups.contains(group))),
            "vhost" => vhosts.push(value),
            _ => {}
        }
    }
    // Group::Queue contains the families of Group::QueueCoarse.
    if groups.contains(&Group::Queue) {
        groups.retain(|group| *group != Group::QueueConsumers);
    }
    let mut text = Text::default();
    let queues = match groups.iter().any(|group| group.is_of_queues()) {
        true => Some(each(&app, &vhosts).await?),
        false => None,
    };
    for group in groups {
        families::write(&app, &mut text, DETAILED_PREFIX, group, queues.as_ref());
    }
    if let Some(queues) = &queues {
        families::infos(&mut text, DETAILED_PREFIX, queues);
        families::left_out(&mut text, queues);
    }
    families::identity(&app, &mut text, "detailed");
    Ok(answer(text))
}

fn everything(app: &App, endpoint: &str, queues: &Queues) -> Response {
    let mut text = Text::default();
    for group in Group::ALL {
        families::write(app, &mut text, PREFIX, group, Some(queues));
    }
    families::totals(app, &mut text, queues);
    families::global(app.directory.traffic(), app, &mut text);
    text.one(
        Kind::Gauge,
        "rabbitmq_alarms_free_disk_space_watermark",
        "1 while the disk alarm blocks publishers to queues",
        u8::from(app.broker.is_disk_alarm()),
    );
    text.one(
        Kind::Gauge,
        "rabbitmq_alarms_memory_used_watermark",
        "1 while the memory alarm blocks publishers to queues",
        u8::from(app.net.memory.is_alarm()),
    );
    if let Queues::Each(..) = queues {
        families::infos(&mut text, PREFIX, queues);
        families::left_out(&mut text, queues);
    }
    families::identity(app, &mut text, endpoint);
    answer(text)
}

fn answer(text: Text) -> Response {
    ([(CONTENT_TYPE, FORMAT)], text.into_string()).into_response()
}

/// Returns the sum over all queues.
async fn together(app: &App) -> Result<Queues, Failure> {
    let view = declared::view(&app.broker).await?;
    let queues: Vec<Arc<Queue>> = view.metadata.queues().cloned().collect();
    let counts = declared::counts(&app.broker, &app.directory, &queues).await?;
    let sum = counts.into_iter().sum();
    Ok(Queues::Together(sum, queues.len()))
}

/// Returns the queues of these virtual hosts; of all, if none is given.
async fn each(app: &App, vhosts: &[String]) -> Result<Queues, Failure> {
    let view = declared::view(&app.broker).await?;
    let named = vhosts.iter().filter_map(|name| Some(view.metadata.vhost_named(name)?.id));
    let named: BTreeSet<VhostId> = named.collect();
    let wanted = |queue: &&Arc<Queue>| vhosts.is_empty() || named.contains(&queue.vhost);
    let all = view.metadata.queues().filter(wanted).count();
    let reported: Vec<_> = view.metadata.queues().filter(wanted).take(OBJECTS_MAX).cloned().collect();
    let counts = declared::counts(&app.broker, &app.directory, &reported).await?;
    let left_out = all - reported.len();
    let reported = reported.into_iter().zip(counts);
    let reported = reported.map(|(queue, counts)| ShownQueue {
        vhost: view.metadata.vhost_name(queue.vhost).to_owned(),
        queue,
        counts,
    });
    Ok(Queues::Each(reported.collect(), left_out))
}
