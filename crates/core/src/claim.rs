//! The claim ticket: what a granted request carries to the origin, signed by the gateway.
//!
//! ```text
//! x-weir-claim:           v1;<sale>;<shard>;<generation>;<quantity>;<deadline_ms>;<user>
//! x-weir-claim-signature: <key id>;<HMAC-SHA256 of the claim header's bytes, in hex>
//! ```
//!
//! The user stands last because a user's name may hold a `;`.

use alloc::format;
use alloc::string::String;
use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::id::{SaleId, UserId};

/// The least bytes of a signing key: as many as the hash puts out (RFC 2104, section 3).
pub const KEY_LEN_MIN: usize = 32;

/// One user's hold on units of stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The sale.
    pub sale: SaleId,
    /// The user's home shard, where the claim is recorded.
    pub shard: u32,
    /// Tells this claim from every other claim of the shard, earlier or later.
    pub generation: u64,
    /// How many units are held: at least 1.
    pub quantity: u32,
    /// When the hold may be taken back, in milliseconds since the Unix epoch.
    pub deadline_ms: u64,
    /// Who holds them.
    pub user: UserId,
}

/// A claim's name in SQL, and the order's number if it becomes one:
/// `<sale>.<shard>.<generation>`, unique since a generation is unique within its shard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(String);

/// Why a ticket was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// The claim header is not of the form above.
    #[error("the claim is not well formed")]
    Malformed,
    /// The signature header is not of the form above.
    #[error("the claim's signature is not well formed")]
    SignatureMalformed,
    /// The signature was made with a key of another id.
    #[error("the claim is signed with an unknown key")]
    UnknownKey,
    /// The signature is not this claim's.
    #[error("the claim's signature is wrong")]
    WrongSignature,
}

/// Why a signing key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Fewer bytes than [`KEY_LEN_MIN`].
    #[error("has {0} bytes, needs at least {KEY_LEN_MIN}")]
    TooShort(usize),
    /// The key's id is empty or has other bytes than `a-z`, `0-9` and `-`.
    #[error("has an id that is not 1 to 64 of a-z, 0-9 and -")]
    Id,
}

/// A named secret with which gateways sign and the origin checks.
#[derive(Clone)]
pub struct SigningKey {
    id: String,
    // Keyed once: cloning the state is cheaper than hashing the key for each claim.
    mac: Hmac<Sha256>,
}

/// The secret stays out of logs.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl SigningKey {
    /// A key named `id` from `secret`.
    ///
    /// # Errors
    /// When the secret is too short or the id not fit for a header.
    pub fn new(id: &str, secret: &[u8]) -> Result<Self, KeyError> {
        if secret.len() < KEY_LEN_MIN {
            return Err(KeyError::TooShort(secret.len()));
        }
        // A key's id has the same alphabet as a sale's.
        SaleId::new(id).map_err(|_| KeyError::Id)?;
        // HMAC takes keys of any length, so the error cannot come.
        let mac = Hmac::new_from_slice(secret).map_err(|_| KeyError::TooShort(secret.len()))?;
        Ok(Self { id: id.into(), mac })
    }

    /// The signature header of a claim header with the bytes `claim`.
    pub fn sign(&self, claim: &str) -> String {
        let tag = self.mac.clone().chain_update(claim).finalize().into_bytes();
        format!("{};{}", self.id, hex::encode(tag))
    }

    /// Checks, in constant time, that `signature` is what [`SigningKey::sign`] gives for `claim`.
    ///
    /// # Errors
    /// Says whether the form, the key or the signature itself is wrong.
    pub fn verify(&self, claim: &str, signature: &str) -> Result<(), TicketError> {
        let (key_id, tag) = signature
            .split_once(';')
            .ok_or(TicketError::SignatureMalformed)?;
        let tag = hex::decode(tag).map_err(|_| TicketError::SignatureMalformed)?;
        if key_id != self.id {
            return Err(TicketError::UnknownKey);
        }
        self.mac
            .clone()
            .chain_update(claim)
            .verify_slice(&tag)
            .map_err(|_| TicketError::WrongSignature)
    }
}

impl Ticket {
    const VERSION: &str = "v1";

    /// The claim's name.
    pub fn claim_id(&self) -> ClaimId {
        ClaimId::new(&self.sale, self.shard, self.generation)
    }

    /// The claim header's value.
    pub fn encode(&self) -> String {
        let Self {
            sale,
            shard,
            generation,
            quantity,
            deadline_ms,
            user,
        } = self;
        let version = Self::VERSION;
        format!("{version};{sale};{shard};{generation};{quantity};{deadline_ms};{user}")
    }

    /// Reads a claim header whose signature has been checked.
    ///
    /// # Errors
    /// [`TicketError::Malformed`] for whatever [`Ticket::encode`] does not write.
    pub fn decode(claim: &str) -> Result<Self, TicketError> {
        Self::parse(claim).ok_or(TicketError::Malformed)
    }

    fn parse(claim: &str) -> Option<Self> {
        let mut fields = claim.splitn(7, ';');
        if fields.next()? != Self::VERSION {
            return None;
        }
        let ticket = Self {
            sale: SaleId::new(fields.next()?).ok()?,
            shard: fields.next()?.parse().ok()?,
            generation: fields.next()?.parse().ok()?,
            quantity: fields.next()?.parse().ok()?,
            deadline_ms: fields.next()?.parse().ok()?,
            user: UserId::new(fields.next()?).ok()?,
        };
        // One spelling for each ticket: no `+3`, no `007`.
        (ticket.quantity > 0 && ticket.encode() == claim).then_some(ticket)
    }
}

impl ClaimId {
    /// The name of the claim of this generation.
    pub fn new(sale: &SaleId, shard: u32, generation: u64) -> Self {
        Self(format!("{sale}.{shard}.{generation}"))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ticket() -> Ticket {
        Ticket {
            sale: SaleId::new("sale-1").unwrap(),
            shard: 3,
            generation: 1_700_000_000_123,
            quantity: 1,
            deadline_ms: 1_700_000_030_123,
            user: UserId::new("alice;bob").unwrap(),
        }
    }

    fn key(id: &str, byte: u8) -> SigningKey {
        SigningKey::new(id, &[byte; 32]).unwrap()
    }

    #[test]
    fn a_ticket_reads_as_it_was_written() {
        let text = ticket().encode();
        assert_eq!(text, "v1;sale-1;3;1700000000123;1;1700000030123;alice;bob");
        assert_eq!(Ticket::decode(&text).unwrap(), ticket());
        assert_eq!(ticket().claim_id().as_str(), "sale-1.3.1700000000123");
    }

    #[test]
    fn whatever_is_not_a_ticket_is_refused() {
        let good = ticket().encode();
        for bad in [
            "",
            "v1",
            &good.replace("v1", "v2"),
            &good.replace("sale-1", "SALE"),
            &good.replace(";3;", ";-3;"),
            &good.replace(";1;", ";0;"),
            &good.replace("alice;bob", ""),
            &good.replace(";3;", ";+3;"),
            &good.replace(";3;", ";03;"),
            &good.replace("1700000000123", "99999999999999999999"),
        ] {
            assert_eq!(Ticket::decode(bad), Err(TicketError::Malformed), "{bad}");
        }
    }

    #[test]
    fn only_the_right_key_signs_and_only_this_claim() {
        let claim = ticket().encode();
        let signature = key("k1", 7).sign(&claim);
        assert_eq!(key("k1", 7).verify(&claim, &signature), Ok(()));
        assert_eq!(
            key("k1", 8).verify(&claim, &signature),
            Err(TicketError::WrongSignature)
        );
        assert_eq!(
            key("k2", 7).verify(&claim, &signature),
            Err(TicketError::UnknownKey)
        );
        let other = claim.replace("alice", "carol");
        assert_eq!(
            key("k1", 7).verify(&other, &signature),
            Err(TicketError::WrongSignature)
        );
        let short = &signature[..signature.len() - 2];
        assert_eq!(
            key("k1", 7).verify(&claim, short),
            Err(TicketError::WrongSignature)
        );
        for bad in ["", "k1", "k1;zz", "k1;abc"] {
            let refused = key("k1", 7).verify(&claim, bad);
            assert_eq!(refused, Err(TicketError::SignatureMalformed), "{bad}");
        }
    }

    /// RFC 4231, test case 2's construction with a long enough key: pins the algorithm.
    #[test]
    fn the_signature_is_hmac_sha256_in_hex() {
        let key = SigningKey::new("k", &[0xaa; 131]).unwrap();
        let data = "Test Using Larger Than Block-Size Key - Hash Key First"; // RFC 4231, case 6
        let expected = "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54";
        assert_eq!(key.sign(data), format!("k;{expected}"));
    }

    #[test]
    fn a_weak_or_ill_named_key_is_refused_and_a_good_one_stays_out_of_logs() {
        assert_eq!(
            SigningKey::new("k1", &[0; 31]).unwrap_err(),
            KeyError::TooShort(31)
        );
        assert_eq!(SigningKey::new("k;1", &[0; 32]).unwrap_err(), KeyError::Id);
        let shown = format!(
            "{:?}",
            SigningKey::new("k1", b"hush-hush-hush-hush-hush-hush-hush").unwrap()
        );
        assert!(!shown.contains("hush"), "{shown}");
    }

    proptest! {
        #[test]
        fn any_ticket_survives_the_trip(
            sale in "[a-z0-9-]{1,64}", user in "[!-~]{1,128}",
            shard: u32, generation: u64, quantity in 1..u32::MAX, deadline_ms: u64,
        ) {
            let ticket = Ticket {
                sale: SaleId::new(sale).unwrap(), user: UserId::new(user).unwrap(),
                shard, generation, quantity, deadline_ms,
            };
            prop_assert_eq!(Ticket::decode(&ticket.encode()).unwrap(), ticket);
        }

        #[test]
        fn no_text_panics_the_reader(text in ".{0,200}") {
            let _ = Ticket::decode(&text);
            let _ = SigningKey::new("k", &[1; 32]).unwrap().verify(&text, &text);
        }
    }
}
