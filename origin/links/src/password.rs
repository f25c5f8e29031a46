//! Links that are protected by a password.
//!
//! The cold store has a slow hash of the password. Gateways, edges and Redis never receive the protected fields
//! ([`Link::for_gateways`](weir_link::record::Link::for_gateways)), and forward visitors to the origin.
//!
//! A hash deliberately takes a large part of a second of one core. Few hashes run at once, few wait, and links take
//! turns (`turns`). An attempt above the limits is refused before any hashing.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::pbkdf2::{self, PBKDF2_HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Deserializer};
use weir_link::code::LinkId;
use weir_link::password::PASSWORD_LEN_MAX;
use weir_link::record::PasswordGuard;

use super::metrics::LinkMetrics;
use super::numbers::Clock;
use super::turns::{QueueFull, Turns};

/// Iterations of PBKDF2 with SHA-256, as recommended by OWASP's Password Storage Cheat Sheet.
const ROUNDS: u32 = 600_000;

/// Maximum number of iterations that a stored hash may request.
const ROUNDS_MAX: u32 = 10_000_000;

/// Prefix of a stored hash: `pbkdf2-sha256$<rounds>$<salt>$<hash>`, with salt and hash in Base64.
const KIND: &str = "pbkdf2-sha256";

const SALT_LEN: usize = 16;
const HASH_LEN: usize = 32;

/// Window of the attempt limits, in milliseconds.
const WINDOW_MS: u64 = 15 * 60 * 1000;

/// Maximum number of wrong passwords per window for a link from one address.
const OF_ADDRESS_MAX: u32 = 10;

/// Maximum number of wrong passwords per window for a link from all addresses.
const OF_LINK_MAX: u32 = 1_000;

/// Maximum number of addresses, and of links, with remembered attempts.
const KNOWN_MAX: usize = 65_536;

/// A password as typed: 1 to [`PASSWORD_LEN_MAX`] bytes. Its `Debug` output is redacted.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Checks the length of a password.
    ///
    /// # Errors
    /// If it is empty or too long.
    pub fn new(text: String) -> Result<Self, NoPassword> {
        match (1..=PASSWORD_LEN_MAX).contains(&text.len()) {
            true => Ok(Self(text)),
            false => Err(NoPassword),
        }
    }
}

/// The text is not a valid password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must have 1 to {PASSWORD_LEN_MAX} bytes")]
pub struct NoPassword;

impl<'de> Deserialize<'de> for Password {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// Too many passwords are being hashed, or the operating system provides no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many passwords are being checked")]
pub struct Busy;

/// The outcome of a password attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordOutcome {
    /// The password is correct.
    Right,
    /// The password is wrong.
    Wrong,
    /// Not checked: there were too many wrong attempts.
    TooMany {
        /// Milliseconds until the next permitted attempt.
        wait_ms: u64,
    },
    /// Not checked: too many attempts are in progress.
    Busy,
}

/// Hashes and verifies passwords. Cloning is cheap.
#[derive(Clone)]
pub struct Passwords {
    turns: Turns,
    attempts: Arc<Mutex<Attempts>>,
    metrics: LinkMetrics,
    clock: Clock,
}

impl Passwords {
    pub(super) fn new(metrics: LinkMetrics, clock: Clock) -> Self {
        Self {
            turns: Turns::default(),
            attempts: Arc::default(),
            metrics,
            clock,
        }
    }

    /// Hashes a password into the guard of a link.
    ///
    /// # Errors
    /// See [`Busy`].
    pub async fn guard(&self, password: Password) -> Result<PasswordGuard, Busy> {
        let created = self.slowly(None, move || hash(&password)).await?;
        created.map(PasswordGuard::new).ok_or(Busy)
    }

    /// Tries a password for a link, from this address if it is known.
    pub async fn try_one(
        &self,
        link: &LinkId,
        address: Option<IpAddr>,
        guard: &PasswordGuard,
        password: Password,
    ) -> PasswordOutcome {
        let attempted = self.check_password(link, address, guard, password).await;
        self.metrics.password(match attempted {
            PasswordOutcome::Right => "right",
            PasswordOutcome::Wrong => "wrong",
            PasswordOutcome::TooMany { .. } => "too_many",
            PasswordOutcome::Busy => "busy",
        });
        attempted
    }

    async fn check_password(
        &self,
        link: &LinkId,
        address: Option<IpAddr>,
        guard: &PasswordGuard,
        password: Password,
    ) -> PasswordOutcome {
        let network = address.map(network_of);
        let now_ms = (self.clock)();
        // Count it before the check, so that parallel attempts cannot bypass the limit.
        if let Err(wait_ms) = self.with(|attempts| attempts.take(link, network, now_ms)) {
            return PasswordOutcome::TooMany { wait_ms };
        }
        let stored = guard.hash().unwrap_or_default().to_owned();
        let is_right = move || is_right(&stored, &password);
        match self.slowly(Some(link), is_right).await {
            Ok(true) => {
                self.with(|attempts| attempts.give_back(link, network));
                PasswordOutcome::Right
            }
            Ok(false) => PasswordOutcome::Wrong,
            Err(Busy) => {
                // It was not checked, so it does not count for the link. It still counts for the address, which sent it
                // while others wait.
                self.with(|attempts| attempts.give_back(link, None));
                PasswordOutcome::Busy
            }
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Attempts) -> T) -> T {
        act(&mut self.attempts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs slow work when a turn is available.
    async fn slowly<T: Send + 'static>(
        &self,
        link: Option<&LinkId>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let turn = self.turns.next(link).await.map_err(|QueueFull| Busy)?;
        let done = tokio::task::spawn_blocking(move || {
            // The work holds the turn, because the client may disconnect.
            let _turn = turn;
            work()
        });
        done.await.map_err(|_| Busy)
    }
}

// --- attempts

/// The key of a visitor in the limits: an IPv4 address, or an IPv6 network, because one visitor has 2^64 addresses.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => {
                let [a, b, c, d, ..] = v6.segments();
                std::net::Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
        },
    }
}

/// Wrong passwords in the current window, in this process.
#[derive(Debug, Default)]
struct Attempts {
    of_links: HashMap<LinkId, Count>,
    of_addresses: HashMap<(LinkId, IpAddr), Count>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    since_ms: u64,
    tries: u32,
}

impl Attempts {
    /// Counts an attempt. If the limit is exceeded, returns how long to wait.
    fn take(&mut self, link: &LinkId, network: Option<IpAddr>, now_ms: u64) -> Result<(), u64> {
        let all = count(&mut self.of_links, link.clone(), now_ms);
        // The table of links is full: this many links at once indicate an attack.
        let all = all.ok_or(WINDOW_MS)?;
        check(all, OF_LINK_MAX, now_ms)?;
        // If the table of addresses is full, only the link's count applies.
        if let Some(network) = network
            && let Some(one) = count(&mut self.of_addresses, (link.clone(), network), now_ms)
        {
            check(one, OF_ADDRESS_MAX, now_ms)?;
            one.tries += 1;
        }
        if let Some(all) = self.of_links.get_mut(link) {
            all.tries += 1;
        }
        Ok(())
    }

    /// Takes back an attempt that was right or was not checked: of the link, and of the network if given.
    fn give_back(&mut self, link: &LinkId, network: Option<IpAddr>) {
        if let Some(all) = self.of_links.get_mut(link) {
            all.tries = all.tries.saturating_sub(1);
        }
        let one = network.and_then(|network| self.of_addresses.get_mut(&(link.clone(), network)));
        if let Some(one) = one {
            one.tries = one.tries.saturating_sub(1);
        }
    }
}

fn check(count: &Count, max: u32, now_ms: u64) -> Result<(), u64> {
    match count.tries < max {
        true => Ok(()),
        false => Err((count.since_ms + WINDOW_MS).saturating_sub(now_ms).max(1)),
    }
}

/// The count of a key; `None`: the table is full.
fn count<K: std::hash::Hash + Eq>(
    counts: &mut HashMap<K, Count>,
    key: K,
    now_ms: u64,
) -> Option<&mut Count> {
    // A clock that was set back also ends a window.
    let is_over = |count: &Count| !(count.since_ms..count.since_ms + WINDOW_MS).contains(&now_ms);
    if counts.len() >= KNOWN_MAX && !counts.contains_key(&key) {
        counts.retain(|_, count| !is_over(count) && count.tries > 0);
        if counts.len() >= KNOWN_MAX {
            return None;
        }
    }
    let new = Count {
        since_ms: now_ms,
        tries: 0,
    };
    let count = counts.entry(key).or_insert(new);
    if is_over(count) {
        *count = new;
    }
    Some(count)
}

// --- hashes

fn hash(password: &Password) -> Option<String> {
    let mut salt = [0; SALT_LEN];
    SystemRandom::new().fill(&mut salt).ok()?;
    let mut out = [0; HASH_LEN];
    let rounds = NonZeroU32::new(ROUNDS)?;
    pbkdf2::derive(
        PBKDF2_HMAC_SHA256,
        rounds,
        &salt,
        password.0.as_bytes(),
        &mut out,
    );
    let [salt, out] = [&salt[..], &out[..]].map(|bytes| STANDARD_NO_PAD.encode(bytes));
    Some(format!("{KIND}${ROUNDS}${salt}${out}"))
}

/// Whether `stored` is the hash of `password`. False if `stored` is malformed.
fn is_right(stored: &str, password: &Password) -> bool {
    let parts: Vec<&str> = stored.split('$').collect();
    let [KIND, rounds, salt, out] = parts[..] else {
        return false;
    };
    let rounds = rounds.parse().ok().filter(|rounds| *rounds <= ROUNDS_MAX);
    let rounds = rounds.and_then(NonZeroU32::new);
    let decode = |text| STANDARD_NO_PAD.decode(text).ok();
    let (Some(rounds), Some(salt), Some(out)) = (rounds, decode(salt), decode(out)) else {
        return false;
    };
    let bytes = password.0.as_bytes();
    out.len() == HASH_LEN && pbkdf2::verify(PBKDF2_HMAC_SHA256, rounds, &salt, bytes, &out).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(code: &str) -> LinkId {
        format!("d/{code}").parse().unwrap()
    }

    fn password(text: &str) -> Password {
        Password::new(text.to_owned()).unwrap()
    }

    #[test]
    fn hash_matches_one_password_and_has_a_new_salt_each_time() {
        let (one, other) = (
            hash(&password("open")).unwrap(),
            hash(&password("open")).unwrap(),
        );
        assert_ne!(one, other);
        assert!(one.starts_with("pbkdf2-sha256$600000$"), "{one}");
        assert!(is_right(&one, &password("open")));
        assert!(!is_right(&one, &password("Open")));
        assert!(!format!("{:?}", password("open")).contains("open"));
    }

    /// RFC 7914, section 11.
    #[test]
    fn hash_matches_the_pbkdf2_test_vectors() {
        let existing = hex::decode(concat!(
            "55ac046e56e3089fec1691c22544b605",
            "f94185216dde0465e68b9d57c20dacbc"
        ));
        let existing = STANDARD_NO_PAD.encode(existing.unwrap());
        let stored = format!("{KIND}$1${}${existing}", STANDARD_NO_PAD.encode("salt"));
        assert!(is_right(&stored, &password("passwd")));
    }

    #[test]
    fn invalid_hash_matches_no_password() {
        for stored in [
            "",
            "open",
            "pbkdf2-sha256$0$c2FsdA$aGFzaA",
            "pbkdf2-sha256$99999999$c2FsdA$aGFzaA",
            "pbkdf2-sha256$1$c2FsdA$",
            "pbkdf2-sha256$1$*$*",
            "pbkdf2-sha256$1$c2FsdA$aGFzaA$",
            "other$1$c2FsdA$aGFzaA",
        ] {
            assert!(!is_right(stored, &password("open")), "{stored}");
        }
    }

    #[test]
    fn password_attempts_are_limited_per_address_and_link() {
        let mut attempts = Attempts::default();
        let (one, other) = (link("abc"), link("abd"));
        let at = |last| Some(network_of(IpAddr::from([10, 0, 0, last])));
        for _ in 0..OF_ADDRESS_MAX {
            assert_eq!(attempts.take(&one, at(1), 1_000), Ok(()));
        }
        assert_eq!(attempts.take(&one, at(1), 2_000), Err(WINDOW_MS - 1_000));
        assert_eq!(attempts.take(&one, at(2), 2_000), Ok(()));
        assert_eq!(attempts.take(&other, at(1), 2_000), Ok(()));
        assert_eq!(attempts.take(&one, at(1), 1_000 + WINDOW_MS), Ok(()));
    }

    #[test]
    fn correct_password_does_not_count_as_an_attempt() {
        let mut attempts = Attempts::default();
        let at = Some(IpAddr::from([10, 0, 0, 1]));
        for _ in 0..100 * OF_ADDRESS_MAX {
            assert_eq!(attempts.take(&link("abc"), at, 1), Ok(()));
            attempts.give_back(&link("abc"), at);
        }
    }

    #[test]
    fn password_attempts_of_all_addresses_share_a_link_limit() {
        let mut attempts = Attempts::default();
        for n in 0..OF_LINK_MAX {
            let at = Some(IpAddr::from(n.to_be_bytes()));
            assert_eq!(attempts.take(&link("abc"), at, 1), Ok(()));
        }
        let at = Some(IpAddr::from([200, 0, 0, 1]));
        assert_eq!(attempts.take(&link("abc"), at, 1), Err(WINDOW_MS));
        assert_eq!(attempts.take(&link("abc"), None, 1), Err(WINDOW_MS));
    }

    #[test]
    fn ipv6_network_counts_as_one_visitor() {
        let network = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
    }

    #[test]
    fn password_cache_is_bounded_and_link_stays_protected() {
        let mut attempts = Attempts::default();
        let one = link("abc");
        let filler = |n: usize| {
            let n = u32::try_from(n).unwrap();
            (
                (link("abd"), IpAddr::from(n.to_be_bytes())),
                Count {
                    since_ms: 1,
                    tries: 1,
                },
            )
        };
        attempts.of_addresses = (0..KNOWN_MAX).map(filler).collect();
        let at = Some(IpAddr::from([200, 0, 0, 1]));
        for _ in 0..OF_LINK_MAX {
            assert_eq!(attempts.take(&one, at, 2), Ok(()));
        }
        assert!(attempts.take(&one, at, 2).is_err());
        assert_eq!(attempts.of_addresses.len(), KNOWN_MAX);
    }
}
