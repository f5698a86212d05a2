//! Test code: a random instance of every message, with every field set that a version has.

use super::emit_struct::{Gate, default, nullable, uses};
use super::model::{Field, Kind, Module};

/// `impl Sample` for every struct.
pub(super) fn samples(modules: &[Module]) -> String {
    let mut out = String::new();
    for module in modules {
        for item in &module.structs {
            let path = format!("generated::{}", module.file);
            let mut fields = String::new();
            for field in &item.fields {
                let value = value(field);
                fields += &match Gate::new(field.versions, item.versions) {
                    Gate::If(condition) => {
                        let default = default(field, &format!("{path}::"));
                        format!("{}: if {condition} {{ {value} }} else {{ {default} }},\n", field.ident)
                    }
                    Gate::Always | Gate::Never => format!("{}: {value},\n", field.ident),
                };
            }
            let version = if uses(&fields, "version") { "version" } else { "_version" };
            let g = if item.fields.is_empty() { "_g" } else { "g" };
            out += &format!(
                "impl Sample for {path}::{0} {{\nfn sample({g}: &mut Gen, {version}: i16) -> Self {{\n\
                 {path}::{0} {{\n{fields}}}\n}}\n}}\n\n",
                item.name
            );
        }
    }
    imports(&out) + &out
}

/// Those that `code` uses.
fn imports(code: &str) -> String {
    let mut out = "use super::{Gen, Sample};\n".to_owned();
    for path in [
        "bytes::Bytes",
        "polylogue_kafka_codec::Records",
        "polylogue_kafka_codec::StrBytes",
        "polylogue_kafka_codec::generated",
        "polylogue_types::TopicId",
    ] {
        if path.rsplit("::").next().is_some_and(|name| uses(code, name)) {
            out += &format!("use {path};\n");
        }
    }
    out + "\n"
}

fn value(field: &Field) -> String {
    let value = value_of(&field.kind);
    if !field.is_option() {
        return value;
    }
    format!("g.opt({}, |g| {value})", nullable(field))
}

fn value_of(kind: &Kind) -> String {
    match kind {
        Kind::Number(_) => "g.number()".to_owned(),
        Kind::Uuid => "g.uuid()".to_owned(),
        Kind::String => "g.string()".to_owned(),
        Kind::Bytes => "g.bytes()".to_owned(),
        Kind::Records => "g.records()".to_owned(),
        Kind::Struct(_) => "Sample::sample(g, version)".to_owned(),
        Kind::Array(element) => format!("g.array(|g| {})", value_of(element)),
    }
}
