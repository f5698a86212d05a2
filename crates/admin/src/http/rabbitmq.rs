//! The families of RabbitMQ's own exporter, under RabbitMQ's names: what its public dashboards and alert rules ask for works unmodified.
//!
//! | path | what |
//! | --- | --- |
//! | `GET /metrics` | everything, queues added up |
//! | `GET /metrics/per-object` | the same, of each queue, up to a bound |
//! | `GET /metrics/detailed?family=...&vhost=...` | single groups of families, of each queue, under a prefix of their own |
//!
//! These are the paths of the listener `rabbitmq-metrics`; at the listener `http` they begin with `/metrics/rabbitmq`. A family that polylogue has
//! nothing for is not there: docs/metrics.md says which and why.

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

/// What begins the names of families, and at the path of single groups.
const PREFIX: &str = "rabbitmq_";
const DETAILED_PREFIX: &str = "rabbitmq_detailed_";
/// Groups and virtual hosts that one request may name; further ones are passed over.
const NAMED_MAX: usize = 256;

/// What these families tell of how the server was set up.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The server properties that clients see.
    pub amqp: Arc<AmqpSettings>,
    /// Connections of clients at a time.
    pub connections_max: usize,
    /// Free disk space under which publishers to queues are to wait. Bytes.
    pub disk_free_limit_bytes: u64,
}

/// A queue that is shown: its virtual host, itself, and what it holds.
struct ShownQueue {
    vhost: String,
    queue: Arc<Queue>,
    counts: QueueCounts,
}

/// What is shown of queues.
enum Queues {
    /// All of them together, and how many they are.
    Together(QueueCounts, usize),
    /// Each of these, and how many others there are.
    Each(Vec<ShownQueue>, usize),
}

/// The paths, which begin like this.
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

/// As RabbitMQ has it, unknown groups and virtual hosts are skipped; without a group nothing is shown.
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
    // The one holds all of the other.
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
        "Whether publishers to queues are to wait for room on the disk",
        u8::from(app.broker.is_disk_alarm()),
    );
    text.one(
        Kind::Gauge,
        "rabbitmq_alarms_memory_used_watermark",
        "Whether publishers to queues are to wait for memory",
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

/// What all queues hold.
async fn together(app: &App) -> Result<Queues, Failure> {
    let view = declared::view(&app.broker).await?;
    let queues: Vec<Arc<Queue>> = view.world.queues().cloned().collect();
    let counts = declared::counts(&app.broker, &app.directory, &queues).await?;
    let sum = counts.into_iter().sum();
    Ok(Queues::Together(sum, queues.len()))
}

/// What each queue holds of these virtual hosts; of all, where none is named.
async fn each(app: &App, vhosts: &[String]) -> Result<Queues, Failure> {
    let view = declared::view(&app.broker).await?;
    let named = vhosts.iter().filter_map(|name| Some(view.world.vhost_named(name)?.id));
    let named: BTreeSet<VhostId> = named.collect();
    let wanted = |queue: &&Arc<Queue>| vhosts.is_empty() || named.contains(&queue.vhost);
    let all = view.world.queues().filter(wanted).count();
    let reported: Vec<_> = view.world.queues().filter(wanted).take(OBJECTS_MAX).cloned().collect();
    let counts = declared::counts(&app.broker, &app.directory, &reported).await?;
    let left_out = all - reported.len();
    let reported = reported.into_iter().zip(counts);
    let reported = reported.map(|(queue, counts)| ShownQueue {
        vhost: view.world.vhost_name(queue.vhost).to_owned(),
        queue,
        counts,
    });
    Ok(Queues::Each(reported.collect(), left_out))
}
