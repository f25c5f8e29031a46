//! The secrets of one stack. Children receive them in the environment, never in arguments or logs.

use anyhow::{Context, Result};
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The variable with the secret of claims.
pub(crate) const CLAIM: &str = "WEIR_CLAIM_SECRET";
/// The variable with the secret of order tokens.
pub(crate) const TOKEN: &str = "WEIR_TOKEN_SECRET";
const ADMIN: &str = "WEIR_ADMIN_TOKEN";
const PAYMENT: &str = "WEIR_PAYMENT_SECRET";
/// The variable with the key of the shop's servers.
pub(crate) const EVENTS: &str = "WEIR_EVENTS_KEY_SHOP";
/// The variable with the secret of waiting rooms.
pub(crate) const ROOM: &str = "WEIR_ROOM_SECRET";

/// The secrets shared by gateway, origin and operators.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets {
    /// The gateway signs claims with it, and the origin verifies them: 64 hexadecimal digits.
    pub claim: String,
    /// Gateways sign and verify order tokens with it: 64 hexadecimal digits.
    pub token: String,
    /// The payment provider signs callbacks with it, and the origin verifies them: 64 hexadecimal digits.
    pub payment: String,
    /// The bearer token of the origin's admin routes: 64 hexadecimal digits.
    pub admin_token: String,
    /// The write key with which the shop's servers send events: 64 hexadecimal digits.
    pub events: String,
    /// Gateways sign and verify waiting room passes with it: 64 hexadecimal digits.
    pub room: String,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(…)")
    }
}

impl Secrets {
    /// Generates random secrets.
    pub fn random() -> Result<Self> {
        Ok(Self {
            claim: random_hex()?,
            token: random_hex()?,
            payment: random_hex()?,
            admin_token: random_hex()?,
            events: random_hex()?,
            room: random_hex()?,
        })
    }

    /// Reads the secrets from the file, or generates and stores them there, readable only by the owner. Claims of a
    /// data folder stay valid across restarts.
    pub fn kept_in(file: &Path) -> Result<Self> {
        match std::fs::read_to_string(file) {
            Ok(text) => parse(&text).with_context(|| {
                let file = file.display();
                format!("{file} lacks {CLAIM}, {TOKEN}, {PAYMENT}, {ADMIN}, {EVENTS} or {ROOM}: remove it to create new secrets")
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let secrets = Self::random()?;
                secrets.keep(file)?;
                Ok(secrets)
            }
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    fn keep(&self, file: &Path) -> Result<()> {
        let write = || {
            let mut options = std::fs::OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(file)?;
            write!(
                file,
                "{CLAIM}={}\n{TOKEN}={}\n{PAYMENT}={}\n{ADMIN}={}\n{EVENTS}={}\n{ROOM}={}\n",
                self.claim, self.token, self.payment, self.admin_token, self.events, self.room
            )
        };
        write().with_context(|| format!("cannot write {}", file.display()))
    }
}

fn parse(text: &str) -> Option<Secrets> {
    let value = |name: &str| {
        let of = |line: &str| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        text.lines().find_map(of)
    };
    Some(Secrets {
        claim: value(CLAIM)?,
        token: value(TOKEN)?,
        payment: value(PAYMENT)?,
        admin_token: value(ADMIN)?,
        events: value(EVENTS)?,
        room: value(ROOM)?,
    })
}

/// 64 hexadecimal digits.
pub(crate) fn random_hex() -> Result<String> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot read /dev/urandom")?;
    Ok(crate::wasm::hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn stored_secrets_are_reloaded_and_readable_only_by_their_owner() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("secrets.env");
        let first = Secrets::kept_in(&file).unwrap();
        assert_eq!(first, Secrets::kept_in(&file).unwrap());
        assert_eq!(
            std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_ne!(first.claim, Secrets::random().unwrap().claim);
    }
}
