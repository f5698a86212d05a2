//! The writing direction.

use super::emit_struct::{Gate, flexible, nullable, with_flexible};
use super::model::{DefaultValue, Field, Kind, Struct};

/// The body of `encode`.
pub(super) fn body(item: &Struct) -> Result<String, String> {
    let mut out = String::new();
    for field in item.fields.iter().filter(|f| f.tag.is_none()) {
        let write = write(item, field);
        out += &match Gate::new(field.versions, item.versions) {
            Gate::If(condition) if field.ignorable => format!("if {condition} {{ {write} }}\n"),
            Gate::If(condition) => {
                format!("if {condition} {{ {write} }} else if {} {{ {} }}\n", is_set(field), refuse(field))
            }
            Gate::Always | Gate::Never => format!("{write}\n"),
        };
    }
    out += &tagged(item)?;
    out += "Ok(())\n";
    Ok(with_flexible(item, out))
}

fn refuse(field: &Field) -> String {
    format!("return Err(EncodeError::NotInVersion {{ field: \"{}\", version }});", field.path)
}

/// The tagged section: only what is not at its default, by rising tags.
fn tagged(item: &Struct) -> Result<String, String> {
    let mut fields: Vec<(u32, &Field)> = item.fields.iter().filter_map(|f| Some((f.tag?, f))).collect();
    fields.sort_by_key(|(tag, _)| *tag);
    if fields.len() > 127 {
        return Err(format!("{}: too many tagged fields", item.name));
    }
    let mut out = String::new();
    for (_, field) in fields.iter().filter(|(_, f)| !f.ignorable) {
        if field.versions.max != item.versions.max {
            return Err(format!("{}: a tag that ends with a version", field.path));
        }
        if field.versions.min > item.versions.min {
            out += &format!("if version < {} && {} {{ {} }}\n", field.versions.min, is_set(field), refuse(field));
        }
    }
    let mut section = String::new();
    let mut count = Vec::new();
    let mut writes = String::new();
    for (tag, field) in fields {
        let name = format!("has_{}", field.ident.trim_start_matches("r#"));
        let set = match Gate::new(field.versions, item.flexible) {
            Gate::If(condition) => format!("{condition} && {}", is_set(field)),
            Gate::Always | Gate::Never => is_set(field),
        };
        section += &format!("let {name} = {set};\n");
        writes += &format!("if {name} {{ w.tagged({tag}, |w| {{ {} Ok(()) }})?; }}\n", write(item, field));
        count.push(format!("u32::from({name})"));
    }
    section += &format!("w.uvarint({});\n", if count.is_empty() { "0".to_owned() } else { count.join(" + ") });
    section += &writes;
    out += &match Gate::new(item.flexible, item.versions) {
        Gate::Always => section,
        Gate::Never => String::new(),
        Gate::If(_) => format!("if flexible {{ {section} }}\n"),
    };
    Ok(out)
}

/// Whether a field differs from its default.
fn is_set(field: &Field) -> String {
    let value = format!("self.{}", field.ident);
    if field.is_option() {
        return match field.default {
            DefaultValue::Null => format!("{value}.is_some()"),
            // the default is an empty string, list or struct
            _ => format!("{value}.as_ref().is_none_or(|v| {})", is_set_value(&field.kind, &field.default, "v")),
        };
    }
    is_set_value(&field.kind, &field.default, &value)
}

fn is_set_value(kind: &Kind, default: &DefaultValue, value: &str) -> String {
    match (kind, default) {
        (Kind::Number("bool"), DefaultValue::Literal(_)) => format!("!{value}"),
        (Kind::Number("bool"), _) => value.to_owned(),
        (Kind::Number(_), DefaultValue::Literal(literal)) => format!("{value} != {literal}"),
        (Kind::Number("f64"), _) => format!("{value} != 0.0"),
        (Kind::Number(_), _) => format!("{value} != 0"),
        (Kind::Uuid, _) => format!("!{value}.is_zero()"),
        (Kind::Struct(name), _) => format!("{value} != {name}::default()"),
        (Kind::String | Kind::Bytes | Kind::Records | Kind::Array(_), _) => format!("!{value}.is_empty()"),
    }
}

/// The statement that writes a field.
fn write(item: &Struct, field: &Field) -> String {
    let path = &field.path;
    let value = format!("self.{}", field.ident);
    let compact = flexible(item, field);
    if !field.is_option() {
        let by = if matches!(field.kind, Kind::Number(_) | Kind::Uuid | Kind::Struct(_)) { "" } else { "&" };
        let write = write_kind(&field.kind, path, &format!("{by}{value}"), &compact);
        let infallible = matches!(field.kind, Kind::Number(_) | Kind::Uuid);
        return if infallible { format!("{write};") } else { format!("{write}?;") };
    }
    let nullable = nullable(field);
    match &field.kind {
        Kind::String => format!("w.opt_string(\"{path}\", {value}.as_ref(), {compact}, {nullable})?;"),
        Kind::Bytes => format!("w.opt_bytes(\"{path}\", {value}.as_ref(), {compact}, {nullable})?;"),
        Kind::Records => format!("w.opt_records(\"{path}\", {value}.as_ref(), {compact}, {nullable})?;"),
        Kind::Array(element) => {
            let element = element_writer(element, path, &compact);
            format!("w.opt_array(\"{path}\", {value}.as_ref(), {compact}, {nullable}, {element})?;")
        }
        kind => {
            let write = write_kind(kind, path, "v", &compact);
            format!("w.opt_struct(\"{path}\", {value}.as_ref(), {nullable}, |w, v| {write})?;")
        }
    }
}

fn write_kind(kind: &Kind, path: &str, value: &str, compact: &str) -> String {
    match kind {
        Kind::Number(name) => format!("w.{name}({value})"),
        Kind::Uuid => format!("w.uuid({value})"),
        Kind::String => format!("w.string(\"{path}\", {value}, {compact})"),
        Kind::Bytes => format!("w.bytes(\"{path}\", {value}, {compact})"),
        Kind::Records => format!("w.records(\"{path}\", {value}, {compact})"),
        Kind::Struct(_) => format!("{value}.encode(w, version)"),
        Kind::Array(element) => {
            let element = element_writer(element, path, compact);
            format!("w.array(\"{path}\", {value}, {compact}, {element})")
        }
    }
}

fn element_writer(element: &Kind, path: &str, compact: &str) -> String {
    match element {
        Kind::Number(_) | Kind::Uuid => {
            format!("|w, v| {{ {}; Ok(()) }}", write_kind(element, path, "*v", compact))
        }
        _ => format!("|w, v| {}", write_kind(element, path, "v", compact)),
    }
}
