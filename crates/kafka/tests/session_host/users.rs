//! Users of a listener that asks who its clients are.

use bytes::Bytes;
use polylogue_auth::{Authority, Claim, Mechanism, SERVER_NONCE_BYTES, ScramCredential, ScramMechanism, ScramUser};
use std::sync::Mutex;

/// The delay of a failed login. Milliseconds.
pub const DELAY_MS: u64 = 50;
/// That of RFC 7677's example.
const SALT: [u8; 16] = [0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81];

/// Where a connection asks: `user` with the password `pencil`, and `root`, an administrator, with `root`.
#[derive(Debug, Default)]
pub struct Users {
    /// What was told of logins.
    pub told: Mutex<Vec<String>>,
}

impl Authority for Users {
    fn scram(&self, claim: &Claim<'_>, mechanism: ScramMechanism) -> Option<ScramCredential> {
        let credential = || ScramCredential::of(mechanism, b"pencil", Bytes::copy_from_slice(&SALT), 4_096).unwrap();
        (claim.name == "user").then(credential)
    }

    fn is_password(&self, claim: &Claim<'_>, password: &[u8]) -> bool {
        matches!((claim.name, password), ("user", b"pencil") | ("root", b"root"))
    }

    fn is_administrator(&self, name: &str) -> bool {
        name == "root"
    }

    fn scram_users(&self, names: Option<&[&str]>) -> Vec<ScramUser> {
        let user = ScramUser { name: "user".to_owned(), credentials: vec![(ScramMechanism::Sha512, 8_192)] };
        if names.is_none_or(|names| names.contains(&"user")) { vec![user] } else { Vec::new() }
    }

    fn nonce(&self) -> [u8; SERVER_NONCE_BYTES] {
        std::array::from_fn(|at| at as u8)
    }

    fn secret(&self) -> &[u8] {
        b"secret"
    }

    fn failed(&self, claim: &Claim<'_>, mechanism: Mechanism, why: &str) -> u64 {
        let told = format!("{} from {} by {}: {why}", claim.name, claim.address, mechanism.name());
        self.told.lock().unwrap().push(told);
        DELAY_MS
    }

    fn succeeded(&self, claim: &Claim<'_>, mechanism: Mechanism) {
        self.told.lock().unwrap().push(format!("{} by {}", claim.name, mechanism.name()));
    }
}
