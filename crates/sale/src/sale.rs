//! The catalogue of sales, which the origin publishes and gateways poll.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use weir_base::id::{SaleId, UserId};
use weir_base::key::{KEYS_MAX, KeyRing, SigningKey};

use crate::challenge::{BITS_MAX, BITS_MIN, Challenge};
use crate::shard::home_shard;
use crate::site::{fence_of, first_shard};

/// The maximum number of shards of a sale. It bounds a gateway's memory and polls per sale. One sale never needs 64
/// shards with one Redis core each.
pub const SHARDS_MAX: u32 = 64;

/// The maximum number of sales in one catalogue. It bounds a gateway's memory and the time of one poll.
pub const SALES_MAX: usize = 1_000;

/// The maximum number of units per user in one sale. It bounds a user's record on a shard.
pub const USER_CAP_MAX: u32 = 1_000;

/// The gateways' data on all sales, which the origin publishes in one Redis key as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// Grows with each change, so that gateways never return to an earlier version after a loss in Redis or a delayed
    /// write of an origin.
    #[serde(default)]
    pub version: u64,
    /// The operator's switch for all sales; see [`Catalogue::switch_of`].
    #[serde(default)]
    pub switch: SaleState,
    /// The keys that the origin accepts for claims; see [`Catalogue::accepts_key`]. Empty if the origin does not list them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim_keys: Vec<ClaimKey>,
    /// The current and upcoming sales, in any order.
    pub sales: Vec<Sale>,
}

/// The public identity of a key: its id and its [`SigningKey::fingerprint`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimKey {
    /// The key's id, which is part of each signature.
    pub id: String,
    /// Equal for keys with the same secret.
    pub fingerprint: String,
}

impl ClaimKey {
    /// The public identity of `key`.
    pub fn from_key(key: &SigningKey) -> Self {
        Self {
            id: key.id().into(),
            fingerprint: key.fingerprint(),
        }
    }

    /// The public identities of the keys in `ring`.
    pub fn all(ring: &KeyRing) -> Vec<Self> {
        let keys = ring.fingerprints().into_iter();
        keys.map(|(id, fingerprint)| Self {
            id: id.into(),
            fingerprint,
        })
        .collect()
    }
}

/// One sale for gateways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sale {
    /// The sale's id.
    pub id: SaleId,
    /// Start time, in milliseconds since the Unix epoch.
    pub starts_at_ms: u64,
    /// End time (exclusive), in milliseconds since the Unix epoch.
    pub ends_at_ms: u64,
    /// The number of shards: 1 to [`SHARDS_MAX`].
    pub shards: u32,
    /// The first of them: 0, or see [`site`](crate::site). Omitted if 0: older gateways reject a catalogue with this
    /// field.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_shard: u32,
    /// The maximum number of units per user, in orders and an open claim together: 1 to [`USER_CAP_MAX`].
    pub user_cap: u32,
    /// This sale's switch.
    pub state: SaleState,
    /// Whether buyers need a reservation.
    #[serde(default)]
    pub reservation: bool,
    /// Whether orders need an order token, see [`weir_base::headers::ORDER_TOKEN`].
    #[serde(default)]
    pub token: bool,
    /// The challenge before an order token. Omitted if none: older gateways do not have this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<Challenge>,
    /// Disabled checks.
    #[serde(default)]
    pub degrade: Degrade,
    /// The SKU of the sale. Omitted if none: older gateways reject a catalogue with this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// Whether its stock is not loaded in Redis yet: no claims are possible. Omitted if false: older gateways reject a
    /// catalogue with this field.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub cold: bool,
    /// The approximate stock in SQL at the time of publication. Gateways return `sold_out` only for [`Band::None`]; the
    /// other values are for display.
    #[serde(default)]
    pub band: Band,
    /// Whether SQL has lost orders of the sale: then it takes no claims until an operator has decided about them.
    /// Omitted if false: older gateways reject a catalogue with this field.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub paused: bool,
}

/// The operator's switch, for one sale or for all. The stricter (greater) one applies.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = State))]
pub enum SaleState {
    /// The sale runs within its time window.
    #[default]
    Open,
    /// Dry run: every request is decided and counted, and passes.
    Shadow,
    /// No new claims; existing claims can still become orders.
    Drain,
    /// No claims.
    Closed,
}

/// Checks that an operator has turned off for a sale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Degrade))]
pub struct Degrade {
    /// Users blocked by the risk check can also buy.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(default = false))]
    pub skip_risk: bool,
    /// Users without a reservation can also buy.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(default = false))]
    pub skip_reservation: bool,
    /// Every request gets a configured page; buying is impossible.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(default = false))]
    pub static_page: bool,
}

/// Approximate stock level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Band))]
pub enum Band {
    /// More than half.
    #[default]
    High,
    /// More than a tenth.
    Medium,
    /// A tenth or less.
    Low,
    /// All units are reserved; some may become free if orders are not paid in time.
    Reserved,
    /// Nothing.
    None,
}

impl SaleState {
    /// Every state, from the mildest to the strictest.
    pub const ALL: [Self; 4] = [Self::Open, Self::Shadow, Self::Drain, Self::Closed];

    /// The label in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Shadow => "shadow",
            Self::Drain => "drain",
            Self::Closed => "closed",
        }
    }
}

impl Band {
    /// The band of `remaining` units out of `total`; never [`Band::Reserved`].
    pub const fn from_remaining(remaining: u64, total: u64) -> Self {
        let (remaining, total) = (remaining as u128, total as u128);
        if remaining == 0 {
            return Self::None;
        }
        if remaining * 2 > total {
            return Self::High;
        }
        if remaining * 10 > total {
            return Self::Medium;
        }
        Self::Low
    }

    /// The label in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
            Self::Reserved => "reserved",
            Self::None => "none",
        }
    }
}

/// The position of an instant relative to a sale's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the start.
    NotStarted {
        /// Milliseconds until the start: at least 1.
        wait_ms: u64,
    },
    /// Within the window.
    Running,
    /// At or after the end.
    Ended,
}

/// Why a catalogue is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// More sales than [`SALES_MAX`].
    #[error("has {0} sales, the maximum is {SALES_MAX}")]
    TooManySales(usize),
    /// More keys than [`KEYS_MAX`].
    #[error("has {0} claim_keys, the maximum is {KEYS_MAX}")]
    TooManyKeys(usize),
    /// A sale's shard count is 0 or above [`SHARDS_MAX`].
    #[error("sale {0}: shards must be 1 to {SHARDS_MAX}")]
    Shards(SaleId),
    /// A sale's first shard is not the first one of a fence.
    #[error("sale {0}: first_shard must be a multiple of {SHARDS_MAX}")]
    FirstShard(SaleId),
    /// A sale's per-user cap is 0 or above [`USER_CAP_MAX`].
    #[error("sale {0}: user_cap must be 1 to {USER_CAP_MAX}")]
    UserCap(SaleId),
    /// A sale's challenge has values that gateways do not support.
    #[error("sale {0}: challenge.proof_of_work.bits must be {BITS_MIN} to {BITS_MAX}")]
    Challenge(SaleId),
    /// A sale ends before it starts.
    #[error("sale {0}: ends_at_ms must be after starts_at_ms")]
    Window(SaleId),
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Sale {
    /// The user's shard: see [`home_shard`].
    pub fn home_shard(&self, user: &UserId) -> u32 {
        self.first_shard + home_shard(user, self.shards)
    }

    /// The numbers of all shards of the sale at this site.
    pub fn shard_numbers(&self) -> Range<u32> {
        self.first_shard..self.first_shard.saturating_add(self.shards)
    }

    /// The position of `now_ms` relative to the window.
    pub fn phase(&self, now_ms: u64) -> Phase {
        if now_ms < self.starts_at_ms {
            let wait_ms = self.starts_at_ms - now_ms;
            return Phase::NotStarted { wait_ms };
        }
        if now_ms < self.ends_at_ms {
            return Phase::Running;
        }
        Phase::Ended
    }

    /// All errors of the sale.
    pub fn errors(&self) -> impl Iterator<Item = CatalogueError> {
        let has_shards = (1..=SHARDS_MAX).contains(&self.shards);
        let is_first = self.first_shard == first_shard(fence_of(self.first_shard));
        let has_cap = (1..=USER_CAP_MAX).contains(&self.user_cap);
        let has_window = self.starts_at_ms < self.ends_at_ms;
        let has_challenge = self.challenge.is_none_or(Challenge::is_valid);
        let error = |is_right: bool, error: fn(SaleId) -> CatalogueError| {
            (!is_right).then(|| error(self.id.clone()))
        };
        let errors = [
            error(has_shards, CatalogueError::Shards),
            error(is_first, CatalogueError::FirstShard),
            error(has_cap, CatalogueError::UserCap),
            error(has_window, CatalogueError::Window),
            error(has_challenge, CatalogueError::Challenge),
        ];
        errors.into_iter().flatten()
    }
}

impl Catalogue {
    /// Validates the catalogue, and sorts the sales so that [`Catalogue::find`] is fast. Of two entries with one id,
    /// the first remains.
    ///
    /// # Errors
    /// Names the invalid sale and the error.
    pub fn checked(mut self) -> Result<Self, CatalogueError> {
        if self.sales.len() > SALES_MAX {
            return Err(CatalogueError::TooManySales(self.sales.len()));
        }
        if self.claim_keys.len() > KEYS_MAX {
            return Err(CatalogueError::TooManyKeys(self.claim_keys.len()));
        }
        if let Some(error) = self.sales.iter().find_map(|sale| sale.errors().next()) {
            return Err(error);
        }
        self.sales.sort_by(|a, b| a.id.cmp(&b.id));
        self.sales.dedup_by(|later, first| later.id == first.id);
        Ok(self)
    }

    /// The effective switch of `sale`: the stricter of its own and the global one.
    pub fn switch_of(&self, sale: &Sale) -> SaleState {
        self.switch.max(sale.state)
    }

    /// Whether the origin accepts claims signed with `key`. True if the origin does not list its keys.
    pub fn accepts_key(&self, key: &ClaimKey) -> bool {
        self.claim_keys.is_empty() || self.claim_keys.contains(key)
    }

    /// The sale named `id`, in a catalogue from [`Catalogue::checked`].
    pub fn find(&self, id: &[u8]) -> Option<&Sale> {
        let index = self
            .sales
            .binary_search_by(|sale| sale.id.as_str().as_bytes().cmp(id))
            .ok()?;
        self.sales.get(index)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::vec;

    pub(crate) fn sale(id: &str) -> Sale {
        Sale {
            id: SaleId::new(id).unwrap(),
            starts_at_ms: 1_000,
            ends_at_ms: 2_000,
            shards: 4,
            first_shard: 0,
            user_cap: 1,
            state: SaleState::Open,
            reservation: false,
            token: false,
            challenge: None,
            degrade: Degrade::default(),
            sku: None,
            cold: false,
            band: Band::High,
            paused: false,
        }
    }

    pub(crate) fn catalogue(sales: Vec<Sale>) -> Catalogue {
        Catalogue {
            sales,
            ..Catalogue::default()
        }
    }

    #[test]
    fn sale_window_includes_its_start_and_excludes_its_end() {
        let sale = sale("s");
        assert_eq!(sale.phase(999), Phase::NotStarted { wait_ms: 1 });
        assert_eq!(sale.phase(1_000), Phase::Running);
        assert_eq!(sale.phase(1_999), Phase::Running);
        assert_eq!(sale.phase(2_000), Phase::Ended);
        assert_eq!(sale.phase(u64::MAX), Phase::Ended);
    }

    #[test]
    fn validated_catalogue_finds_only_its_own_sales() {
        let sales = vec![sale("c"), sale("a"), sale("b"), sale("a")];
        let catalogue = catalogue(sales).checked().unwrap();
        for id in ["a", "b", "c"] {
            assert_eq!(catalogue.find(id.as_bytes()).unwrap().id.as_str(), id);
        }
        assert_eq!(catalogue.find(b"d"), None);
        assert_eq!(catalogue.find(b"\xff"), None);
        assert_eq!(catalogue.sales.len(), 3);
    }

    #[test]
    fn catalogue_with_an_invalid_sale_is_refused_with_its_name() {
        let refused = |change: fn(&mut Sale)| {
            let mut bad = sale("bad");
            change(&mut bad);
            catalogue(vec![bad]).checked().unwrap_err()
        };
        let id = SaleId::new("bad").unwrap();
        assert_eq!(
            refused(|s| s.shards = 0),
            CatalogueError::Shards(id.clone())
        );
        assert_eq!(
            refused(|s| s.shards = 65),
            CatalogueError::Shards(id.clone())
        );
        assert_eq!(
            refused(|s| s.first_shard = 65),
            CatalogueError::FirstShard(id.clone())
        );
        assert_eq!(
            refused(|s| s.user_cap = 0),
            CatalogueError::UserCap(id.clone())
        );
        assert_eq!(
            refused(|s| s.user_cap = 1_001),
            CatalogueError::UserCap(id.clone())
        );
        assert_eq!(
            refused(|s| s.ends_at_ms = 1_000),
            CatalogueError::Window(id.clone())
        );
        assert_eq!(
            refused(|s| s.challenge = Some(Challenge::ProofOfWork { bits: 7 })),
            CatalogueError::Challenge(id)
        );
    }

    #[test]
    fn catalogue_with_too_many_sales_is_refused() {
        let of = |count: usize| catalogue(vec![sale("s"); count]).checked();
        assert!(of(SALES_MAX).is_ok());
        for count in [SALES_MAX + 1, SALES_MAX + 2] {
            assert_eq!(of(count), Err(CatalogueError::TooManySales(count)));
        }
    }

    #[test]
    fn catalogue_round_trips_as_json() {
        let catalogue = catalogue(vec![sale("s")]);
        let text = serde_json::to_string(&catalogue).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"version":0,"switch":"open","sales":[{"id":"s","starts_at_ms":1000,"ends_at_ms":2000,"#,
                r#""shards":4,"user_cap":1,"state":"open","reservation":false,"token":false,"#,
                r#""degrade":{"skip_risk":false,"skip_reservation":false,"static_page":false},"#,
                r#""band":"high"}]}"#
            )
        );
        assert_eq!(serde_json::from_str::<Catalogue>(&text).unwrap(), catalogue);
        assert!(serde_json::from_str::<Catalogue>(&text.replace("\"s\"", "\"{s}\"")).is_err());
    }

    #[test]
    fn shards_of_a_second_site_follow_those_of_its_fence() {
        let user = UserId::new("user-0").unwrap();
        let here = Sale {
            first_shard: 128,
            ..sale("s")
        };
        assert_eq!(here.shard_numbers(), 128..132);
        assert_eq!(here.home_shard(&user), 128 + sale("s").home_shard(&user));
        let text = serde_json::to_string(&here).unwrap();
        assert!(text.contains(r#""shards":4,"first_shard":128,"#), "{text}");
        assert_eq!(serde_json::from_str::<Sale>(&text).unwrap(), here);
    }

    #[test]
    fn claims_are_identified_by_key_id_and_key_secret() {
        let key = |id: &str, byte: u8| SigningKey::new(id, &[byte; 32]).unwrap();
        let ring = KeyRing::new(vec![key("new", 2), key("old", 1)]).unwrap();
        let mut catalogue = catalogue(vec![]);
        assert!(
            catalogue.accepts_key(&ClaimKey::from_key(&key("any", 9))),
            "old origins"
        );
        catalogue.claim_keys = ClaimKey::all(&ring);
        let text = serde_json::to_string(&catalogue).unwrap();
        assert_eq!(serde_json::from_str::<Catalogue>(&text).unwrap(), catalogue);
        for (id, byte, is_known) in [
            ("new", 2, true),
            ("old", 1, true),
            ("new", 1, false),
            ("other", 2, false),
            ("old", 3, false),
        ] {
            assert_eq!(
                catalogue.accepts_key(&ClaimKey::from_key(&key(id, byte))),
                is_known,
                "{id} {byte}"
            );
        }
        catalogue.claim_keys = vec![ClaimKey::from_key(&key("k", 1)); KEYS_MAX + 1];
        let refused = catalogue.checked().unwrap_err();
        assert_eq!(refused, CatalogueError::TooManyKeys(KEYS_MAX + 1));
    }

    #[test]
    fn omitted_catalogue_fields_get_their_defaults() {
        let text = r#"{"sales":[{"id":"s","starts_at_ms":1000,"ends_at_ms":2000,"shards":4,"user_cap":1,"state":"open"}]}"#;
        let read = serde_json::from_str::<Catalogue>(text).unwrap();
        assert_eq!(read, catalogue(vec![sale("s")]));
    }

    #[test]
    fn stricter_switch_wins_and_its_label_is_its_json() {
        for (index, state) in SaleState::ALL.into_iter().enumerate() {
            let text = serde_json::to_string(&state).unwrap();
            assert_eq!(text.trim_matches('"'), state.label());
            for (other_index, other) in SaleState::ALL.into_iter().enumerate() {
                let mut catalogue = catalogue(vec![Sale { state, ..sale("s") }]);
                catalogue.switch = other;
                let stricter = SaleState::ALL[index.max(other_index)];
                assert_eq!(catalogue.switch_of(&catalogue.sales[0]), stricter);
            }
        }
    }

    #[test]
    fn stock_bands_end_at_a_half_a_tenth_and_zero() {
        let bands =
            [51, 50, 11, 10, 1, 0].map(|remaining| Band::from_remaining(remaining, 100).label());
        assert_eq!(bands, ["high", "medium", "medium", "low", "low", "none"]);
        assert_eq!(Band::from_remaining(0, 0), Band::None);
        assert_eq!(Band::from_remaining(u64::MAX, u64::MAX), Band::High);
    }
}
