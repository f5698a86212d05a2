//! The descriptors resolved: names as Rust has them, ranges cut to what exists, structs in a flat list.

use super::descriptor::{Descriptor, FieldDescriptor, Versions};
use serde_json::Value;
use std::collections::BTreeMap;

/// A request and its response.
#[derive(Debug)]
pub(super) struct Api {
    /// The name before "Request".
    pub name: String,
    /// The key on the wire.
    pub key: i16,
    /// The versions that exist.
    pub valid: Versions,
    /// The versions with compact lengths in the request, which decide both headers too.
    pub flexible: Versions,
    /// Whether the newest version may still change.
    pub latest_unstable: bool,
}

impl Api {
    /// Joins both sides; they must agree.
    pub(super) fn new(name: &str, request: &Descriptor, response: &Descriptor) -> Result<Api, String> {
        let key = request.api_key.ok_or_else(|| format!("{name}Request has no key"))?;
        if response.api_key != Some(key)
            || response.valid_versions != request.valid_versions
            || response.flexible_versions != request.flexible_versions
            || (request.kind.as_str(), response.kind.as_str()) != ("request", "response")
        {
            return Err(format!("{name}: request and response disagree on key, versions or flexible versions"));
        }
        Ok(Api {
            name: name.to_owned(),
            key,
            valid: Versions::parse(&request.valid_versions)?,
            flexible: Versions::parse(&request.flexible_versions)?,
            latest_unstable: request.latest_version_unstable,
        })
    }
}

/// One generated file.
#[derive(Debug)]
pub(super) struct Module {
    /// The name in CamelCase.
    pub name: String,
    /// The file's name without its ending.
    pub file: String,
    /// What it holds: each message before the structs that it is made of.
    pub structs: Vec<Struct>,
}

/// A message or a part of one.
#[derive(Clone, Debug)]
pub(super) struct Struct {
    /// Its name in Rust.
    pub name: String,
    /// What it is for; empty: its name says it.
    pub about: String,
    /// Whether it is a whole message, not a part of one.
    pub is_message: bool,
    /// The versions that have it.
    pub versions: Versions,
    /// Of these, the ones with compact lengths.
    pub flexible: Versions,
    /// The fields in the order of the wire, those that no version has left out.
    pub fields: Vec<Field>,
    /// The fewest bytes that one takes on the wire, in any version.
    pub min_size: usize,
}

/// A field of a struct. All ranges are parts of the struct's.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// `Struct.Field`, for errors.
    pub path: String,
    /// Its name in Rust.
    pub ident: String,
    /// What it holds.
    pub kind: Kind,
    /// The versions that have it.
    pub versions: Versions,
    /// The versions in which it may be null.
    pub nullable: Versions,
    /// Its tag, if it is a tagged field.
    pub tag: Option<u32>,
    /// The versions in which its length is compact.
    pub flexible: Versions,
    /// What it is when it is not on the wire: a Rust literal for numbers, booleans and strings.
    pub default: DefaultValue,
    /// Whether it may be dropped although set.
    pub ignorable: bool,
    /// What it means.
    pub about: String,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number or a boolean; the name is that of the Rust type and of the reader's method.
    Number(&'static str),
    /// A 16-byte id.
    Uuid,
    /// A string.
    String,
    /// Bytes.
    Bytes,
    /// Record batches.
    Records,
    /// A struct of the module.
    Struct(String),
    /// A list.
    Array(Box<Kind>),
}

/// A field's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DefaultValue {
    /// Zero, false or empty.
    Empty,
    /// Null.
    Null,
    /// A number or a boolean.
    Literal(String),
}

impl Module {
    /// Resolves the messages of one file. A part that both sides define alike is kept once; parts of one name that
    /// differ get their side's name in front.
    pub(super) fn new(name: &str, messages: &[(&Descriptor, &str)]) -> Result<Module, String> {
        let sides = messages.iter().map(|(descriptor, _)| resolve(descriptor)).collect::<Result<Vec<_>, _>>()?;
        let mut structs: Vec<Struct> = Vec::new();
        for (at, side) in sides.iter().enumerate() {
            let others: Vec<&Struct> =
                sides.iter().enumerate().filter(|(i, _)| *i != at).flat_map(|(_, s)| s).collect();
            let renames = renames(side, &others, messages[at].1);
            for item in side {
                let item = renamed(item, &renames);
                if !structs.iter().any(|have| have.name == item.name) {
                    structs.push(item);
                }
            }
        }
        Ok(Module { name: name.to_owned(), file: snake_case(name), structs })
    }
}

/// New names for the parts of `side` that `others` have under the same name but not alike, down to their own parts.
fn renames(side: &[Struct], others: &[&Struct], prefix: &str) -> BTreeMap<String, String> {
    let mut renames = BTreeMap::new();
    loop {
        let known = renames.len();
        for item in side {
            let holds_renamed = item.fields.iter().filter_map(|f| f.kind.part()).any(|part| renames.contains_key(part));
            let differs = |other: &&&Struct| other.name == item.name && (holds_renamed || !same_shape(other, item));
            if others.iter().any(|other| differs(&other)) {
                renames.insert(item.name.clone(), format!("{prefix}{}", item.name));
            }
        }
        if renames.len() == known {
            return renames;
        }
    }
}

impl Struct {
    /// One whose versions and fields are not known yet.
    fn new(name: &str, about: &str, is_message: bool) -> Struct {
        Struct {
            name: name.to_owned(),
            about: about.to_owned(),
            is_message,
            versions: Versions::NONE,
            flexible: Versions::NONE,
            fields: Vec::new(),
            min_size: 0,
        }
    }
}

/// Equal but for the texts.
fn same_shape(a: &Struct, b: &Struct) -> bool {
    let shape = |item: &Struct| {
        let fields: Vec<_> = item
            .fields
            .iter()
            .map(|f| (f.ident.clone(), f.kind.clone(), f.versions, f.nullable, f.tag, f.default.clone(), f.ignorable))
            .collect();
        (item.versions, item.flexible, fields)
    };
    shape(a) == shape(b)
}

fn renamed(item: &Struct, renames: &BTreeMap<String, String>) -> Struct {
    fn kind(of: &Kind, renames: &BTreeMap<String, String>) -> Kind {
        match of {
            Kind::Struct(name) => Kind::Struct(renames.get(name).unwrap_or(name).clone()),
            Kind::Array(element) => Kind::Array(Box::new(kind(element, renames))),
            other => other.clone(),
        }
    }
    let mut item = item.clone();
    if let Some(name) = renames.get(&item.name) {
        for field in &mut item.fields {
            field.path = field.path.replacen(&item.name, name, 1);
        }
        item.name.clone_from(name);
    }
    for field in &mut item.fields {
        field.kind = kind(&field.kind, renames);
    }
    item
}

/// The message and its parts, each before what it is made of.
fn resolve(descriptor: &Descriptor) -> Result<Vec<Struct>, String> {
    let mut resolver = Resolver {
        flexible: Versions::parse(&descriptor.flexible_versions)?,
        shared: descriptor.common_structs.iter().map(|s| (s.name.as_str(), s.fields.as_slice())).collect(),
        done: Vec::new(),
    };
    let versions = Versions::parse(&descriptor.valid_versions)?;
    resolver.add(&descriptor.name, "", true, versions, &descriptor.fields)?;
    resolver.sizes();
    Ok(resolver.done)
}

struct Resolver<'a> {
    flexible: Versions,
    shared: BTreeMap<&'a str, &'a [FieldDescriptor]>,
    done: Vec<Struct>,
}

impl Resolver<'_> {
    fn add(
        &mut self,
        name: &str,
        about: &str,
        is_message: bool,
        versions: Versions,
        fields: &[FieldDescriptor],
    ) -> Result<(), String> {
        let at = match self.done.iter().position(|have| have.name == name) {
            // a shared struct at a second place: its versions are those of all places
            Some(at) => at,
            None => {
                self.done.push(Struct::new(name, about, is_message));
                self.done.len() - 1
            }
        };
        let versions = self.done[at].versions.hull(versions);
        let fields = self.fields(name, versions, fields)?;
        let item = &mut self.done[at];
        item.versions = versions;
        item.flexible = self.flexible.and(versions);
        item.fields = fields;
        Ok(())
    }

    fn fields(&mut self, owner: &str, versions: Versions, fields: &[FieldDescriptor]) -> Result<Vec<Field>, String> {
        let mut resolved = Vec::new();
        for descriptor in fields {
            let path = format!("{owner}.{}", descriptor.name);
            let field = self.field(&path, versions, descriptor).map_err(|error| format!("{path}: {error}"))?;
            resolved.extend(field);
        }
        Ok(resolved)
    }

    /// `None` for a field that no version has any more.
    fn field(&mut self, path: &str, within: Versions, d: &FieldDescriptor) -> Result<Option<Field>, String> {
        let versions = Versions::parse(&d.versions)?.and(within);
        if versions.is_empty() {
            return Ok(None);
        }
        let kind = Kind::parse(&d.kind);
        if let Some(part) = kind.part() {
            let shared = self.shared.get(part).copied();
            let part_fields = if d.fields.is_empty() { shared.ok_or("an unknown type")? } else { &d.fields };
            self.add(part, &d.about, false, versions, part_fields)?;
        }
        let nullable = Versions::parse(&d.nullable_versions)?.and(versions);
        let flexible = match &d.flexible_versions {
            Some(own) => Versions::parse(own)?,
            None => self.flexible,
        };
        if d.tag.is_some() {
            let tagged = Versions::parse(&d.tagged_versions)?.and(within);
            if tagged != versions || flexible.and(versions) != versions || kind.has_records() {
                return Err("a tag in some versions only, outside flexible versions, or over records".to_owned());
            }
        }
        Ok(Some(Field {
            path: path.to_owned(),
            ident: field_ident(&d.name)?,
            default: default_value(&kind, nullable, d.default.as_ref())?,
            kind,
            versions,
            nullable,
            tag: d.tag,
            flexible: flexible.and(versions),
            ignorable: d.ignorable,
            about: d.about.clone(),
        }))
    }

    /// Parts come after what uses them, so the sizes are known from the back.
    fn sizes(&mut self) {
        let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
        // a shared struct may stand before another that holds it, so go on until nothing changes
        for _ in 0..self.done.len() {
            for item in self.done.iter_mut().rev() {
                let sizes_of = |version: i16| {
                    let fields = item.fields.iter().filter(|f| f.versions.has(version) && f.tag.is_none());
                    let tags = usize::from(item.flexible.has(version));
                    fields.map(|f| f.min_size(version, &sizes)).sum::<usize>() + tags
                };
                let versions = item.versions.min..=item.versions.max;
                item.min_size = versions.map(sizes_of).min().unwrap_or(0).max(1);
                sizes.insert(item.name.clone(), item.min_size);
            }
        }
    }
}

impl Kind {
    fn parse(text: &str) -> Kind {
        match text {
            "bool" => Kind::Number("bool"),
            "int8" => Kind::Number("i8"),
            "int16" => Kind::Number("i16"),
            "uint16" => Kind::Number("u16"),
            "int32" => Kind::Number("i32"),
            "uint32" => Kind::Number("u32"),
            "int64" => Kind::Number("i64"),
            "float64" => Kind::Number("f64"),
            "uuid" => Kind::Uuid,
            "string" => Kind::String,
            "bytes" => Kind::Bytes,
            "records" => Kind::Records,
            other => match other.strip_prefix("[]") {
                Some(element) => Kind::Array(Box::new(Kind::parse(element))),
                None => Kind::Struct(other.to_owned()),
            },
        }
    }

    /// The struct that it is or is a list of.
    pub(super) fn part(&self) -> Option<&str> {
        match self {
            Kind::Struct(name) => Some(name),
            Kind::Array(element) => element.part(),
            _ => None,
        }
    }

    fn has_records(&self) -> bool {
        match self {
            Kind::Records => true,
            Kind::Array(element) => element.has_records(),
            _ => false,
        }
    }

    /// The fewest bytes on the wire, as an element of an array or as a field that is never null.
    pub(super) fn min_size(&self, flexible: bool, sizes: &BTreeMap<String, usize>) -> usize {
        match self {
            Kind::Number("bool" | "i8") => 1,
            Kind::Number("i16" | "u16") => 2,
            Kind::Number("i64" | "f64") => 8,
            Kind::Number(_) => 4,
            Kind::Uuid => 16,
            Kind::String | Kind::Bytes | Kind::Records | Kind::Array(_) if flexible => 1,
            Kind::String => 2,
            Kind::Bytes | Kind::Records | Kind::Array(_) => 4,
            Kind::Struct(name) => sizes.get(name).copied().unwrap_or(1),
        }
    }
}

impl Field {
    fn min_size(&self, version: i16, sizes: &BTreeMap<String, usize>) -> usize {
        if matches!(self.kind, Kind::Struct(_)) && !self.nullable.is_empty() {
            return 1; // its presence marker
        }
        self.kind.min_size(self.flexible.has(version), sizes)
    }

    /// Whether the Rust type is an `Option`.
    pub(super) fn is_option(&self) -> bool {
        !self.nullable.is_empty() || self.default == DefaultValue::Null
    }
}

fn default_value(kind: &Kind, nullable: Versions, text: Option<&Value>) -> Result<DefaultValue, String> {
    let text = match text {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    // README of the descriptors: records default to null
    if text == "null" || (*kind == Kind::Records && !nullable.is_empty()) {
        return Ok(DefaultValue::Null);
    }
    if text.is_empty() {
        return Ok(DefaultValue::Empty);
    }
    let empty = match kind {
        Kind::Number("bool") => text.eq_ignore_ascii_case("false"),
        Kind::Number(_) => text == "0",
        _ => return Err(format!("a default of {text}")),
    };
    Ok(if empty { DefaultValue::Empty } else { DefaultValue::Literal(text.to_ascii_lowercase()) })
}

/// "TopicId" as "topic_id".
pub(super) fn snake_case(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (at, c) in chars.iter().enumerate() {
        let after_lower = at > 0 && !chars[at - 1].is_ascii_uppercase();
        let before_lower = at > 0 && chars.get(at + 1).is_some_and(char::is_ascii_lowercase);
        if c.is_ascii_uppercase() && (after_lower || before_lower) {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

fn field_ident(name: &str) -> Result<String, String> {
    match snake_case(name).as_str() {
        word @ ("type" | "match") => Ok(format!("r#{word}")),
        // what the generated functions call their own variables
        word @ ("version" | "flexible" | "tag" | "r" | "w" | "v" | "g") => {
            Err(format!("the name {word} is taken in generated code"))
        }
        word => Ok(word.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_rust() {
        for (name, expected) in [
            ("TopicId", "topic_id"),
            ("ISR", "isr"),
            ("IsrNodes", "isr_nodes"),
            ("KRaftVersion", "k_raft_version"),
            ("UserEndpointACLs2", "user_endpoint_ac_ls2"),
            ("V3AndBelowTopics", "v3_and_below_topics"),
        ] {
            assert_eq!(snake_case(name), expected);
        }
        assert_eq!(field_ident("Type").as_deref(), Ok("r#type"));
        assert!(field_ident("Version").is_err(), "it would hide the parameter");
    }

    fn module(request: &str, response: &str) -> Module {
        let side = |name: &str, fields: &str| {
            let text = format!(
                r#"{{ "name": "{name}", "type": "data", "validVersions": "2-5", "flexibleVersions": "4+",
                "fields": [{fields}] }}"#
            );
            Descriptor::parse(&text).unwrap()
        };
        Module::new("X", &[(&side("A", request), "Request"), (&side("B", response), "Response")]).unwrap()
    }

    #[test]
    fn parts_alike_are_kept_once_and_others_get_their_side_in_front() {
        let part = |kind: &str| {
            format!(
                r#"{{ "name": "Ps", "type": "[]P", "versions": "0+", "fields": [
                {{ "name": "Q", "type": "Q", "versions": "0+", "fields": [
                {{ "name": "N", "type": "{kind}", "versions": "0+" }}] }}] }}"#
            )
        };
        let names = |module: Module| module.structs.into_iter().map(|item| item.name).collect::<Vec<_>>();
        assert_eq!(names(module(&part("int32"), &part("int32"))), ["A", "P", "Q", "B"]);
        assert_eq!(
            names(module(&part("int32"), &part("int64"))),
            ["A", "RequestP", "RequestQ", "B", "ResponseP", "ResponseQ"]
        );
    }

    #[test]
    fn the_smallest_size_is_that_of_the_smallest_version() {
        let field = r#"{ "name": "S", "type": "string", "versions": "0+" },
            { "name": "Gone", "type": "int64", "versions": "0-1" },
            { "name": "N", "type": "int32", "versions": "3+" }"#;
        let module = module(field, field);
        // version 2: a string's two bytes; version 4 has a compact one, the number and a tagged section
        assert_eq!(module.structs[0].min_size, 2);
        assert_eq!(module.structs[0].fields.len(), 2, "a field of no living version is left out");
    }
}
