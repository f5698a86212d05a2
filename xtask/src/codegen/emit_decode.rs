//! The reading direction.

use super::emit_struct::{Gate, default, flexible, nullable, with_flexible};
use super::model::{Field, Kind, Struct};
use std::collections::BTreeMap;

/// The body of `decode`: one variable a field, in the order of the wire. `sizes` has the fewest bytes of each part.
pub(super) fn body(item: &Struct, sizes: &BTreeMap<String, usize>) -> String {
    let decoder = Decoder { item, sizes };
    let mut out = String::new();
    for field in item.fields.iter().filter(|f| f.tag.is_none()) {
        let read = decoder.read(field);
        out += &match Gate::new(field.versions, item.versions) {
            Gate::If(condition) => {
                format!("let {} = if {condition} {{ {read}? }} else {{ {} }};\n", field.ident, default(field, ""))
            }
            Gate::Always | Gate::Never => format!("let {} = {read}?;\n", field.ident),
        };
    }
    out += &decoder.tagged();
    let idents: Vec<&str> = item.fields.iter().map(|f| f.ident.as_str()).collect();
    out += &format!("Ok({} {{ {} }})\n", item.name, idents.join(", "));
    with_flexible(item, out)
}

struct Decoder<'a> {
    item: &'a Struct,
    sizes: &'a BTreeMap<String, usize>,
}

impl Decoder<'_> {
    /// The tagged section of the flexible versions.
    fn tagged(&self) -> String {
        let item = self.item;
        let mut out = String::new();
        let mut arms = String::new();
        for field in &item.fields {
            let Some(tag) = field.tag else { continue };
            let guard = match Gate::new(field.versions, item.flexible) {
                Gate::If(condition) => format!("if {condition}"),
                Gate::Always | Gate::Never => String::new(),
            };
            out += &format!("let mut {} = {};\n", field.ident, default(field, ""));
            arms += &format!("{tag} {guard} => {} = {}?,\n", field.ident, self.read(field));
        }
        let known = if arms.is_empty() {
            "|_, _| Ok(false)".to_owned()
        } else {
            format!("|r, tag| {{ match tag {{ {arms} _ => return Ok(false), }} Ok(true) }}")
        };
        let section = format!("r.tagged_fields(\"{}\", {known})?;\n", item.name);
        out + &match Gate::new(item.flexible, item.versions) {
            Gate::Always => section,
            Gate::Never => String::new(),
            Gate::If(_) => format!("if flexible {{ {section} }}\n"),
        }
    }

    /// The expression that reads a field, a `Result`.
    fn read(&self, field: &Field) -> String {
        let path = &field.path;
        let compact = flexible(self.item, field);
        if !field.is_option() {
            return self.read_kind(&field.kind, path, &compact);
        }
        let nullable = nullable(field);
        match &field.kind {
            Kind::String => format!("r.opt_string(\"{path}\", {compact}, {nullable})"),
            Kind::Bytes => format!("r.opt_bytes(\"{path}\", {compact}, {nullable})"),
            Kind::Records => format!("r.opt_records(\"{path}\", {compact}, {nullable})"),
            Kind::Array(element) => {
                let min = self.element_min(element, &compact);
                let element = self.read_kind(element, path, &compact);
                format!("r.opt_array(\"{path}\", {compact}, {nullable}, {min}, |r| {element})")
            }
            kind => {
                let read = self.read_kind(kind, path, &compact);
                format!("r.opt_struct(\"{path}\", {nullable}, |r| {read})")
            }
        }
    }

    fn read_kind(&self, kind: &Kind, path: &str, compact: &str) -> String {
        match kind {
            Kind::Number(name) => format!("r.{name}(\"{path}\")"),
            Kind::Uuid => format!("r.uuid(\"{path}\")"),
            Kind::String => format!("r.string(\"{path}\", {compact})"),
            Kind::Bytes => format!("r.bytes(\"{path}\", {compact})"),
            Kind::Records => format!("r.records(\"{path}\", {compact})"),
            Kind::Struct(name) => format!("{name}::decode(r, version)"),
            Kind::Array(element) => {
                let min = self.element_min(element, compact);
                let element = self.read_kind(element, path, compact);
                format!("r.array(\"{path}\", {compact}, {min}, |r| {element})")
            }
        }
    }

    fn element_min(&self, element: &Kind, compact: &str) -> usize {
        element.min_size(compact != "false", self.sizes)
    }
}
