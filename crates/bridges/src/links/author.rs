//! The permissions of shovels and federation links on this broker: those of the user who set their parameters.
//!
//! | author | may access by a URI without a host | may log in as `guest` on this machine |
//! |---|---|---|
//! | an administrator | any virtual host, as any user | yes |
//! | another user, or a deleted one | what that user may access, as that user | no |
//! | not recorded | the parameter's own virtual host | no |

use bytestring::ByteString;
use polylogue_amqp_gateway::{ADMINISTRATOR, FIRST_USER, InternalIdentity};
use polylogue_amqp_model::{AmqpUri, Metadata};
use std::net::IpAddr;

/// The author of a shovel or link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Author {
    /// A user with the tag `administrator`.
    Administrator,
    /// Another user. A deleted user has no permissions.
    User(ByteString),
    /// Not recorded: the parameter was set by an older version, or by a user logged in by a token. Has access to this virtual host only.
    Unknown(ByteString),
}

impl Author {
    /// Returns the author of something defined by parameters of a virtual host with these authors: the one with the fewest permissions.
    pub(crate) fn of(metadata: &Metadata, vhost: &str, recorded: &[Option<ByteString>]) -> Author {
        let is_administrator = |name: &&ByteString| metadata.user(name).is_some_and(|user| user.has_tag(ADMINISTRATOR));
        if recorded.is_empty() || recorded.contains(&None) {
            return Author::Unknown(vhost.into());
        }
        let mut users = recorded.iter().flatten().filter(|name| !is_administrator(name));
        users.next().map_or(Author::Administrator, |name| Author::User(name.clone()))
    }

    /// Whether it may log in as `guest` to a broker on this machine, which may be this one.
    pub(super) fn may_be_guest(&self) -> bool {
        *self == Author::Administrator
    }

    /// Returns the user for a connection to this broker without a password; `None` if the URI has a password, which is verified then.
    ///
    /// # Errors
    /// It may not access the virtual host, or not as the URI's user.
    pub(super) fn internal_identity(&self, uri: &AmqpUri) -> Result<Option<InternalIdentity>, String> {
        if let Author::Unknown(own) = self
            && uri.vhost != *own
        {
            let there = &uri.vhost;
            return Err(format!(
                "its author is not recorded: it may access virtual host '{own}' only, not '{there}'; set the parameter again"
            ));
        }
        match (&uri.user, &uri.password, self) {
            (Some(_), Some(_), _) => Ok(None),
            (None, _, Author::User(name)) => Ok(Some(InternalIdentity::User(name.clone()))),
            (None, ..) => Ok(Some(InternalIdentity::Operator)),
            (Some(user), None, Author::User(name)) if user != name => {
                Err(format!("user '{name}' may not connect as '{user}'"))
            }
            (Some(user), None, _) => Ok(Some(InternalIdentity::User(user.clone()))),
        }
    }

    /// Checks that it may log in as this user at the address that was resolved.
    ///
    /// # Errors
    /// It may not log in as `guest`: a broker on this machine would accept that from any local client.
    pub(super) fn check_login(&self, user: &[u8], peer: IpAddr) -> Result<(), String> {
        let is_guest_here = user == FIRST_USER.as_bytes() && peer.to_canonical().is_loopback();
        if is_guest_here && !self.may_be_guest() {
            return Err(
                "only shovels and upstreams set by administrators may log in as guest on this machine: name another user".to_owned()
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylogue_amqp_model::{Caller, Command, Limits, Model, PutUser};

    fn uri(text: &str) -> AmqpUri {
        AmqpUri::parse(text).expect(text)
    }

    fn as_whom(author: &Author, text: &str) -> Result<Option<InternalIdentity>, ()> {
        author.internal_identity(&uri(text)).map_err(drop)
    }

    /// Regression test: shovels and links of all users had the operator's permissions.
    #[test]
    fn an_author_has_the_rights_of_now_and_several_the_least_of_them() {
        let mut model = Model::new(Limits::default());
        model.on_ready();
        let mut put = |name: &str, tags: &[&str]| {
            let tags = Some(tags.iter().map(|tag| (*tag).into()).collect());
            let user = PutUser { name: name.into(), password: None, scram: Vec::new(), tags };
            let record = model.plan(&Caller::broker(), &Command::PutUser(user), [0; 16]).expect("planned").record;
            model.apply(&record.expect("a change")).expect("applied");
            model.metadata().clone()
        };
        put("root", &["administrator"]);
        let metadata = put("ann", &["policymaker"]);
        let of = |metadata: &Metadata, names: &[&str]| {
            let recorded: Vec<_> = names.iter().map(|name| Some((*name).into()).filter(|_| !name.is_empty())).collect();
            Author::of(metadata, "v", &recorded)
        };
        let (ann, unknown) = (Author::User("ann".into()), Author::Unknown("v".into()));
        assert_eq!((of(&metadata, &["root"]), of(&metadata, &["ann"])), (Author::Administrator, ann.clone()));
        assert_eq!((of(&metadata, &["root", "ann"]), of(&metadata, &["ann", "root"])), (ann.clone(), ann));
        assert_eq!((of(&metadata, &[]), of(&metadata, &["root", ""])), (unknown.clone(), unknown));
        assert_eq!(of(&metadata, &["gone"]), Author::User("gone".into()));
        assert_eq!(of(&put("root", &[]), &["root"]), Author::User("root".into()));
    }

    #[test]
    fn an_address_here_is_used_by_its_authors_rights() {
        let user = |name: &str| Ok(Some(InternalIdentity::User(name.into())));
        let (ann, unknown) = (Author::User("ann".into()), Author::Unknown("v".into()));
        assert_eq!(as_whom(&Author::Administrator, "amqp:///other"), Ok(Some(InternalIdentity::Operator)));
        assert_eq!(as_whom(&Author::Administrator, "amqp://bob@/other"), user("bob"));
        assert_eq!(as_whom(&ann, "amqp:///other"), user("ann"));
        assert_eq!((as_whom(&ann, "amqp://ann@/v"), as_whom(&ann, "amqp://bob@/v")), (user("ann"), Err(())));
        assert_eq!(
            (as_whom(&unknown, "amqp:///v"), as_whom(&unknown, "amqp:///other")),
            (Ok(Some(InternalIdentity::Operator)), Err(()))
        );
        for author in [Author::Administrator, ann, Author::Unknown("v".into())] {
            assert_eq!(as_whom(&author, "amqp://bob:pw@/v"), Ok(None), "{author:?}");
        }
        assert_eq!(as_whom(&unknown, "amqp://bob:pw@/other"), Err(()));
    }

    #[test]
    fn guest_of_this_machine_is_for_administrators() {
        let [here, mapped, elsewhere] =
            ["127.0.0.1", "::ffff:127.0.0.1", "10.0.0.1"].map(|at| at.parse().expect("an address"));
        for (author, may) in
            [(Author::Administrator, true), (Author::User("ann".into()), false), (Author::Unknown("v".into()), false)]
        {
            for at in [here, mapped] {
                assert_eq!(author.check_login(b"guest", at).is_ok(), may, "{author:?}");
            }
            assert!(author.check_login(b"guest", elsewhere).is_ok() && author.check_login(b"ann", here).is_ok());
        }
    }
}
