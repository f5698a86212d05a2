//! For tests: a check that tags are nested, attributes are quoted, and text is escaped.

/// HTML's void elements.
const VOID: [&str; 7] = ["meta", "br", "wbr", "hr", "input", "img", "link"];

/// Checks a page or a chart.
pub(crate) fn check(text: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text.strip_prefix("<!doctype html>").unwrap_or(text);
    while let Some((before, after)) = rest.split_once('<') {
        let raw = open.last().copied().filter(|name| ["style", "script"].contains(name));
        if raw.is_none() {
            entities(before)?;
        }
        let (tag, then) = match raw {
            Some(name) => {
                let end = format!("</{name}>");
                let (_, then) = rest.split_once(&end).ok_or_else(|| format!("{name} is not closed"))?;
                (format!("/{name}"), then)
            }
            None => {
                let (tag, then) = split_tag(after).ok_or_else(|| format!("a tag without an end: {}", head(after)))?;
                (tag.to_owned(), then)
            }
        };
        rest = then;
        if let Some(name) = tag.strip_prefix('/') {
            match open.pop() {
                Some(was) if was == name => {}
                was => return Err(format!("{name} closes {was:?} before {}", head(rest))),
            }
            continue;
        }
        let name_end = tag.find(|c: char| c.is_whitespace() || c == '/').unwrap_or(tag.len());
        let name = after.get(..name_end).unwrap_or_default();
        attributes(tag.get(name_end..).unwrap_or_default())?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(format!("no name of an element: {}", head(after)));
        }
        if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    entities(rest)?;
    if open.is_empty() { Ok(()) } else { Err(format!("not closed: {open:?}")) }
}

fn head(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Splits after the end of a tag, which is not in a quoted value.
fn split_tag(text: &str) -> Option<(&str, &str)> {
    let mut is_quoted = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            '>' if !is_quoted => return Some((text.get(..at)?, text.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

fn attributes(text: &str) -> Result<(), String> {
    let mut rest = text.trim().trim_end_matches('/').trim_end();
    let mut seen: Vec<&str> = Vec::new();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (name, then) = rest.split_at(end);
        if seen.contains(&name) || name.contains(['"', '<', '&']) {
            return Err(format!("attribute {name} in {text}"));
        }
        seen.push(name);
        rest = match then.strip_prefix("=\"") {
            Some(value) => {
                let (value, then) = value.split_once('"').ok_or_else(|| format!("an open value in {text}"))?;
                entities(value)?;
                then.trim_start()
            }
            None if then.starts_with('=') => return Err(format!("a bare value in {text}")),
            None => then.trim_start(),
        };
    }
    Ok(())
}

/// Checks that every & begins an entity.
fn entities(text: &str) -> Result<(), String> {
    let known = ["amp;", "lt;", "gt;", "quot;", "#39;", "nbsp;"];
    match text.split('&').skip(1).find(|after| !known.iter().any(|known| after.starts_with(known))) {
        Some(after) => Err(format!("a bare &{}", head(after))),
        None => Ok(()),
    }
}

#[test]
fn malformed_text_is_an_error() {
    assert_eq!(
        check("<!doctype html><a b=\"c &amp; >\" hidden><br><i/></a><style>a>b{} a&b < c</style>x &lt; y"),
        Ok(())
    );
    for bad in [
        "<a>",
        "</a>",
        "<a><b></a></b>",
        "<a b=c></a>",
        "<a b=\"c></a>",
        "a & b",
        "<a b=\"&x\"></a>",
        "< a></a>",
        "<a b=\"1\" b=\"2\"/>",
    ] {
        assert!(check(bad).is_err(), "{bad}");
    }
}
