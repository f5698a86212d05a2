//! Structs: their definition, their defaults, and the frame around both directions.

use super::descriptor::Versions;
use super::model::{DefaultValue, Field, Kind, Module, Struct};

/// The module's documentation and what it imports: those names that `code` uses.
pub(super) fn preamble(module: &Module, code: &str) -> String {
    let names: Vec<&str> = [
        "ApiKey",
        "DecodeError",
        "EncodeError",
        "Message",
        "Reader",
        "Records",
        "Request",
        "StrBytes",
        "Writer",
        "can_decode",
        "can_encode",
    ]
    .into_iter()
    .filter(|name| uses(code, name))
    .collect();
    let mut out = format!("//! {}.\n\nuse super::super::{{{}}};\n", words(&module.name), names.join(", "));
    if uses(code, "Bytes") {
        out += "use bytes::Bytes;\n";
    }
    if uses(code, "TopicId") {
        out += "use polylogue_types::TopicId;\n";
    }
    if uses(code, "RangeInclusive") {
        out += "use std::ops::RangeInclusive;\n";
    }
    out + "\n"
}

/// Whether `name` occurs outside comments, as a word of its own.
pub(super) fn uses(code: &str, name: &str) -> bool {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')).any(|word| word == name)
}

/// "CreateTopics" as "Create topics".
fn words(name: &str) -> String {
    let text = super::model::snake_case(name).replace('_', " ");
    text.get(..1).unwrap_or_default().to_uppercase() + text.get(1..).unwrap_or_default()
}

/// The struct and its `Default`.
pub(super) fn definition(item: &Struct) -> String {
    let derived = item.fields.iter().all(|f| f.default == derived_default(f));
    let derive = if derived { ", Default" } else { "" };
    let mut out = format!("{}#[derive(Clone, Debug, PartialEq{derive})]\npub struct {} {{\n", about(item), item.name);
    for field in &item.fields {
        let mut text = field.about.trim().to_owned();
        if field.versions != item.versions {
            let plural = if field.versions.min == field.versions.max { "" } else { "s" };
            text += &format!(" (version{plural} {})", field.versions);
        }
        out += &doc(&text);
        out += &format!("pub {}: {},\n", field.ident, rust_type(field));
    }
    out += "}\n\n";
    if !derived {
        out += &format!("impl Default for {0} {{\nfn default() -> {0} {{\n{0} {{\n", item.name);
        for field in &item.fields {
            out += &format!("{}: {},\n", field.ident, default(field, ""));
        }
        out += "}\n}\n}\n\n";
    }
    out
}

fn about(item: &Struct) -> String {
    if !item.about.is_empty() {
        return doc(&item.about);
    }
    let unit = if item.versions.min == item.versions.max { "version" } else { "versions" };
    doc(&format!("Kafka's {}, {unit} {}.", item.name, item.versions))
}

/// A documentation comment; the texts know nothing of Markdown.
fn doc(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.replace('[', "\\[").replace(']', "\\]").replace('<', "\\<").replace('>', "\\>");
    let mut out = String::new();
    let mut line = String::from("///");
    for word in text.split(' ') {
        if line.len() + 1 + word.len() > 116 {
            out += &line;
            out.push('\n');
            "///".clone_into(&mut line);
        }
        line.push(' ');
        line += word;
    }
    out + &line + "\n"
}

fn derived_default(field: &Field) -> DefaultValue {
    if field.is_option() { DefaultValue::Null } else { DefaultValue::Empty }
}

/// The Rust type of a field.
fn rust_type(field: &Field) -> String {
    let plain = kind_type(&field.kind);
    if field.is_option() { format!("Option<{plain}>") } else { plain }
}

fn kind_type(kind: &Kind) -> String {
    match kind {
        Kind::Number(name) => (*name).to_owned(),
        Kind::Uuid => "TopicId".to_owned(),
        Kind::String => "StrBytes".to_owned(),
        Kind::Bytes => "Bytes".to_owned(),
        Kind::Records => "Records".to_owned(),
        Kind::Struct(name) => name.clone(),
        Kind::Array(element) => format!("Vec<{}>", kind_type(element)),
    }
}

/// What a field is when it is not on the wire. `path` stands before the names of structs.
pub(super) fn default(field: &Field, path: &str) -> String {
    let plain = match (&field.default, &field.kind) {
        (DefaultValue::Null, _) => return "None".to_owned(),
        (DefaultValue::Literal(text), _) => text.clone(),
        (DefaultValue::Empty, Kind::Number("bool")) => "false".to_owned(),
        (DefaultValue::Empty, Kind::Number("f64")) => "0.0".to_owned(),
        (DefaultValue::Empty, Kind::Number(_)) => "0".to_owned(),
        (DefaultValue::Empty, Kind::Uuid) => "TopicId::ZERO".to_owned(),
        (DefaultValue::Empty, Kind::String) => "StrBytes::new()".to_owned(),
        (DefaultValue::Empty, Kind::Bytes) => "Bytes::new()".to_owned(),
        (DefaultValue::Empty, Kind::Records) => "Records::new()".to_owned(),
        (DefaultValue::Empty, Kind::Array(_)) => "Vec::new()".to_owned(),
        (DefaultValue::Empty, Kind::Struct(name)) => format!("{path}{name}::default()"),
    };
    if field.is_option() { format!("Some({plain})") } else { plain }
}

/// Both directions around their bodies: the trait for a message, own methods for a part.
pub(super) fn implementation(item: &Struct, decode: &str, encode: &str) -> String {
    let name = &item.name;
    let version = |body: &str| if uses(body, "version") { "version" } else { "_version" };
    if !item.is_message {
        return format!(
            "impl {name} {{\n\
             fn decode(r: &mut Reader, {}: i16) -> Result<Self, DecodeError> {{\n{decode}}}\n\n\
             fn encode(&self, w: &mut Writer, {}: i16) -> Result<(), EncodeError> {{\n{encode}}}\n}}\n\n",
            version(decode),
            version(encode),
        );
    }
    let flexible = if item.flexible.is_empty() { "None".to_owned() } else { format!("Some({})", item.flexible.min) };
    format!(
        "impl Message for {name} {{\n\
         const NAME: &'static str = \"{name}\";\n\
         const VERSIONS: RangeInclusive<i16> = {}..={};\n\
         const FLEXIBLE_FROM: Option<i16> = {flexible};\n\n\
         fn decode(r: &mut Reader, version: i16) -> Result<Self, DecodeError> {{\n\
         can_decode::<Self>(version)?;\n{decode}}}\n\n\
         fn encode(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError> {{\n\
         can_encode::<Self>(version)?;\n{encode}}}\n}}\n\n",
        item.versions.min, item.versions.max,
    )
}

/// When something that exists in `part` of the versions `whole` exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// In all of them.
    Always,
    /// In none.
    Never,
    /// Where this expression holds.
    If(String),
}

impl Gate {
    /// `part` must lie within `whole`.
    pub(super) fn new(part: Versions, whole: Versions) -> Gate {
        if part.is_empty() {
            return Gate::Never;
        }
        match (part.min > whole.min, part.max < whole.max) {
            (false, false) => Gate::Always,
            (true, false) => Gate::If(format!("version >= {}", part.min)),
            (false, true) => Gate::If(format!("version <= {}", part.max)),
            (true, true) if part.min == part.max => Gate::If(format!("version == {}", part.min)),
            (true, true) => Gate::If(format!("({}..={}).contains(&version)", part.min, part.max)),
        }
    }

    /// As a boolean expression.
    pub(super) fn expression(&self) -> String {
        match self {
            Gate::Always => "true".to_owned(),
            Gate::Never => "false".to_owned(),
            Gate::If(condition) => condition.clone(),
        }
    }
}

/// Whether the lengths of `field` are compact, where the field exists; `flexible` is a variable of both directions.
pub(super) fn flexible(item: &Struct, field: &Field) -> String {
    match Gate::new(field.flexible, field.versions) {
        Gate::If(_) if field.flexible == item.flexible.and(field.versions) => "flexible".to_owned(),
        gate => gate.expression(),
    }
}

/// Whether `field` may be null, where it exists.
pub(super) fn nullable(field: &Field) -> String {
    Gate::new(field.nullable, field.versions).expression()
}

/// The variable `flexible` in front of a body that uses it.
pub(super) fn with_flexible(item: &Struct, body: String) -> String {
    match Gate::new(item.flexible, item.versions) {
        Gate::If(condition) if uses(&body, "flexible") => format!("let flexible = {condition};\n{body}"),
        _ => body,
    }
}
