//! Export and import of definitions, for migration from and to RabbitMQ.

use super::answer::Answer;
use super::body::file_of_form;
use super::call::Call;
use super::error::Failure;
use super::overview::cluster_name;
use super::{Verb, ask};
use axum::http::{HeaderMap, header};
use bytestring::ByteString;
use polylogue_amqp_model::{Command, Definitions, Product, export, masked};

pub(super) async fn serve(
    call: &Call<'_>,
    path: &[&str],
    headers: &HeaderMap,
    bytes: &[u8],
) -> Result<Answer, Failure> {
    // Older tools name the virtual host in the query.
    let named = match path {
        [] => call.query.get("vhost").filter(|vhost| !vhost.is_empty()),
        [vhost] => Some(*vhost),
        _ => return Err(Failure::not_found()),
    };
    let vhost = match named {
        // The export contains password hashes.
        None => {
            call.admin()?;
            None
        }
        Some(vhost) => Some(call.policed_vhost(vhost)?),
    };
    match call.verb {
        Verb::Get => {
            let product = Product { version: call.app.settings.version.clone(), cluster_name: cluster_name(call) };
            let vhost = vhost.map(|vhost| vhost.id);
            let mut all = export(&call.view.metadata, &call.view.routes, vhost, &product);
            if let Some(parameters) = all.get_mut("parameters").filter(|_| !call.is_admin()) {
                *parameters = masked(parameters);
            }
            Ok(Answer::One(all))
        }
        Verb::Post => {
            // An import may contain objects that only administrators may set.
            call.admin()?;
            let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let file = content_type.and_then(|content_type| file_of_form(content_type, bytes));
            let into = vhost.map(|vhost| ByteString::clone(&vhost.name));
            let definitions = Definitions::parse(file.unwrap_or(bytes), into);
            let definitions = definitions.map_err(|why| Failure::refused(&why))?;
            ask::change_by(call, Command::Import(Box::new(definitions))).await?;
            ask::make_topics(call.app).await?;
            Ok(Answer::Done)
        }
        _ => Err(Failure::method_not_allowed("HEAD, GET, POST, OPTIONS")),
    }
}
