//! The principal of a client certificate: its subject as text, and the rules that map it to a name.
//!
//! ```text
//!   subject   CN=alice,OU=Payments,O=Example,C=DE                  RFC 2253, as written by `X500Principal.getName`: most specific first
//!   rules     RULE:pattern/replacement/[LU], ... or DEFAULT        the first whose pattern matches the whole subject applies; L and U: to lower,
//!                                                                  to upper case; DEFAULT: the subject itself (KIP-371)
//! ```

use fancy_regex::{Captures, Regex};
use std::fmt::Write as _;
use x509_parser::der_parser::asn1_rs::ToDer as _;
use x509_parser::prelude::{AttributeTypeAndValue, FromDer as _, X509Certificate};

/// The maximum length of the rules. Bytes.
const RULES_BYTES_MAX: usize = 4_096;
/// Limit on backtracking of a pattern for one subject: a pattern that exceeds it does not match.
const BACKTRACK_MAX: usize = 10_000;
/// Attribute types with a name in RFC 2253, by object identifier.
const NAMED: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// Mapping rules.
#[derive(Clone, Debug)]
pub struct PrincipalRules {
    text: String,
    rules: Vec<Rule>,
}

impl PartialEq for PrincipalRules {
    fn eq(&self, other: &PrincipalRules) -> bool {
        self.text == other.text
    }
}

impl Eq for PrincipalRules {}

#[derive(Clone, Debug)]
enum Rule {
    Subject,
    Pattern { pattern: Regex, replacement: String, case: Case },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    Same,
    Lower,
    Upper,
}

impl PrincipalRules {
    /// Parses rules in the format of Kafka's `ssl.principal.mapping.rules`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(text: &str) -> Result<PrincipalRules, String> {
        if text.len() > RULES_BYTES_MAX {
            return Err(format!("{} bytes: the maximum is {RULES_BYTES_MAX}", text.len()));
        }
        let (mut rules, mut rest) = (Vec::new(), text.trim());
        while !rest.is_empty() {
            let (rule, after) = rule(rest)?;
            rules.push(rule);
            let after = after.trim_start();
            rest = match after.strip_prefix(',') {
                Some(more) => more.trim_start(),
                None if after.is_empty() => after,
                None => return Err(format!("a comma is missing before \"{after}\"")),
            };
        }
        if rules.is_empty() {
            Err("no rule is given".to_owned())
        } else {
            Ok(PrincipalRules { text: text.to_owned(), rules })
        }
    }

    /// Returns the name by the first rule that matches the subject.
    fn apply(&self, subject: &str) -> Option<String> {
        self.rules.iter().find_map(|rule| match rule {
            Rule::Subject => Some(subject.to_owned()),
            Rule::Pattern { pattern, replacement, case } => {
                let found = pattern.captures(subject).ok().flatten()?;
                let name = expand(replacement, &found);
                Some(match case {
                    Case::Same => name,
                    Case::Lower => name.to_lowercase(),
                    Case::Upper => name.to_uppercase(),
                })
            }
        })
    }

    /// Returns the name of a certificate (DER); `None` if no rule matches.
    pub(crate) fn name_of(&self, certificate: &[u8]) -> Option<String> {
        self.apply(&subject(certificate)?).filter(|name| !name.is_empty())
    }
}

/// Parses the first rule, and returns the rest.
fn rule(text: &str) -> Result<(Rule, &str), String> {
    if let Some(after) = text.strip_prefix("DEFAULT") {
        return Ok((Rule::Subject, after));
    }
    let invalid = || format!("Invalid rule: `{text}`");
    let (pattern, after) = text.strip_prefix("RULE:").and_then(part).ok_or_else(invalid)?;
    let (replacement, after) = part(after).ok_or_else(invalid)?;
    let (case, after) = match after.chars().next() {
        Some('L') => (Case::Lower, &after[1..]),
        Some('U') => (Case::Upper, &after[1..]),
        _ => (Case::Same, after),
    };
    let whole = fancy_regex::RegexBuilder::new(&format!("^(?:{pattern})$")).backtrack_limit(BACKTRACK_MAX).build();
    let pattern = whole.map_err(|e| format!("the pattern `{pattern}` cannot be used: {e}"))?;
    Ok((Rule::Pattern { pattern, replacement: replacement.to_owned(), case }, after))
}

/// Splits at the next slash that is not escaped by a backslash.
fn part(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'/' if !is_escaped => return Some((&text[..at], &text[at + 1..])),
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    None
}

/// Expands a replacement as Java's `Matcher.appendReplacement`: `$1` is a group, with as many digits as name an existing group, and a
/// backslash escapes the next character.
fn expand(replacement: &str, found: &Captures<'_>) -> String {
    let mut name = String::new();
    let mut left = replacement.chars().peekable();
    while let Some(char) = left.next() {
        match char {
            '\\' => name.extend(left.next()),
            '$' => {
                let mut group = None::<usize>;
                while let Some(digit) = left.peek().and_then(|char| char.to_digit(10)) {
                    let longer = group.unwrap_or(0) * 10 + digit as usize;
                    if group.is_some() && longer >= found.len() {
                        break;
                    }
                    group = Some(longer);
                    left.next();
                }
                name.push_str(group.and_then(|group| found.get(group)).map_or("", |group| group.as_str()));
            }
            char => name.push(char),
        }
    }
    name
}

/// Returns the subject of a certificate (DER) as text.
fn subject(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let relative: Vec<_> = certificate.subject().iter_rdn().collect();
    let mut text = String::new();
    for (at, name) in relative.iter().rev().enumerate() {
        for (part, attribute) in name.iter().enumerate() {
            match (at, part) {
                (0, 0) => {}
                (_, 0) => text.push(','),
                _ => text.push('+'),
            }
            write_attribute(attribute, &mut text);
        }
    }
    Some(text)
}

fn write_attribute(attribute: &AttributeTypeAndValue<'_>, text: &mut String) {
    let kind = attribute.attr_type().to_id_string();
    let named = NAMED.iter().find(|(number, _)| *number == kind);
    text.push_str(named.map_or(&kind, |(_, name)| name));
    text.push('=');
    match attribute.as_str() {
        Ok(value) if named.is_some() => escape(value, text),
        _ => {
            text.push('#');
            let bytes = attribute.attr_value().to_der_vec().unwrap_or_default();
            bytes.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
        }
    }
}

/// Escapes a value (`AVA.toRFC2253String`).
fn escape(value: &str, text: &mut String) {
    let is_inside = |at: usize| !value[..at].trim_matches(' ').is_empty() && !value[at..].trim_matches(' ').is_empty();
    for (at, char) in value.char_indices() {
        if matches!(char, ',' | '=' | '+' | '<' | '>' | '#' | ';' | '"' | '\\') || (char == ' ' && !is_inside(at)) {
            text.push('\\');
        }
        text.push(char);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    fn certificate(parts: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        parts.iter().for_each(|(kind, value)| params.distinguished_name.push(kind.clone(), *value));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    /// The expected texts were written by `X500Principal.getName()` of JDK 17.
    #[test]
    fn subjects_are_written_as_java_writes_them() {
        let plain = certificate(&[
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, "Example, Inc."),
            (DnType::OrganizationalUnitName, "Payments"),
            (DnType::CommonName, "alice"),
        ]);
        assert_eq!(subject(&plain).unwrap(), "CN=alice,OU=Payments,O=Example\\, Inc.,C=DE");
        let odd = certificate(&[(DnType::CommonName, " a=b+c #\"\\<>; "), (DnType::LocalityName, "Zürich am See")]);
        assert_eq!(subject(&odd).unwrap(), "L=Zürich am See,CN=\\ a\\=b\\+c \\#\\\"\\\\\\<\\>\\;\\ ");
        let email = certificate(&[(DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]), "a@b")]);
        assert_eq!(subject(&email).unwrap(), "1.2.840.113549.1.9.1=#0c03614062");
        assert_eq!(subject(b"no certificate"), None);
    }

    /// The cases of `SslPrincipalMapperTest`.
    #[test]
    fn rules_make_names_as_kafkas_do() {
        let rules = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, \
                     RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, \
                     RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, \
                     RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, \
                     DEFAULT";
        let rules = PrincipalRules::parse(rules).unwrap();
        for (subject, name) in [
            ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
            ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
            ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
            ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
            ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
        ] {
            assert_eq!(rules.apply(subject).as_deref(), Some(name), "{subject}");
        }
        let slashes = PrincipalRules::parse(r"RULE:CN=(.*?)\/(.*?),.*/$2\/$1\$/").unwrap();
        assert_eq!(slashes.apply("CN=a/b,O=c").as_deref(), Some("b/a$"));
        assert_eq!(slashes.apply("CN=a"), None);
        // There is one group: further digits are literal.
        let digits = PrincipalRules::parse("RULE:CN=(.*)/$12/").unwrap();
        assert_eq!(digits.apply("CN=a").as_deref(), Some("a2"));
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        for (text, why) in [
            ("", "no rule is given"),
            ("default", "Invalid rule: `default`"),
            ("RULE:CN=.*", "Invalid rule"),
            ("RULE:CN=.*/$1", "Invalid rule"),
            ("RULE:(/x/", "cannot be used"),
            ("DEFAULT DEFAULT", "a comma is missing"),
        ] {
            let reported = PrincipalRules::parse(text).unwrap_err();
            assert!(reported.contains(why), "{text}: {reported}");
        }
        let long = "x".repeat(RULES_BYTES_MAX + 1);
        assert!(PrincipalRules::parse(&long).unwrap_err().contains("the maximum is 4096"));
    }

    /// A pattern that backtracks too much does not match, and grants nothing.
    #[test]
    fn a_pattern_that_takes_for_ever_is_given_up() {
        let rules = PrincipalRules::parse(r"RULE:(a+)+(?=b)b\1/$1/").unwrap();
        assert_eq!(rules.apply(&"a".repeat(2_000)), None);
    }
}
