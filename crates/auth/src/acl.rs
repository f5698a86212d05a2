//! Who may do what to which resource: Kafka's access control lists (KIP-11, KIP-290).
//!
//! An [`Acl`] is one binding: it allows or denies one operation on the resources of a pattern to one principal from one host. How many of
//! them together decide is [`AclBook`](crate::AclBook)'s matter. Numbers are those of Kafka's protocol, on the wire and in records alike:
//!
//! ```text
//! acl   u8 kind of resource, u8 pattern (3 literal, 4 prefixed), u8 operation, u8 permission (2 deny, 3 allow),
//!       three times (name, principal, host): u16 length, UTF-8
//! ```

use crate::error::{AuthError, AuthErrorKind};
use bytes::{Buf, BufMut, Bytes};

/// The longest name of a resource, principal or host. Bytes.
pub const ACL_TEXT_BYTES_MAX: usize = 1_024;
/// The name of the one resource of the kind [`ResourceKind::Cluster`].
pub const CLUSTER_RESOURCE: &str = "kafka-cluster";
/// A literal name that is every resource of its kind, and a host that is every host.
pub const WILDCARD: &str = "*";
/// The type of the principals that there are here. Kafka knows others where an authorizer makes them.
const USER_TYPE: &str = "User:";

/// Declares an enum whose values have Kafka's numbers, and names.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $value:ident = $number:literal $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name {
            $($(#[$of])* $value = $number,)+
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &[$name] = &[$($name::$value),+];

            /// Its number in Kafka's protocol.
            #[must_use]
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// Its name in polylogue's API and commands.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$value => $text,)+
                }
            }

            /// The one of that name.
            #[must_use]
            pub fn named(name: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|one| one.name() == name)
            }

            /// The one of that number.
            #[must_use]
            pub fn numbered(number: u8) -> Option<$name> {
                $name::ALL.iter().copied().find(|one| one.number() == number)
            }
        }
    };
}

numbered! {
    /// What kind of thing is asked for (Kafka's `ResourceType`).
    ResourceKind {
        /// A topic.
        Topic = 2 "topic",
        /// A consumer group.
        Group = 3 "group",
        /// The cluster, which is called [`CLUSTER_RESOURCE`].
        Cluster = 4 "cluster",
        /// A transactional id.
        TransactionalId = 5 "transactional-id",
        /// A delegation token.
        DelegationToken = 6 "delegation-token",
        /// A user, as far as tokens are made for it.
        User = 7 "user",
    }
}

numbered! {
    /// What is done (Kafka's `AclOperation`).
    Operation {
        /// Everything; in bindings only.
        All = 2 "all",
        /// Read messages or be a member of a group; implies [`Operation::Describe`].
        Read = 3 "read",
        /// Write messages; implies [`Operation::Describe`].
        Write = 4 "write",
        /// Make.
        Create = 5 "create",
        /// Delete; implies [`Operation::Describe`].
        Delete = 6 "delete",
        /// Change; implies [`Operation::Describe`].
        Alter = 7 "alter",
        /// See that it is there.
        Describe = 8 "describe",
        /// What brokers do among themselves.
        ClusterAction = 9 "cluster-action",
        /// See its configs.
        DescribeConfigs = 10 "describe-configs",
        /// Change its configs; implies [`Operation::DescribeConfigs`].
        AlterConfigs = 11 "alter-configs",
        /// Write as an idempotent producer.
        IdempotentWrite = 12 "idempotent-write",
        /// Make delegation tokens.
        CreateTokens = 13 "create-tokens",
        /// See delegation tokens.
        DescribeTokens = 14 "describe-tokens",
        /// Commit in two phases.
        TwoPhaseCommit = 15 "two-phase-commit",
    }
}

numbered! {
    /// How the name of a binding names resources (Kafka's `PatternType`).
    PatternKind {
        /// That one, or with [`WILDCARD`] all.
        Literal = 3 "literal",
        /// All that begin like it.
        Prefixed = 4 "prefixed",
    }
}

numbered! {
    /// Whether a binding gives or takes (Kafka's `AclPermissionType`).
    Permission {
        /// It may not, whatever else allows it.
        Deny = 2 "deny",
        /// It may, unless something denies it.
        Allow = 3 "allow",
    }
}

impl Operation {
    /// Its bit in a set of operations, as Kafka numbers them (KIP-430).
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self.number()
    }
}

/// A resource of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resource<'a> {
    /// What kind of thing.
    pub kind: ResourceKind,
    /// Its name.
    pub name: &'a str,
}

impl Resource<'_> {
    /// The cluster.
    pub const CLUSTER: Resource<'static> = Resource { kind: ResourceKind::Cluster, name: CLUSTER_RESOURCE };
}

/// One binding. Ordered by resources, so that those of one stand together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Acl {
    /// Of which kind of resource.
    pub kind: ResourceKind,
    /// The name of the resource, or the beginning of names.
    pub name: String,
    /// How that names resources.
    pub pattern: PatternKind,
    /// To whom: `User:NAME`, or `User:*` for everybody.
    pub principal: String,
    /// From which address, or [`WILDCARD`].
    pub host: String,
    /// What.
    pub operation: Operation,
    /// Whether it gives or takes.
    pub permission: Permission,
}

impl Acl {
    /// That it makes sense. Texts are those of Kafka's controller (`AclApis`, `AclControlManager`).
    ///
    /// # Errors
    /// [`AuthErrorKind::Invalid`]
    pub fn check(&self) -> Result<(), AuthError> {
        let invalid = |text: String| Err(AuthError::new(AuthErrorKind::Invalid, text));
        if self.name.is_empty() {
            return invalid("Invalid empty resource name".to_owned());
        }
        if self.kind == ResourceKind::Cluster && self.name != CLUSTER_RESOURCE {
            return invalid(format!("The only valid name for the CLUSTER resource is {CLUSTER_RESOURCE}"));
        }
        let texts = [("resource name", &self.name), ("principal", &self.principal), ("host", &self.host)];
        if let Some((what, text)) = texts.into_iter().find(|(_, text)| text.len() > ACL_TEXT_BYTES_MAX) {
            return invalid(format!("The {what} has {} bytes, and {ACL_TEXT_BYTES_MAX} are allowed", text.len()));
        }
        if self.principal.split_once(':').is_none_or(|(kind, _)| kind.is_empty()) {
            return invalid(format!(
                "Could not parse principal from `{}` (no colon is present separating the principal type from the \
                 principal name)",
                self.principal
            ));
        }
        if self.host.is_empty() {
            return invalid("Invalid empty host".to_owned());
        }
        Ok(())
    }

    /// The name of the user that it is about; `None` for a principal of another type, which no user here is.
    pub(crate) fn user(&self) -> Option<&str> {
        self.principal.strip_prefix(USER_TYPE)
    }

    /// Puts it at the end of a record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.kind.number());
        out.put_u8(self.pattern.number());
        out.put_u8(self.operation.number());
        out.put_u8(self.permission.number());
        for text in [&self.name, &self.principal, &self.host] {
            // Its length was checked before it was kept.
            out.put_u16_le(u16::try_from(text.len()).unwrap_or(u16::MAX));
            out.extend_from_slice(text.as_bytes());
        }
    }

    /// Takes one from the beginning of a record.
    ///
    /// # Errors
    /// When there is none.
    pub fn decode(input: &mut Bytes) -> Result<Acl, AuthError> {
        let corrupt = || AuthError::new(AuthErrorKind::Corrupt, "an ACL cannot be read");
        let mut number = || input.try_get_u8().map_err(|_| corrupt());
        let [kind, pattern, operation, permission] = [number()?, number()?, number()?, number()?];
        let mut text = || {
            let bytes = usize::from(input.try_get_u16_le().map_err(|_| corrupt())?);
            if input.remaining() < bytes {
                return Err(corrupt());
            }
            String::from_utf8(input.split_to(bytes).into()).map_err(|_| corrupt())
        };
        let acl = Acl {
            kind: ResourceKind::numbered(kind).ok_or_else(corrupt)?,
            name: text()?,
            pattern: PatternKind::numbered(pattern).ok_or_else(corrupt)?,
            principal: text()?,
            host: text()?,
            operation: Operation::numbered(operation).ok_or_else(corrupt)?,
            permission: Permission::numbered(permission).ok_or_else(corrupt)?,
        };
        acl.check().map_err(|_| corrupt())?;
        Ok(acl)
    }
}

/// How a filter looks at patterns (Kafka's `PatternType` in filters).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PatternFilter {
    /// Patterns of whatever kind that have this very name.
    Any,
    /// Patterns that a resource of this name is one of.
    Match,
    /// Patterns of this kind that have this very name.
    Only(PatternKind),
}

/// Which bindings are meant. What is `None` may be anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclFilter {
    /// The kind of resource.
    pub kind: Option<ResourceKind>,
    /// The name.
    pub name: Option<String>,
    /// How the name is held against those of bindings.
    pub pattern: PatternFilter,
    /// The principal.
    pub principal: Option<String>,
    /// The host.
    pub host: Option<String>,
    /// The operation; [`Operation::All`] is those that say so.
    pub operation: Option<Operation>,
    /// Whether it gives or takes.
    pub permission: Option<Permission>,
}

impl AclFilter {
    /// All of them.
    pub const EVERYTHING: AclFilter = AclFilter {
        kind: None,
        name: None,
        pattern: PatternFilter::Any,
        principal: None,
        host: None,
        operation: None,
        permission: None,
    };

    /// The one binding that this can only be, if there is only one.
    #[must_use]
    pub fn exactly(&self) -> Option<Acl> {
        let PatternFilter::Only(pattern) = self.pattern else { return None };
        Some(Acl {
            kind: self.kind?,
            name: self.name.clone()?,
            pattern,
            principal: self.principal.clone()?,
            host: self.host.clone()?,
            operation: self.operation?,
            permission: self.permission?,
        })
    }

    /// Whether a binding is meant (`AclBindingFilter.matches`).
    #[must_use]
    pub fn matches(&self, acl: &Acl) -> bool {
        self.kind.is_none_or(|kind| kind == acl.kind)
            && self.names(acl)
            && self.principal.as_ref().is_none_or(|principal| *principal == acl.principal)
            && self.host.as_ref().is_none_or(|host| *host == acl.host)
            && self.operation.is_none_or(|operation| operation == acl.operation)
            && self.permission.is_none_or(|permission| permission == acl.permission)
    }

    fn names(&self, acl: &Acl) -> bool {
        if matches!(self.pattern, PatternFilter::Only(pattern) if pattern != acl.pattern) {
            return false;
        }
        let Some(name) = &self.name else { return true };
        match (self.pattern, acl.pattern) {
            (PatternFilter::Match, PatternKind::Literal) => *name == acl.name || acl.name == WILDCARD,
            (PatternFilter::Match, PatternKind::Prefixed) => name.starts_with(&acl.name),
            _ => *name == acl.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn acl(name: &str, pattern: PatternKind) -> Acl {
        Acl {
            kind: ResourceKind::Topic,
            name: name.to_owned(),
            pattern,
            principal: "User:alice".to_owned(),
            host: WILDCARD.to_owned(),
            operation: Operation::Read,
            permission: Permission::Allow,
        }
    }

    #[test]
    fn names_and_numbers_are_those_of_one() {
        for operation in Operation::ALL {
            assert_eq!(Operation::named(operation.name()), Some(*operation));
            assert_eq!(Operation::numbered(operation.number()), Some(*operation));
        }
        assert_eq!(ResourceKind::TransactionalId.name(), "transactional-id");
        assert_eq!((ResourceKind::named("any"), ResourceKind::numbered(1)), (None, None));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_kafkas_words() {
        let good = acl("a", PatternKind::Literal);
        assert_eq!(good.check(), Ok(()));
        let cluster = Acl { kind: ResourceKind::Cluster, ..good.clone() };
        let long = "x".repeat(ACL_TEXT_BYTES_MAX + 1);
        for (bad, text) in [
            (Acl { name: String::new(), ..good.clone() }, "Invalid empty resource name"),
            (cluster.clone(), "The only valid name for the CLUSTER resource is kafka-cluster"),
            (Acl { name: long, ..good.clone() }, "The resource name has 1025 bytes, and 1024 are allowed"),
            (
                Acl { principal: "alice".to_owned(), ..good.clone() },
                "Could not parse principal from `alice` (no colon is present separating the principal type from the principal name)",
            ),
            (Acl { host: String::new(), ..good.clone() }, "Invalid empty host"),
        ] {
            assert_eq!(bad.check().map_err(|error| error.text), Err(text.to_owned()));
        }
        assert_eq!(Acl { name: CLUSTER_RESOURCE.to_owned(), ..cluster }.check(), Ok(()));
    }

    /// The table of `ResourcePatternFilterTest`.
    #[test]
    fn filters_find_what_kafkas_find() {
        let [literal, prefixed] = [PatternKind::Literal, PatternKind::Prefixed].map(PatternFilter::Only);
        let of =
            |name: Option<&str>, pattern| AclFilter { name: name.map(str::to_owned), pattern, ..AclFilter::EVERYTHING };
        for (filter, name, pattern, found) in [
            (of(None, PatternFilter::Any), "a", PatternKind::Literal, true),
            (of(None, literal), "a", PatternKind::Prefixed, false),
            (of(Some("a"), literal), "a", PatternKind::Literal, true),
            (of(Some("a"), literal), "*", PatternKind::Literal, false),
            (of(Some("*"), literal), "*", PatternKind::Literal, true),
            (of(Some("a"), PatternFilter::Any), "a", PatternKind::Prefixed, true),
            (of(Some("ab"), PatternFilter::Any), "a", PatternKind::Prefixed, false),
            (of(Some("ab"), PatternFilter::Match), "a", PatternKind::Prefixed, true),
            (of(Some("ab"), PatternFilter::Match), "a", PatternKind::Literal, false),
            (of(Some("ab"), PatternFilter::Match), "ab", PatternKind::Literal, true),
            (of(Some("ab"), PatternFilter::Match), "*", PatternKind::Literal, true),
            (of(Some("ab"), prefixed), "a", PatternKind::Prefixed, false),
        ] {
            assert_eq!(filter.matches(&acl(name, pattern)), found, "{filter:?} {name} {pattern:?}");
        }
        let everything = AclFilter::EVERYTHING;
        for filter in [
            AclFilter { kind: Some(ResourceKind::Group), ..everything.clone() },
            AclFilter { principal: Some("User:*".to_owned()), ..everything.clone() },
            AclFilter { host: Some("192.0.2.1".to_owned()), ..everything.clone() },
            AclFilter { operation: Some(Operation::All), ..everything.clone() },
            AclFilter { permission: Some(Permission::Deny), ..everything.clone() },
        ] {
            assert!(!filter.matches(&acl("a", PatternKind::Literal)), "{filter:?}");
        }
        assert_eq!(everything.exactly(), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(name in "[a-z]{1,9}", user in "[a-z]{0,9}", host in "[0-9.]{1,9}", at in 0..14usize, deny: bool) {
            let acl = Acl {
                kind: ResourceKind::Group,
                name,
                pattern: PatternKind::Prefixed,
                principal: format!("User:{user}"),
                host,
                operation: Operation::ALL[at],
                permission: if deny { Permission::Deny } else { Permission::Allow },
            };
            let mut bytes = Vec::new();
            acl.encode(&mut bytes);
            let mut input = Bytes::from(bytes.clone());
            prop_assert_eq!(Acl::decode(&mut input), Ok(acl.clone()));
            prop_assert!(input.is_empty());
            for cut in 0..bytes.len() {
                prop_assert!(Acl::decode(&mut Bytes::copy_from_slice(&bytes[..cut])).is_err());
            }
        }

        #[test]
        fn whatever_is_read_makes_sense(bytes: Vec<u8>) {
            if let Ok(acl) = Acl::decode(&mut Bytes::from(bytes)) {
                prop_assert_eq!(acl.check(), Ok(()));
            }
        }
    }
}
