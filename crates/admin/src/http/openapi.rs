//! The OpenAPI 3.1 description of the API (`/api/v1/openapi.json`), generated from the table of [routes](super::routes) and the types.

use super::routes::{Route, routes};
use crate::api::clients::{LogIn, Session};
use crate::api::{ErrorBody, PREFIX};
use axum::Json;
use schemars::Schema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

/// Path of the named schemas in the document.
const SCHEMAS: &str = "/components/schemas";

/// Returns a schema generator that makes OpenAPI references.
pub(super) fn schemas() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = SCHEMAS.into());
    settings.into_generator()
}

/// Returns the document.
pub(super) fn document() -> Value {
    let mut schemas = schemas();
    let mut paths = Map::new();
    for route in &routes(&mut schemas) {
        add(&mut paths, route.path, route.method, operation(route));
    }
    let session = |schema: Schema| json!({"description": "What was asked for.", "content": content(&schema)});
    let login = schemas.subschema_for::<LogIn>();
    let asked = session(schemas.subschema_for::<Session>());
    let open = |summary: &str, answers: Value| json!({"summary": summary, "security": [], "responses": answers});
    let mut log_in = open("Logs in, for a cookie", json!({"200": asked.clone(), "default": refused()}));
    log_in["requestBody"] = body(&login);
    add(
        &mut paths,
        "/session",
        "get",
        open("Whether a login is required, and the user who is logged in", json!({"200": asked})),
    );
    add(&mut paths, "/session", "post", log_in);
    add(&mut paths, "/session", "delete", open("Logs out", json!({"204": {"description": "Done."}})));
    drop(schemas.subschema_for::<ErrorBody>());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "polylogue",
            "version": "1",
            "description": "Administration of a broker. Fields may be added within a version; none is removed or changes its meaning.",
        },
        "servers": [{"url": PREFIX}],
        "security": [{"basic": []}, {"bearer": []}, {"cookie": []}, {}],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": super::login::COOKIE},
            },
        },
    })
}

/// `GET /openapi.json`; needs no login.
pub(super) async fn serve() -> Json<Value> {
    Json(document())
}

fn add(paths: &mut Map<String, Value>, path: &str, method: &str, operation: Value) {
    if let Value::Object(methods) = paths.entry(path.to_owned()).or_insert_with(|| json!({})) {
        methods.insert(method.to_owned(), operation);
    }
}

fn content(schema: &Schema) -> Value {
    json!({"application/json": {"schema": schema}})
}

fn body(schema: &Schema) -> Value {
    json!({"required": true, "content": content(schema)})
}

fn refused() -> Value {
    json!({
        "description": "What is wrong.",
        "content": {"application/json": {"schema": {"$ref": format!("#{SCHEMAS}/ErrorBody")}}},
    })
}

fn operation(route: &Route) -> Value {
    let mut responses = Map::new();
    for (status, schema) in &route.answers {
        let mut answer = json!({"description": if schema.is_some() { "What was asked for." } else { "Done." }});
        if let Some(schema) = schema {
            answer["content"] = content(schema);
        }
        responses.insert(status.to_string(), answer);
    }
    if let Some(content) = route.streams {
        let bytes = json!({(content): {"schema": {"type": "string", "format": "binary"}}});
        responses.insert("200".to_owned(), json!({"description": "What was asked for.", "content": bytes}));
    }
    responses.insert("default".to_owned(), refused());
    let mut operation = json!({
        "summary": route.about,
        "parameters": parameters(route),
        "responses": responses,
    });
    if let Some(takes) = &route.takes {
        operation["requestBody"] = body(takes);
    }
    operation
}

/// Returns the path and query parameters.
fn parameters(route: &Route) -> Vec<Value> {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| {
        let kind = if name == "id" { "integer" } else { "string" };
        json!({"name": name, "in": "path", "required": true, "schema": {"type": kind}})
    });
    let fields = route.query.as_ref().and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    let in_query = fields.into_iter().flatten().map(|(name, schema)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        json!({"name": name, "in": "query", "required": false, "description": description, "schema": schema})
    });
    in_path.chain(in_query).collect()
}
