//! Environment variables: one for each option.

use super::resolve::{Given, OptionError, Source};
use super::table::{OPTIONS, Section};
use polylogue_kafka::config::{known_broker_names, nearest, tolerated_broker_names};
use std::path::PathBuf;

/// Path of the configuration file.
pub const CONFIG_VARIABLE: &str = "POLYLOGUE_CONFIG";
/// URL of the server's http listener, for the admin commands.
pub const SERVER_VARIABLE: &str = "POLYLOGUE_SERVER";
/// Address of the server's kafka listener, for `produce` and `consume`.
pub const BOOTSTRAP_VARIABLE: &str = "POLYLOGUE_BOOTSTRAP";

/// The initial administrator's password. Not an option, so that it is never listed.
pub use polylogue_net::users::ADMIN_PASSWORD_VARIABLE;
/// The user name and password of commands that connect to a server.
pub const USER_VARIABLE: &str = "POLYLOGUE_USER";
/// See [`USER_VARIABLE`].
pub const PASSWORD_VARIABLE: &str = "POLYLOGUE_PASSWORD";

/// The CA of servers that commands connect to.
pub const CA_VARIABLE: &str = "POLYLOGUE_CA";

/// The profile of commands that connect to a server.
pub const PROFILE_VARIABLE: &str = "POLYLOGUE_PROFILE";

/// Variables that belong to no option.
const OTHERS: [&str; 8] = [
    CONFIG_VARIABLE,
    SERVER_VARIABLE,
    BOOTSTRAP_VARIABLE,
    ADMIN_PASSWORD_VARIABLE,
    USER_VARIABLE,
    PASSWORD_VARIABLE,
    CA_VARIABLE,
    PROFILE_VARIABLE,
];

const PREFIX: &str = "POLYLOGUE_";

/// Returns an option's variable: `POLYLOGUE_`, the section unless it is `server`, and the name, with `_` for every dot.
#[must_use]
pub fn variable(section: Section, name: &str) -> String {
    let section = match section {
        Section::Server => "",
        Section::Tls => "TLS_",
        Section::OAuth => "OAUTH_",
        Section::Log => "LOG_",
        Section::Amqp => "AMQP_",
        Section::Kafka => "KAFKA_",
    };
    format!("{PREFIX}{section}{}", name.to_ascii_uppercase().replace(['.', '-'], "_"))
}

/// Returns the path that [`CONFIG_VARIABLE`] names.
pub(super) fn config_file(variables: &[(String, String)]) -> Option<PathBuf> {
    variables.iter().find(|(name, value)| name == CONFIG_VARIABLE && !value.is_empty()).map(|(_, v)| PathBuf::from(v))
}

/// Reads all variables that start with `POLYLOGUE_`. Empty ones count as not set.
///
/// # Errors
/// A variable of no option: most likely misspelled, so that it must not be ignored.
pub(super) fn read(variables: &[(String, String)]) -> Result<Vec<Given>, OptionError> {
    let mut known: Vec<(String, String)> =
        OPTIONS.iter().map(|def| (variable(def.section, def.name), def.full_name())).collect();
    let of_kafka = known_broker_names().chain(tolerated_broker_names());
    known.extend(of_kafka.map(|name| (variable(Section::Kafka, name), format!("kafka.{name}"))));
    let mut given = Vec::new();
    for (name, value) in variables {
        if !name.starts_with(PREFIX) || value.is_empty() || OTHERS.contains(&name.as_str()) || is_service_link(name) {
            continue;
        }
        let Some((_, option)) = known.iter().find(|(variable, _)| variable == name) else {
            // The common prefix says nothing about similarity.
            let rest = |variable: &'_ str| variable.strip_prefix(PREFIX).unwrap_or_default().to_owned();
            let candidates: Vec<String> = known.iter().map(|(variable, _)| rest(variable)).collect();
            let meant = nearest(&rest(name), candidates.iter().map(String::as_str))
                .map_or(String::new(), |nearest| format!("; did you mean {PREFIX}{nearest}?"));
            return Err(OptionError(format!("unknown variable {name} in the environment{meant}")));
        };
        let source = Source::Environment(name.clone());
        given.push(Given { name: option.clone(), value: value.clone(), source });
    }
    Ok(given)
}

/// Whether it is a variable that Kubernetes sets for a service: one named `polylogue` or `polylogue-kafka` yields
/// `POLYLOGUE_SERVICE_HOST`, `POLYLOGUE_KAFKA_PORT_9092_TCP_ADDR` and the like. Those are ignored.
fn is_service_link(name: &str) -> bool {
    let is_port_link = |rest: &str| {
        let number = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        number > 0 && matches!(rest.get(number..number + 4), Some("_TCP" | "_UDP"))
    };
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.split_once("_PORT_").is_some_and(|(_, rest)| is_port_link(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_options_share_a_variable() {
        let mut all: Vec<String> = OPTIONS.iter().map(|def| variable(def.section, def.name)).collect();
        all.extend(known_broker_names().map(|name| variable(Section::Kafka, name)));
        all.extend(OTHERS.map(str::to_owned));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|name| !is_service_link(name)), "an option must not look like a service link");
    }

    #[test]
    fn service_links_are_not_options() {
        for name in [
            "POLYLOGUE_SERVICE_HOST",
            "POLYLOGUE_SERVICE_PORT_KAFKA",
            "POLYLOGUE_PORT",
            "POLYLOGUE_PORT_9092_TCP",
            "POLYLOGUE_KAFKA_PORT_9092_TCP_ADDR",
        ] {
            assert!(is_service_link(name), "{name}");
            assert_eq!(read(&[(name.to_owned(), "tcp://10.0.0.1:9092".to_owned())]), Ok(Vec::new()));
        }
        assert!(!is_service_link("POLYLOGUE_KAFKA_NUM_PARTITIONS"));
    }
}
