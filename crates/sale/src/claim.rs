//! The claim ticket: the gateway's signed message to the origin about a granted request.
//!
//! ```text
//! x-weir-claim:           v1;<sale>;<shard>;<generation>;<quantity>;<deadline_ms>;<user>
//! x-weir-claim-signature: <key id>;<HMAC-SHA256 of the claim header's bytes, in hex>
//! ```
//!
//! The user is the last field because a user's name may contain a `;`.

use alloc::format;
use alloc::string::String;
use core::fmt;

use weir_base::id::{SaleId, UserId};
use weir_base::key::SignatureError;

/// A user's claim on units of stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The sale.
    pub sale: SaleId,
    /// The user's home shard, where the claim is recorded.
    pub shard: u32,
    /// Identifies the claim among all claims of the shard, earlier or later.
    pub generation: u64,
    /// The number of claimed units: at least 1.
    pub quantity: u32,
    /// When the claim may be released, in milliseconds since the Unix epoch.
    pub deadline_ms: u64,
    /// The user.
    pub user: UserId,
}

/// A claim's id in SQL, and the number of its order: `<sale>.<shard>.<generation>`, unique because a generation is
/// unique within its shard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(String);

/// Why a ticket is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// The claim header does not have the documented form.
    #[error("the claim is malformed")]
    Malformed,
    /// The signature header does not have the documented form.
    #[error("the claim's signature is malformed")]
    SignatureMalformed,
    /// The ring has no key with this id.
    #[error("the claim is signed with an unknown key")]
    UnknownKey,
    /// The signature does not match the claim.
    #[error("the claim's signature is wrong")]
    WrongSignature,
}

impl From<SignatureError> for TicketError {
    fn from(error: SignatureError) -> Self {
        match error {
            SignatureError::Malformed => Self::SignatureMalformed,
            SignatureError::UnknownKey => Self::UnknownKey,
            SignatureError::Wrong => Self::WrongSignature,
        }
    }
}

impl Ticket {
    const VERSION: &str = "v1";

    /// The maximum length of a header without the names: the version, two 32-bit and two 64-bit numbers, and six
    /// semicolons.
    const NUMBERS_LEN_MAX: usize = Self::VERSION.len() + 2 * 10 + 2 * 20 + 6;

    /// The claim's id.
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
        let number = |text: &mut String, number: u64| {
            text.push_str(itoa::Buffer::new().format(number));
            text.push(';');
        };
        // `concat` costs four times as much.
        let mut text = String::with_capacity(
            Self::NUMBERS_LEN_MAX + sale.as_str().len() + user.as_str().len(),
        );
        text.push_str(Self::VERSION);
        text.push(';');
        text.push_str(sale.as_str());
        text.push(';');
        number(&mut text, u64::from(*shard));
        number(&mut text, *generation);
        number(&mut text, u64::from(*quantity));
        number(&mut text, *deadline_ms);
        text.push_str(user.as_str());
        text
    }

    /// Decodes a claim header after its signature was verified.
    ///
    /// # Errors
    /// [`TicketError::Malformed`] for any text that [`Ticket::encode`] does not write.
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
        // Each ticket has one spelling: no `+3`, no `007`.
        (ticket.quantity > 0 && ticket.encode() == claim).then_some(ticket)
    }
}

impl ClaimId {
    /// The id of the claim with this generation.
    pub fn new(sale: &SaleId, shard: u32, generation: u64) -> Self {
        Self(format!("{sale}.{shard}.{generation}"))
    }

    /// The id as text.
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
    use crate::keys::key;
    use proptest::prelude::*;
    use weir_base::key::SigningKey;

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

    #[test]
    fn claim_ticket_round_trips_through_its_text() {
        let text = ticket().encode();
        assert_eq!(text, "v1;sale-1;3;1700000000123;1;1700000030123;alice;bob");
        assert_eq!(Ticket::decode(&text).unwrap(), ticket());
        assert_eq!(ticket().claim_id().as_str(), "sale-1.3.1700000000123");
        assert_eq!(format!("{}", ticket().claim_id()), "sale-1.3.1700000000123");
    }

    #[test]
    fn malformed_claim_ticket_is_refused() {
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
    fn claim_signature_is_bound_to_its_key_and_claim() {
        let claim = ticket().encode();
        let signature = key("k1", 7).sign(&claim);
        assert_eq!(key("k1", 7).verify(&claim, &signature), Ok(()));
        assert_eq!(
            key("k1", 8).verify(&claim, &signature),
            Err(SignatureError::Wrong)
        );
        assert_eq!(
            key("k2", 7).verify(&claim, &signature),
            Err(SignatureError::UnknownKey)
        );
        let other = claim.replace("alice", "carol");
        assert_eq!(
            key("k1", 7).verify(&other, &signature),
            Err(SignatureError::Wrong)
        );
        let short = &signature[..signature.len() - 2];
        assert_eq!(
            key("k1", 7).verify(&claim, short),
            Err(SignatureError::Wrong)
        );
        for bad in ["", "k1", "k1;zz", "k1;abc"] {
            let refused = key("k1", 7).verify(&claim, bad);
            assert_eq!(refused, Err(SignatureError::Malformed), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_claim_ticket_round_trips(
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
