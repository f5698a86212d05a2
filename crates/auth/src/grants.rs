//! What a token lets its bearer do with queues and exchanges: scopes, as RabbitMQ's OAuth 2 backend reads them.
//!
//! ```text
//!   configure:VHOST/NAME   write:VHOST/NAME[/KEY]   read:VHOST/NAME[/KEY]   tag:TAG
//! ```
//!
//! Each part is a pattern in which `*` stands for anything, nothing too, and `%2F` for a slash. Without a pattern for routing keys each is
//! meant. Other scopes grant nothing here.

use std::fmt;

/// Scopes of a token; with more it is none (`rabbit_auth_backend_oauth2`).
pub const SCOPES_MAX: usize = 2_048;
/// What a scope begins with that gives a tag.
const TAG: &str = "tag:";

/// What an operation does to a queue or an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It makes or deletes it.
    Configure,
    /// It puts something in.
    Write,
    /// It takes something out.
    Read,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Configure => "configure",
            Access::Write => "write",
            Access::Read => "read",
        })
    }
}

/// A text with stars: what stands between them.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wild(Vec<Vec<u8>>);

impl Wild {
    /// `None` where a percent sign is not followed by two digits.
    fn parse(text: &str) -> Option<Wild> {
        text.split('*').map(decoded).collect::<Option<_>>().map(Wild)
    }

    fn anything() -> Wild {
        Wild(vec![Vec::new(); 2])
    }

    fn matches(&self, text: &str) -> bool {
        let text = text.as_bytes();
        let Some(((first, last), between)) = ends(&self.0) else { return self.0.iter().all(|only| only == text) };
        let rest = text.strip_prefix(&first[..]).and_then(|rest| rest.strip_suffix(&last[..]));
        let Some(mut rest) = rest else { return false };
        for part in between.iter().filter(|part| !part.is_empty()) {
            let Some(at) = rest.windows(part.len()).position(|window| window == part) else { return false };
            rest = rest.get(at + part.len()..).unwrap_or_default();
        }
        true
    }
}

/// The first, the last, and what is between them.
fn ends<T>(all: &[T]) -> Option<((&T, &T), &[T])> {
    let (first, rest) = all.split_first()?;
    let (last, between) = rest.split_last()?;
    Some(((first, last), between))
}

/// What percent signs stand for.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut left) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((byte, rest)) = left.split_first() {
        left = rest;
        if *byte == b'%' {
            let (digits, rest) =
                left.split_at_checked(2).filter(|(digits, _)| digits.iter().all(u8::is_ascii_hexdigit))?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            left = rest;
        } else {
            bytes.push(*byte);
        }
    }
    Some(bytes)
}

/// One scope.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Grant {
    access: Access,
    vhost: Wild,
    name: Wild,
    key: Wild,
}

impl Grant {
    fn parse(scope: &str) -> Option<Grant> {
        let all = [Access::Configure, Access::Write, Access::Read];
        let (access, resource) = scope.split_once(':')?;
        let access = all.into_iter().find(|known| known.to_string() == access)?;
        let parts: Vec<&str> = resource.splitn(4, '/').collect();
        let (vhost, name, key) = match *parts.as_slice() {
            [vhost, name] => (vhost, name, Wild::anything()),
            [vhost, name, key] => (vhost, name, Wild::parse(key)?),
            _ => return None,
        };
        Some(Grant { access, vhost: Wild::parse(vhost)?, name: Wild::parse(name)?, key })
    }
}

/// All that a token grants.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Grants {
    grants: Vec<Grant>,
    tags: Vec<String>,
    is_administrator: bool,
}

impl Grants {
    /// Out of scopes, of which those count that begin with `prefix`, without it. Of these `administrator` makes an administrator.
    #[must_use]
    pub fn of<'a>(scopes: impl IntoIterator<Item = &'a str>, prefix: &str, administrator: &str) -> Grants {
        let mut grants = Grants::default();
        for scope in scopes.into_iter().filter_map(|scope| scope.strip_prefix(prefix)) {
            grants.is_administrator |= scope == administrator;
            match scope.strip_prefix(TAG) {
                Some(tag) if !tag.is_empty() => grants.tags.push(tag.to_owned()),
                _ => grants.grants.extend(Grant::parse(scope)),
            }
        }
        grants
    }

    /// Whether the bearer may be in a virtual host: any scope for something in it will do.
    #[must_use]
    pub fn may_enter(&self, vhost: &str) -> bool {
        self.grants.iter().any(|grant| grant.vhost.matches(vhost))
    }

    /// Whether the bearer may do something to a queue or an exchange.
    #[must_use]
    pub fn may(&self, vhost: &str, access: Access, name: &str) -> bool {
        let is_meant = |grant: &Grant| grant.access == access && grant.vhost.matches(vhost) && grant.name.matches(name);
        self.grants.iter().any(is_meant)
    }

    /// Whether the bearer may use a routing key at a topic exchange.
    #[must_use]
    pub fn may_key(&self, vhost: &str, access: Access, exchange: &str, key: &str) -> bool {
        let of_exchange = |grant: &&Grant| grant.vhost.matches(vhost) && grant.name.matches(exchange);
        self.grants.iter().filter(of_exchange).any(|grant| grant.access == access && grant.key.matches(key))
    }

    /// RabbitMQ's tags.
    #[must_use]
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// Whether the bearer may do everything.
    #[must_use]
    pub fn is_administrator(&self) -> bool {
        self.is_administrator
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grants(scopes: &[&str]) -> Grants {
        Grants::of(scopes.iter().copied(), "polylogue.", "tag:administrator")
    }

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, matches) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything/at all", true),
            ("a*", "abc", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*bar", "abarbar", true),
            ("ab*ba", "aba", false),
            ("a**b", "ab", true),
            ("%2F", "/", true),
            ("%2f*", "/x", true),
            ("%2A", "*", true),
            ("%2A", "x", false),
            ("a+b", "a+b", true),
        ] {
            assert_eq!(Wild::parse(pattern).unwrap().matches(text), matches, "{pattern} and {text}");
        }
        for bad in ["%", "%2", "%zz", "a%+1b"] {
            assert_eq!(Wild::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn scopes_grant_what_they_say_and_nothing_else() {
        let some = grants(&[
            "polylogue.read:%2F/orders-*",
            "polylogue.write:shop/events/order.*",
            "polylogue.configure:*/tmp-*",
            "polylogue.tag:monitoring",
            "write:*/*",
            "other.write:*/*",
            "polylogue.read:a/b/c/d",
            "polylogue.read:everything",
            "polylogue.delete:*/*",
            "polylogue.tag:",
        ]);
        assert!(some.may("/", Access::Read, "orders-new") && !some.may("/", Access::Read, "orders"));
        assert!(!some.may("/", Access::Write, "orders-new") && !some.may("shop", Access::Read, "orders-new"));
        assert!(some.may("shop", Access::Write, "events"));
        assert!(some.may_key("shop", Access::Write, "events", "order.new"));
        assert!(!some.may_key("shop", Access::Write, "events", "other"));
        assert!(!some.may_key("shop", Access::Read, "events", "order.new"));
        assert!(some.may_key("/", Access::Read, "orders-x", "any"), "no pattern is any key");
        assert!(some.may("anywhere", Access::Configure, "tmp-1"));
        assert_eq!((some.tags(), some.is_administrator()), (&["monitoring".to_owned()][..], false));
        let host = grants(&["polylogue.read:shop/x"]);
        assert!(host.may_enter("shop") && !host.may_enter("/"));
        assert!(!grants(&["polylogue.tag:administrator"]).may_enter("/"), "a tag is no permission");
    }

    #[test]
    fn the_scope_that_makes_administrators_is_that_one() {
        assert!(grants(&["polylogue.tag:administrator"]).is_administrator());
        assert!(!grants(&["tag:administrator", "polylogue.tag:Administrator"]).is_administrator());
        let own = Grants::of(["boss"], "", "boss");
        assert!(own.is_administrator() && own.tags().is_empty());
    }

    proptest! {
        /// A pattern means what stars stand for, by trying every way.
        #[test]
        fn patterns_match_as_by_trying(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            fn tried(pattern: &[u8], text: &[u8]) -> bool {
                match pattern.split_first() {
                    None => text.is_empty(),
                    Some((b'*', rest)) => (0..=text.len()).any(|at| tried(rest, &text[at..])),
                    Some((byte, rest)) => text.first() == Some(byte) && tried(rest, &text[1..]),
                }
            }
            let matches = Wild::parse(&pattern).unwrap().matches(&text);
            prop_assert_eq!(matches, tried(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn no_scope_panics(scopes in proptest::collection::vec(".{0,40}", 0..8), name in ".{0,8}") {
            let grants = Grants::of(scopes.iter().map(String::as_str), "", "x");
            let _ = grants.may(&name, Access::Read, &name);
            let _ = grants.may_key(&name, Access::Read, &name, &name);
        }
    }
}
