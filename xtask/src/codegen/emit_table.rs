//! The table of APIs, and the list of everything that is generated.

use super::model::{Api, Module};

/// `ApiKey` and what is known of each key.
pub(super) fn api_keys(apis: &[Api]) -> String {
    let mut variants = String::new();
    let mut all = String::new();
    let mut rows = String::new();
    let mut keys = String::new();
    for api in apis {
        let Api { name, key, .. } = api;
        let from = if api.flexible.is_empty() { "None".to_owned() } else { format!("Some({})", api.flexible.min) };
        variants += &format!("/// Key {key}, versions {} to {}.\n{name} = {key},\n", api.valid.min, api.valid.max);
        all += &format!("ApiKey::{name},\n");
        rows += &format!(
            "ApiKey::{name} => row(\"{name}\", {}, {}, {from}, {}),\n",
            api.valid.min, api.valid.max, api.latest_unstable
        );
        keys += &format!("{key} => Ok(ApiKey::{name}),\n");
    }
    API_KEYS.replace("@variants", &variants).replace("@all", &all).replace("@rows", &rows).replace("@keys", &keys)
}

/// The fixed part around the rows.
const API_KEYS: &str = r#"//! The APIs, with the facts that a frame needs before its body can be read.

use super::super::DecodeError;
use std::fmt;
use std::ops::RangeInclusive;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i16)]
pub enum ApiKey {
    @variants
}

/// The facts of one API.
struct Row {
    name: &'static str,
    min: i16,
    max: i16,
    flexible_from: Option<i16>,
    latest_unstable: bool,
}

const fn row(name: &'static str, min: i16, max: i16, flexible_from: Option<i16>, latest_unstable: bool) -> Row {
    Row { name, min, max, flexible_from, latest_unstable }
}

impl ApiKey {
    /// All of them, by rising key.
    pub const ALL: &'static [ApiKey] = &[
        @all
    ];

    const fn row(self) -> Row {
        match self {
            @rows
        }
    }

    /// The key on the wire.
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Kafka's name, without "Request".
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The versions that the codec reads and writes.
    #[must_use]
    pub const fn valid_versions(self) -> RangeInclusive<i16> {
        let row = self.row();
        row.min..=row.max
    }

    /// Whether Kafka still calls the newest version subject to change.
    #[must_use]
    pub const fn latest_version_unstable(self) -> bool {
        self.row().latest_unstable
    }

    /// Whether `version` has compact lengths and tagged fields. Versions to come count as flexible, as in Kafka.
    #[must_use]
    pub const fn is_flexible(self, version: i16) -> bool {
        match self.row().flexible_from {
            Some(from) => version >= from,
            None => false,
        }
    }

    /// The version of the header of a request of `version`.
    #[must_use]
    pub const fn request_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// The version of the header of a response of `version`.
    #[must_use]
    pub const fn response_header_version(self, version: i16) -> i16 {
        // the client that asks for versions does not know yet what it will be understood in
        if matches!(self, ApiKey::ApiVersions) {
            return 0;
        }
        if self.is_flexible(version) { 1 } else { 0 }
    }
}

impl TryFrom<i16> for ApiKey {
    type Error = DecodeError;

    fn try_from(key: i16) -> Result<ApiKey, DecodeError> {
        match key {
            @keys
            key => Err(DecodeError::UnknownApiKey { key }),
        }
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
"#;

/// The folder's mod.rs.
pub(super) fn index(modules: &[Module]) -> String {
    let mut names: Vec<&str> = modules.iter().map(|module| module.file.as_str()).collect();
    names.sort_unstable();
    let mut out = "//! The messages of Kafka's protocol, a module for each API.\n\n\
                   #![allow(clippy::too_many_lines, reason = \"a function a message, however long the message\")]\n\n\
                   mod api_key;\nmod error_code;\n\npub use api_key::ApiKey;\npub use error_code::ErrorCode;\n\n"
        .to_owned();
    for name in names {
        out += &format!("pub mod {name};\n");
    }
    let messages: Vec<String> = modules
        .iter()
        .flat_map(|module| module.structs.iter().filter(|item| item.is_message).map(move |item| (module, item)))
        .map(|(module, item)| format!("$crate::generated::{}::{}", module.file, item.name))
        .map(|path| format!("$check::<{path}>($($argument),*);"))
        .collect();
    out += &format!(
        "\n/// `for_each_kafka_message!(check(arguments))` calls `check::<M>(arguments)` for every message `M`: for tests\n\
         /// and fuzzers that treat every message alike.\n\
         #[macro_export]\nmacro_rules! for_each_kafka_message {{\n    ($check:ident($($argument:expr),*)) => {{\n\
         \x20       {}\n    }};\n}}\n",
        messages.join("\n        ")
    );
    out
}
