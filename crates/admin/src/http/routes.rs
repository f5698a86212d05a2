//! The paths of the API, in one table: the router and the OpenAPI description (`/api/v1/openapi.json`) are made from it.

use super::{
    App, acls, backup, bindings, connections, exchanges, groups, messages, moving, permissions, publish, queues,
    quotas, reports, settings, status, to_its_end, topics, users, vhosts,
};
use crate::api::access::{AclQuery, Acls, Permissions, PutPermission, PutUser, Quota, QuotaOf, Quotas, Users};
use crate::api::clients::Connections;
use crate::api::messages::{MessagesQuery, NewMessage, TopicMessages, Written};
use crate::api::queues::{
    Bindings, Exchanges, GetMessages, Messages, MoveMessages, Moved, NewBinding, NewExchange, NewPublish, NewQueue,
    NewVhost, Published, Purged, Queue, Queues, Vhosts,
};
use crate::api::reports::Reports;
use crate::api::settings::{AlterTopic, ChangeSettings, SettingsList};
use crate::api::{Group, GroupReset, Groups, NewTopic, Options, ResetGroup, Status, Topic, Topics};
use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use std::sync::Arc;

/// A path and method.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// A short summary.
    pub(super) about: &'static str,
    /// The query parameters.
    pub(super) query: Option<Schema>,
    /// The request body.
    pub(super) takes: Option<Schema>,
    /// The success statuses, with the response body.
    pub(super) answers: Vec<(u16, Option<Schema>)>,
    /// The content type of a response that is a byte stream.
    pub(super) streams: Option<&'static str>,
    serve: MethodRouter<Arc<App>>,
    /// Cancelled when the client disconnects: messages that it did not receive must stay in the queue.
    ends_with_client: bool,
}

impl Route {
    fn new(method: &'static str, path: &'static str, serve: MethodRouter<Arc<App>>, about: &'static str) -> Route {
        let (query, takes) = (None, None);
        let (answers, streams) = (Vec::new(), None);
        Route { method, path, about, query, takes, answers, streams, serve, ends_with_client: false }
    }

    fn takes(self, schema: Schema) -> Route {
        Route { takes: Some(schema), ..self }
    }

    fn query(self, schema: Schema) -> Route {
        Route { query: Some(schema), ..self }
    }

    fn answers(mut self, status: u16, schema: Schema) -> Route {
        self.answers.push((status, Some(schema)));
        self
    }

    fn streams(self, content: &'static str) -> Route {
        Route { streams: Some(content), ..self }
    }

    fn ends(mut self, statuses: &[u16]) -> Route {
        self.answers.extend(statuses.iter().map(|status| (*status, None)));
        self
    }
}

/// All routes below `/api/v1` but the login and the description.
pub(super) fn routes(schemas: &mut SchemaGenerator) -> Vec<Route> {
    let mut all = of_the_node(schemas);
    all.extend(of_topics(schemas));
    all.extend(of_groups(schemas));
    all.extend(of_users(schemas));
    all.extend(of_vhosts(schemas));
    all.extend(of_queues(schemas));
    all
}

/// Returns the router.
pub(super) fn router(routes: Vec<Route>) -> Router<Arc<App>> {
    let (with_client, to_the_end): (Vec<_>, Vec<_>) = routes.into_iter().partition(|route| route.ends_with_client);
    let add = |router: Router<Arc<App>>, route: Route| router.route(route.path, route.serve);
    let router = to_the_end.into_iter().fold(Router::new(), add).layer(from_fn(to_its_end));
    with_client.into_iter().fold(router, add)
}

fn of<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// Returns the schema of a query, inlined.
fn fields<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    T::json_schema(schemas)
}

fn of_the_node(s: &mut SchemaGenerator) -> Vec<Route> {
    let scope = "/settings/{scope}";
    let named = "/settings/{scope}/{name}";
    vec![
        Route::new("get", "/status", get(status::status), "Status and counters of the broker")
            .answers(200, of::<Status>(s)),
        Route::new("get", "/config", get(status::config), "Every configuration option").answers(200, of::<Options>(s)),
        Route::new("get", "/connections", get(connections::list), "Client connections")
            .query(fields::<super::page::Page>(s))
            .answers(200, of::<Connections>(s)),
        Route::new("get", "/reports", get(reports::list), "Reports shown in the console")
            .answers(200, of::<Reports>(s)),
        Route::new("post", "/backup", post(backup::begin), "Starts a backup and returns it as a stream of records")
            .streams(crate::backup::CONTENT_TYPE),
        Route::new("delete", "/connections/{id}", delete(connections::end), "Ends a connection").ends(&[204]),
        Route::new("get", scope, get(settings::of_broker), "Settings of this node (node), or of all nodes (cluster)")
            .answers(200, of::<SettingsList>(s)),
        Route::new("patch", scope, patch(settings::change_broker), "Sets and deletes settings")
            .takes(of::<ChangeSettings>(s))
            .ends(&[204]),
        Route::new(
            "get",
            named,
            get(settings::of_named),
            "Settings of a group (groups), or of a client metrics subscription (client-metrics)",
        )
        .answers(200, of::<SettingsList>(s)),
        Route::new("patch", named, patch(settings::change_named), "Sets and deletes settings")
            .takes(of::<ChangeSettings>(s))
            .ends(&[204]),
    ]
}

fn of_topics(s: &mut SchemaGenerator) -> Vec<Route> {
    let one = "/topics/{name}";
    let messages_of = "/topics/{name}/messages";
    vec![
        Route::new("get", "/topics", get(topics::list), "Topics")
            .query(fields::<topics::Wanted>(s))
            .answers(200, of::<Topics>(s)),
        Route::new("post", "/topics", post(topics::create), "Creates a topic")
            .takes(of::<NewTopic>(s))
            .answers(200, of::<Topic>(s))
            .answers(201, of::<Topic>(s)),
        Route::new("get", one, get(topics::describe), "A topic with its partitions and configs")
            .answers(200, of::<Topic>(s)),
        Route::new("patch", one, patch(settings::alter_topic), "Changes the topic's configs, or adds partitions")
            .takes(of::<AlterTopic>(s))
            .ends(&[204]),
        Route::new("delete", one, delete(topics::delete), "Deletes a topic").ends(&[204]),
        Route::new(
            "get",
            messages_of,
            get(messages::list),
            "Reads messages of a topic, or of a queue that can be read as a topic",
        )
        .query(fields::<MessagesQuery>(s))
        .answers(200, of::<TopicMessages>(s)),
        Route::new("post", messages_of, post(messages::write), "Writes a message")
            .takes(of::<NewMessage>(s))
            .answers(201, of::<Written>(s)),
        Route::new("delete", messages_of, delete(messages::delete), "Deletes all messages").ends(&[204]),
    ]
}

fn of_groups(s: &mut SchemaGenerator) -> Vec<Route> {
    let one = "/groups/{name}";
    vec![
        Route::new("get", "/groups", get(groups::list), "Groups with their lag")
            .query(fields::<super::page::Page>(s))
            .answers(200, of::<Groups>(s)),
        Route::new("get", one, get(groups::describe), "A group with its members, offsets and lag")
            .answers(200, of::<Group>(s)),
        Route::new("delete", one, delete(groups::delete), "Deletes a group that has no members").ends(&[204]),
        Route::new(
            "post",
            "/groups/{name}/reset",
            post(groups::reset),
            "Resets the offsets of a group that has no members",
        )
        .takes(of::<ResetGroup>(s))
        .answers(200, of::<GroupReset>(s)),
    ]
}

fn of_users(s: &mut SchemaGenerator) -> Vec<Route> {
    let permissions_of = "/vhosts/{vhost}/permissions/{user}";
    vec![
        Route::new("get", "/users", get(users::list), "Users").answers(200, of::<Users>(s)),
        Route::new("put", "/users/{name}", put(users::put), "Creates or changes a user")
            .takes(of::<PutUser>(s))
            .ends(&[200, 201]),
        Route::new("delete", "/users/{name}", delete(users::delete), "Deletes a user with its permissions")
            .ends(&[204]),
        Route::new("get", "/permissions", get(permissions::list), "Permissions of users in virtual hosts")
            .answers(200, of::<Permissions>(s)),
        Route::new("put", permissions_of, put(permissions::put), "Sets a user's permissions in a virtual host")
            .takes(of::<PutPermission>(s))
            .ends(&[200, 201]),
        Route::new(
            "delete",
            permissions_of,
            delete(permissions::delete),
            "Deletes a user's permissions in a virtual host",
        )
        .ends(&[204]),
        Route::new("get", "/acls", get(acls::list), "Access control lists")
            .query(fields::<AclQuery>(s))
            .answers(200, of::<Acls>(s)),
        Route::new("post", "/acls", post(acls::create), "Creates ACLs")
            .takes(of::<Acls>(s))
            .answers(201, of::<Acls>(s)),
        Route::new("post", "/acls/delete", post(acls::delete), "Deletes ACLs and returns those that existed")
            .takes(of::<Acls>(s))
            .answers(200, of::<Acls>(s)),
        Route::new("get", "/quotas", get(quotas::list), "Quotas of Kafka clients").answers(200, of::<Quotas>(s)),
        Route::new("put", "/quotas", put(quotas::put), "Sets a quota").takes(of::<Quota>(s)).ends(&[204]),
        Route::new("post", "/quotas/delete", post(quotas::delete), "Deletes a quota")
            .takes(of::<QuotaOf>(s))
            .ends(&[204]),
    ]
}

fn of_vhosts(s: &mut SchemaGenerator) -> Vec<Route> {
    let exchanges_of = "/vhosts/{vhost}/exchanges";
    let bindings_of = "/vhosts/{vhost}/bindings";
    vec![
        Route::new("get", "/vhosts", get(vhosts::list), "Virtual hosts").answers(200, of::<Vhosts>(s)),
        Route::new("post", "/vhosts", post(vhosts::create), "Creates a virtual host")
            .takes(of::<NewVhost>(s))
            .ends(&[200, 201]),
        Route::new(
            "delete",
            "/vhosts/{vhost}",
            delete(vhosts::delete),
            "Deletes a virtual host with its queues and exchanges",
        )
        .ends(&[204]),
        Route::new("post", "/vhosts/{vhost}/publish", post(publish::serve), "Publishes a message")
            .takes(of::<NewPublish>(s))
            .answers(200, of::<Published>(s)),
        Route::new("get", exchanges_of, get(exchanges::list), "Exchanges").answers(200, of::<Exchanges>(s)),
        Route::new("post", exchanges_of, post(exchanges::declare), "Declares an exchange")
            .takes(of::<NewExchange>(s))
            .ends(&[200, 201]),
        Route::new("delete", "/vhosts/{vhost}/exchanges/{name}", delete(exchanges::delete), "Deletes an exchange")
            .query(fields::<queues::Only>(s))
            .ends(&[204]),
        Route::new("get", bindings_of, get(bindings::list), "Bindings").answers(200, of::<Bindings>(s)),
        Route::new("post", bindings_of, post(bindings::add), "Adds a binding")
            .takes(of::<NewBinding>(s))
            .ends(&[200, 201, 204]),
        Route::new("post", "/vhosts/{vhost}/bindings/delete", post(bindings::delete), "Deletes a binding")
            .takes(of::<NewBinding>(s))
            .ends(&[204]),
    ]
}

fn of_queues(s: &mut SchemaGenerator) -> Vec<Route> {
    let all = "/vhosts/{vhost}/queues";
    let one = "/vhosts/{vhost}/queues/{name}";
    let got = Route::new(
        "post",
        "/vhosts/{vhost}/queues/{name}/get",
        post(queues::get),
        "Gets messages, with or without acknowledging them",
    );
    vec![
        Route::new("get", all, get(queues::list), "Queues with their message counts")
            .query(fields::<super::page::Page>(s))
            .answers(200, of::<Queues>(s)),
        Route::new("post", all, post(queues::declare), "Declares a queue")
            .takes(of::<NewQueue>(s))
            .answers(200, of::<Queue>(s))
            .answers(201, of::<Queue>(s)),
        Route::new("get", one, get(queues::describe), "A queue").answers(200, of::<Queue>(s)),
        Route::new("delete", one, delete(queues::delete), "Deletes a queue")
            .query(fields::<queues::Only>(s))
            .ends(&[204]),
        Route::new(
            "delete",
            "/vhosts/{vhost}/queues/{name}/messages",
            delete(queues::purge),
            "Purges the ready messages",
        )
        .answers(200, of::<Purged>(s)),
        Route::new(
            "post",
            "/vhosts/{vhost}/queues/{name}/move",
            post(moving::serve),
            "Moves messages to another queue",
        )
        .takes(of::<MoveMessages>(s))
        .answers(200, of::<Moved>(s)),
        Route { ends_with_client: true, ..got.takes(of::<GetMessages>(s)).answers(200, of::<Messages>(s)) },
    ]
}
