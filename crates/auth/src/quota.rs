//! Kafka's client quotas (KIP-13, KIP-124, KIP-546): entities, precedence and records.
//!
//! A quota is set for an *entity*: a user, a client id, or a client id of a user, each by its name or for all that have none of their own. Which
//! one holds for a client is decided for each kind of quota by itself (`DefaultQuotaCallback`), the first of
//!
//! ```text
//!   1 user and client id      4 other users and client id             7 client id
//!   2 user, other client ids  5 other users and other client ids      8 other client ids
//!   3 user                    6 other users
//! ```
//!
//! and its *share* says which clients use it up together: 1, 2, 4 and 5 those of one user and client id, 3 and 6 those of one user, 7 and 8
//! those of one client id. In records:
//!
//! ```text
//! quota   u8 parts (1 a user, 2 other users, 4 a client id, 8 other client ids), for 1 and for 4 each: u16 length, UTF-8;
//!         u8 count, count times: u8 kind, u64 bits of the double
//! ```

use crate::error::{AuthError, AuthErrorKind};
use bytes::{Buf, BufMut, Bytes};
use std::collections::BTreeMap;

/// The longest name of a user or client id that has a quota. Bytes.
pub const QUOTA_NAME_BYTES_MAX: usize = 1_024;
/// The most that a quota may be, in its unit: what a double holds exactly.
const VALUE_MAX: f64 = 9_007_199_254_740_992.0;

/// The kind of a quota.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum QuotaKind {
    /// Bytes of produce requests a second.
    Produce,
    /// Bytes of messages in answers to fetches a second.
    Fetch,
    /// Time of the broker's threads, in percent of one thread.
    Requests,
}

impl QuotaKind {
    /// All of them.
    pub const ALL: [QuotaKind; 3] = [QuotaKind::Produce, QuotaKind::Fetch, QuotaKind::Requests];

    /// Its key in Kafka's protocol and tools.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            QuotaKind::Produce => "producer_byte_rate",
            QuotaKind::Fetch => "consumer_byte_rate",
            QuotaKind::Requests => "request_percentage",
        }
    }

    /// The one with this key.
    #[must_use]
    pub fn keyed(key: &str) -> Option<QuotaKind> {
        QuotaKind::ALL.into_iter().find(|kind| kind.key() == key)
    }

    const fn number(self) -> u8 {
        match self {
            QuotaKind::Produce => 1,
            QuotaKind::Fetch => 2,
            QuotaKind::Requests => 3,
        }
    }

    pub(crate) const fn at(self) -> usize {
        self.number() as usize - 1
    }

    /// Validates a value. Texts are those of Kafka's controller (`ClientQuotaControlManager`).
    ///
    /// # Errors
    /// [`AuthErrorKind::Invalid`]
    pub fn check(self, value: f64) -> Result<(), AuthError> {
        let key = self.key();
        let invalid = |text: String| Err(AuthError::new(AuthErrorKind::Invalid, text));
        if value.is_nan() || value <= 0.0 {
            return invalid(format!("Quota {key} must be greater than 0"));
        }
        if value > VALUE_MAX {
            return invalid(format!("Proposed value for {key} is too large for a LONG."));
        }
        if self != QuotaKind::Requests && value.fract() > 1e-6 {
            return invalid(format!("{key} cannot be a fractional value."));
        }
        Ok(())
    }
}

/// One component of a quota entity: a name, or the default.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum QuotaName {
    /// The default: all clients without a quota of their own.
    Others,
    /// This name.
    Named(String),
}

/// A quota entity: at least one of the two components is set.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct QuotaEntity {
    /// The user; `None` for any.
    pub user: Option<QuotaName>,
    /// The client id; `None` for any.
    pub client_id: Option<QuotaName>,
}

const USER: u8 = 1;
const OTHER_USERS: u8 = 2;
const CLIENT_ID: u8 = 4;
const OTHER_CLIENT_IDS: u8 = 8;

impl QuotaEntity {
    /// Validates the entity.
    ///
    /// # Errors
    /// [`AuthErrorKind::Invalid`]
    pub fn check(&self) -> Result<(), AuthError> {
        let invalid = |text: String| Err(AuthError::new(AuthErrorKind::Invalid, text));
        if self.user.is_none() && self.client_id.is_none() {
            return invalid("Invalid empty client quota entity".to_owned());
        }
        for (what, name) in [("user", &self.user), ("client-id", &self.client_id)] {
            let Some(QuotaName::Named(name)) = name else { continue };
            if name.is_empty() {
                return invalid(format!("Empty {what} not supported"));
            }
            if name.len() > QUOTA_NAME_BYTES_MAX {
                return invalid(format!("The {what} has {} bytes, and {QUOTA_NAME_BYTES_MAX} are allowed", name.len()));
            }
        }
        Ok(())
    }

    /// Puts it at the end of a record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let part = |name: &Option<QuotaName>, named: u8, others: u8| match name {
            None => 0,
            Some(QuotaName::Others) => others,
            Some(QuotaName::Named(_)) => named,
        };
        out.put_u8(part(&self.user, USER, OTHER_USERS) | part(&self.client_id, CLIENT_ID, OTHER_CLIENT_IDS));
        for name in [&self.user, &self.client_id] {
            if let Some(QuotaName::Named(name)) = name {
                // Its length was checked before it was kept.
                out.put_u16_le(u16::try_from(name.len()).unwrap_or(u16::MAX));
                out.extend_from_slice(name.as_bytes());
            }
        }
    }

    /// Takes one from the beginning of a record.
    ///
    /// # Errors
    /// When there is none.
    pub fn decode(input: &mut Bytes) -> Result<QuotaEntity, AuthError> {
        let parts = input.try_get_u8().map_err(|_| corrupt())?;
        if parts >= 16 {
            return Err(corrupt());
        }
        let mut name = |named: u8, others: u8| match (parts & named != 0, parts & others != 0) {
            (false, false) => Ok(None),
            (false, true) => Ok(Some(QuotaName::Others)),
            (true, false) => {
                let bytes = usize::from(input.try_get_u16_le().map_err(|_| corrupt())?);
                if input.remaining() < bytes {
                    return Err(corrupt());
                }
                let name = String::from_utf8(input.split_to(bytes).into()).map_err(|_| corrupt())?;
                Ok(Some(QuotaName::Named(name)))
            }
            (true, true) => Err(corrupt()),
        };
        let entity = QuotaEntity { user: name(USER, OTHER_USERS)?, client_id: name(CLIENT_ID, OTHER_CLIENT_IDS)? };
        entity.check().map_err(|_| corrupt())?;
        Ok(entity)
    }
}

fn corrupt() -> AuthError {
    AuthError::new(AuthErrorKind::Corrupt, "a quota cannot be read")
}

/// What is set for an entity, by kind.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct QuotaLimits {
    values: [Option<f64>; QuotaKind::ALL.len()],
}

impl QuotaLimits {
    /// The limit of a kind.
    #[must_use]
    pub fn get(&self, kind: QuotaKind) -> Option<f64> {
        self.values.get(kind.at()).copied().flatten()
    }

    /// Sets the limit of a kind, or takes it away.
    pub fn set(&mut self, kind: QuotaKind, value: Option<f64>) {
        if let Some(place) = self.values.get_mut(kind.at()) {
            *place = value;
        }
    }

    /// What is set.
    pub fn iter(&self) -> impl Iterator<Item = (QuotaKind, f64)> {
        QuotaKind::ALL.into_iter().filter_map(|kind| Some((kind, self.get(kind)?)))
    }

    /// Whether nothing is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Puts it at the end of a record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::try_from(self.iter().count()).unwrap_or(u8::MAX));
        for (kind, value) in self.iter() {
            out.put_u8(kind.number());
            out.put_u64_le(value.to_bits());
        }
    }

    /// Takes one from the beginning of a record.
    ///
    /// # Errors
    /// When there is none.
    pub fn decode(input: &mut Bytes) -> Result<QuotaLimits, AuthError> {
        let mut limits = QuotaLimits::default();
        for _ in 0..input.try_get_u8().map_err(|_| corrupt())? {
            let number = input.try_get_u8().map_err(|_| corrupt())?;
            let kind = QuotaKind::ALL.into_iter().find(|kind| kind.number() == number).ok_or_else(corrupt)?;
            let value = f64::from_bits(input.try_get_u64_le().map_err(|_| corrupt())?);
            kind.check(value).map_err(|_| corrupt())?;
            limits.set(kind, Some(value));
        }
        Ok(limits)
    }
}

/// All quotas by entity, without empty ones.
pub type QuotaTable = BTreeMap<QuotaEntity, QuotaLimits>;

/// As much of a name tells one client from another where a limit is for each of them: names are the clients' to choose. Bytes.
pub const SHARE_NAME_BYTES_MAX: usize = 256;

/// The clients that share one limit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Share {
    pub(crate) kind: QuotaKind,
    pub(crate) user: Option<String>,
    pub(crate) client_id: Option<String>,
}

/// The beginning of a name.
fn cut(name: &str) -> String {
    name[..name.floor_char_boundary(SHARE_NAME_BYTES_MAX)].to_owned()
}

/// Returns the limit of a kind for a client, and the clients that share it.
pub(crate) fn find(table: &QuotaTable, kind: QuotaKind, user: &str, client_id: &str) -> Option<(f64, Share)> {
    let named = |name: &str| Some(QuotaName::Named(name.to_owned()));
    let others = || Some(QuotaName::Others);
    let order = [
        (named(user), named(client_id)),
        (named(user), others()),
        (named(user), None),
        (others(), named(client_id)),
        (others(), others()),
        (others(), None),
        (None, named(client_id)),
        (None, others()),
    ];
    order.into_iter().find_map(|(of_user, of_client)| {
        let share = Share {
            kind,
            user: of_user.is_some().then(|| cut(user)),
            client_id: of_client.is_some().then(|| cut(client_id)),
        };
        let limit = table.get(&QuotaEntity { user: of_user, client_id: of_client })?.get(kind)?;
        Some((limit, share))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entity(user: Option<&str>, client_id: Option<&str>) -> QuotaEntity {
        let name = |name: &str| if name == "*" { QuotaName::Others } else { QuotaName::Named(name.to_owned()) };
        QuotaEntity { user: user.map(name), client_id: client_id.map(name) }
    }

    fn limits(kind: QuotaKind, value: f64) -> QuotaLimits {
        let mut limits = QuotaLimits::default();
        limits.set(kind, Some(value));
        limits
    }

    /// Kafka's order (`ClientQuotaManagerTest.testQuotaConfigPrecedence`): each of these is hidden by all before it.
    #[test]
    fn the_first_entity_that_has_a_limit_decides() {
        let order = [
            (Some("ann"), Some("app")),
            (Some("ann"), Some("*")),
            (Some("ann"), None),
            (Some("*"), Some("app")),
            (Some("*"), Some("*")),
            (Some("*"), None),
            (None, Some("app")),
            (None, Some("*")),
        ];
        let mut table: QuotaTable = order
            .iter()
            .zip(1..)
            .map(|((user, client), at)| (entity(*user, *client), limits(QuotaKind::Produce, f64::from(at))))
            .collect();
        for ((user, client), at) in order.iter().zip(1..) {
            let (limit, share) = find(&table, QuotaKind::Produce, "ann", "app").unwrap();
            assert_eq!(limit, f64::from(at));
            let share_of = |part: &Option<&str>, name: &str| part.map(|_| name.to_owned());
            assert_eq!((share.user, share.client_id), (share_of(user, "ann"), share_of(client, "app")));
            table.remove(&entity(*user, *client));
        }
        assert_eq!(find(&table, QuotaKind::Produce, "ann", "app"), None);
    }

    /// A name may have 32 KiB on the wire, and 65,536 of them are remembered.
    #[test]
    fn long_names_are_told_apart_by_their_beginning() {
        let mut table = QuotaTable::new();
        table.insert(entity(None, Some("*")), limits(QuotaKind::Fetch, 1.0));
        let share = |name: &str| find(&table, QuotaKind::Fetch, "ann", name).unwrap().1.client_id.unwrap();
        let long = "x".repeat(SHARE_NAME_BYTES_MAX - 1);
        assert_eq!(share(&format!("{long}a{long}")).len(), SHARE_NAME_BYTES_MAX);
        assert_eq!(share(&format!("{long}ab")), share(&format!("{long}ac")));
        assert_ne!(share(&format!("{long}a")), share(&format!("{long}b")));
        assert_eq!(share(&format!("{long}ü")), long);
        assert_eq!(share("ü"), "ü");
    }

    /// An entity without a quota of this kind is skipped: the next one in the order of precedence applies.
    #[test]
    fn kinds_are_found_each_for_itself() {
        let mut table = QuotaTable::new();
        table.insert(entity(Some("ann"), None), limits(QuotaKind::Fetch, 1.0));
        table.insert(entity(Some("*"), None), limits(QuotaKind::Produce, 2.0));
        assert_eq!(find(&table, QuotaKind::Produce, "ann", "x").map(|(limit, _)| limit), Some(2.0));
        assert_eq!(find(&table, QuotaKind::Fetch, "ann", "x").map(|(limit, _)| limit), Some(1.0));
        assert_eq!(find(&table, QuotaKind::Requests, "ann", "x"), None);
        assert_eq!(find(&table, QuotaKind::Fetch, "bob", "x"), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_kafkas_words() {
        for (value, text) in [
            (0.0, "Quota producer_byte_rate must be greater than 0"),
            (-1.0, "Quota producer_byte_rate must be greater than 0"),
            (f64::NAN, "Quota producer_byte_rate must be greater than 0"),
            (f64::INFINITY, "Proposed value for producer_byte_rate is too large for a LONG."),
            (0.5, "producer_byte_rate cannot be a fractional value."),
        ] {
            assert_eq!(QuotaKind::Produce.check(value).map_err(|error| error.text), Err(text.to_owned()));
        }
        assert_eq!(QuotaKind::Requests.check(0.5), Ok(()));
        let long = "x".repeat(QUOTA_NAME_BYTES_MAX + 1);
        for (entity, text) in [
            (QuotaEntity::default(), "Invalid empty client quota entity"),
            (entity(Some(""), None), "Empty user not supported"),
            (entity(None, Some("")), "Empty client-id not supported"),
            (entity(Some(&long), None), "The user has 1025 bytes, and 1024 are allowed"),
        ] {
            assert_eq!(entity.check().map_err(|error| error.text), Err(text.to_owned()));
        }
        assert!(QuotaKind::ALL.iter().all(|kind| QuotaKind::keyed(kind.key()) == Some(*kind)));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(user in "[*]|[a-z]{1,9}", client in "[*]|[a-z]{1,9}", which in 1..4u8, rate in 1..u32::MAX) {
            let entity = entity((which & 1 != 0).then_some(&*user), (which & 2 != 0).then_some(&*client));
            let mut limits = limits(QuotaKind::Fetch, f64::from(rate));
            limits.set(QuotaKind::Requests, Some(0.25));
            let mut bytes = Vec::new();
            entity.encode(&mut bytes);
            limits.encode(&mut bytes);
            let mut input = Bytes::from(bytes.clone());
            prop_assert_eq!(QuotaEntity::decode(&mut input), Ok(entity));
            prop_assert_eq!(QuotaLimits::decode(&mut input), Ok(limits));
            prop_assert!(input.is_empty());
            for cut in 0..bytes.len() {
                let mut input = Bytes::copy_from_slice(&bytes[..cut]);
                prop_assert!(QuotaEntity::decode(&mut input).is_err() || QuotaLimits::decode(&mut input).is_err());
            }
        }

        #[test]
        fn whatever_is_read_makes_sense(bytes: Vec<u8>) {
            let mut input = Bytes::from(bytes);
            if let Ok(entity) = QuotaEntity::decode(&mut input) {
                prop_assert_eq!(entity.check(), Ok(()));
            }
            if let Ok(limits) = QuotaLimits::decode(&mut input) {
                prop_assert!(limits.iter().all(|(kind, value)| kind.check(value).is_ok()));
            }
        }
    }
}
