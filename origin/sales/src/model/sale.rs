//! Fields of a sale, and their validation.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::openapi::schema::{
    AdditionalProperties, KnownFormat, Object, OneOf, Schema, SchemaFormat, Type,
};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};
use weir_base::id::SaleId;
use weir_sale::challenge::Challenge;
use weir_sale::sale::{Band, CatalogueError, Degrade, Sale, SaleState};

use crate::model::payload::check_schema;
use crate::model::price::{Price, UNIT_AMOUNT_MAX};
use weir_origin_core::api::words;
use weir_origin_core::http::shared_members;
use weir_origin_core::tenants::TenantName;

/// Maximum number of units per sale: one billion. Sums over all shards stay exact in Lua numbers (2^53).
pub const TOTAL_MAX: u64 = 1_000_000_000;

/// Maximum length of a title, in characters.
pub const TITLE_LEN_MAX: usize = 200;

/// Maximum length of a SKU, in characters.
pub const SKU_LEN_MAX: usize = 64;

/// Latest accepted time: the end of the year 9999. Later ones are errors, such as microseconds instead of milliseconds.
pub const INSTANT_MS_MAX: u64 = 253_402_300_799_999;

/// Maximum payment deadline: 30 days. Longer ones are errors.
pub const PAY_WITHIN_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1000;

/// Maximum number of winners of a draw.
pub const WINNERS_MAX: u64 = 1_000_000;

/// Default warm-up before the start, in milliseconds: five minutes, in which operators can fix problems.
pub const WARM_BEFORE_MS: u64 = 5 * 60 * 1000;

#[expect(clippy::unnecessary_wraps, reason = "serde wants the field's type")]
fn warm_before_ms() -> Option<u64> {
    Some(WARM_BEFORE_MS)
}

/// A new sale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewSale {
    /// Permanent id.
    #[schema(value_type = String, min_length = 1, max_length = 64)]
    pub id: SaleId,
    /// Number of stock shards in Redis.
    #[schema(minimum = 1, maximum = 64)]
    pub shards: u32,
    /// Fields shared by requests, SQL and views.
    #[serde(flatten, deserialize_with = "shared_members")]
    pub fields: SaleFields,
    /// Draw of winners among the reservations, which must then end by `starts_at_ms`; null: everyone with a reservation
    /// can buy.
    #[serde(default)]
    pub draw: Option<DrawRules>,
    /// JSON Schema of the order body, at most 8 KiB, without external references; null: none.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub payload_schema: Option<Value>,
}

/// Fields of a sale, shared by requests, SQL and views. Add a new field here and in `store/columns.rs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SaleFields {
    /// Display name, without control characters.
    #[schema(min_length = 1, max_length = 200)]
    pub title: String,
    /// Units to sell; 0: sold out from the start. For a stored sale: initial units, plus added, minus withdrawn ones.
    #[schema(maximum = 1_000_000_000)]
    pub total: u64,
    /// Limit of units per user.
    #[schema(minimum = 1, maximum = 1000)]
    pub user_cap: u32,
    /// Start time, in milliseconds since the Unix epoch.
    #[schema(maximum = 253_402_300_799_999_u64)]
    pub starts_at_ms: u64,
    /// End time (exclusive), in milliseconds since the Unix epoch.
    #[schema(minimum = 1, maximum = 253_402_300_799_999_u64)]
    pub ends_at_ms: u64,
    /// Whether orders need an order token.
    #[serde(default)]
    #[schema(default = false)]
    pub token: bool,
    /// Challenge before users get an order token; requires `token`. null: none.
    #[serde(default)]
    #[schema(default = json!(null))]
    pub challenge: Option<Challenge>,
    /// SKU, without control characters; null: none.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 64, default = json!(null))]
    pub sku: Option<String>,
    /// Price per unit, stored with each order; null: none.
    #[serde(default)]
    #[schema(default = json!(null))]
    pub price: Option<Price>,
    /// Group of sales with a shared limit; null: none.
    #[serde(default)]
    #[schema(default = json!(null))]
    pub group: Option<SaleGroup>,
    /// Reservation period; then only users with a reservation can buy. null: no reservation is needed.
    #[serde(default)]
    #[schema(default = json!(null))]
    pub reservation: Option<Window>,
    /// When units are deducted, and how long they are held.
    #[serde(default)]
    #[schema(default = json!("at_order"))]
    pub payment: Payment,
    /// Whether the public sale list shows it.
    #[serde(default)]
    #[schema(default = false)]
    pub listed: bool,
    /// Automatic warm-up before the start, in milliseconds; null: only manual.
    #[serde(default = "warm_before_ms")]
    #[schema(default = 300_000)]
    pub warm_before_ms: Option<u64>,
}

/// A group of sales with a shared limit per user, such as the sizes of one shoe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SaleGroup {
    /// Group id; all sales with this id belong to the group.
    #[schema(value_type = String, pattern = "^[a-z0-9-]{1,64}$")]
    pub id: SaleId,
    /// Limit of units per user over all sales of the group, for an order in this sale.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub user_cap: u32,
}

/// Maximum limit per user of a group.
pub const GROUP_CAP_MAX: u32 = 1_000_000;

/// A period, including its start and excluding its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Start, in milliseconds since the Unix epoch.
    #[schema(maximum = 253_402_300_799_999_u64)]
    pub from_ms: u64,
    /// End (exclusive), in milliseconds since the Unix epoch.
    #[schema(maximum = 253_402_300_799_999_u64)]
    pub until_ms: u64,
}

/// A draw among the reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrawRules {
    /// Number of winners.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub winners: u64,
}

/// When units are deducted from the stock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Payment {
    /// When the order is created; the order holds them until it is paid or cancelled. Unpaid orders block these units
    /// for other buyers.
    #[default]
    AtOrder,
    /// When the order is created. An order that is not paid in time expires, and its units return to stock.
    Hold {
        /// Time to pay after the order, in milliseconds: 1 to [`PAY_WITHIN_MS_MAX`].
        pay_within_ms: u64,
    },
    /// When the order is paid. No unit is held unpaid, but the sale may be sold out when a user pays.
    AtPayment,
}

/// Gives each variant of [`Payment`] a schema name, which generated clients use.
impl PartialSchema for Payment {
    fn schema() -> RefOr<Schema> {
        OneOf::builder()
            .item(Ref::from_schema_name("PayTime"))
            .item(Ref::from_schema_name("PayHold"))
            .description(Some(
                "When an order takes its units: `at_order`: when it is created, until it is cancelled; `at_payment`: when it is paid; `hold`: when it is created, until the payment deadline.",
            ))
            .into()
    }
}

impl ToSchema for Payment {
    fn name() -> Cow<'static, str> {
        "PayTerms".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        let object = |description, member, schema: RefOr<Schema>| {
            Object::builder()
                .description(Some(description))
                .property(member, schema)
                .required(member)
                .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        };
        let time = words("When an order takes its units.", ["at_order", "at_payment"]);
        let within = Object::builder()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(1))
            .maximum(Some(PAY_WITHIN_MS_MAX))
            .description(Some("Time to pay after the order, in milliseconds."));
        let hold_time = object("How long units are held.", "pay_within_ms", within.into());
        let hold = Ref::from_schema_name("PayHoldTime");
        let hold = object(
            "An order takes its units when it is created, and expires if it is not paid in time.",
            "hold",
            hold.into(),
        );
        schemas.extend([
            ("PayTime".to_owned(), time.into()),
            ("PayHold".to_owned(), hold.into()),
            ("PayHoldTime".to_owned(), hold_time.into()),
        ]);
    }
}

/// Why a sale is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NewSaleError {
    /// The title is empty, too long, or contains control characters.
    #[error("title: must be 1 to {TITLE_LEN_MAX} characters without control characters")]
    Title,
    /// More units than [`TOTAL_MAX`].
    #[error("total: must be at most {TOTAL_MAX}")]
    Total,
    /// The sale ends after [`INSTANT_MS_MAX`].
    #[error("ends_at_ms: must be before the year 10000, in milliseconds since the Unix epoch")]
    TooLate,
    /// The reservation period is empty, ends after the sale, or ends after [`INSTANT_MS_MAX`].
    #[error("reservation: until_ms must be after from_ms and not after the sale's ends_at_ms")]
    Reservation,
    /// The time to pay is 0 or above [`PAY_WITHIN_MS_MAX`].
    #[error("payment: pay_within_ms must be 1 to {PAY_WITHIN_MS_MAX}")]
    PayWithin,
    /// A challenge requires order tokens, but the sale does not use them.
    #[error("challenge: needs token, because the challenge guards order tokens")]
    Challenge,
    /// The SKU is empty, too long, or contains control characters.
    #[error("sku: must be 1 to {SKU_LEN_MAX} characters without control characters")]
    Sku,
    /// The price is above [`UNIT_AMOUNT_MAX`].
    #[error("price: unit_amount must be at most {UNIT_AMOUNT_MAX}")]
    Price,
    /// The limit per user of the group is 0 or above [`GROUP_CAP_MAX`].
    #[error("group: user_cap must be 1 to {GROUP_CAP_MAX}")]
    GroupCap,
    /// The group belongs to another tenant than the sale, or only one of the two belongs to a tenant.
    #[error("group: must belong to the sale's tenant: both names must be equal up to --")]
    GroupOfOthers,
    /// The draw needs reservations that end before the sale starts, and 1 to [`WINNERS_MAX`] winners.
    #[error("draw: winners must be 1 to {WINNERS_MAX}, and reservations must end by starts_at_ms")]
    Draw,
    /// The payload schema is invalid or too long.
    #[error("payload_schema: {0}")]
    PayloadSchema(String),
    /// The warm-up would start before the Unix epoch.
    #[error("warm_before_ms: must be at most {INSTANT_MS_MAX}")]
    WarmBefore,
    /// Gateways would reject the sale.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
}

impl NewSaleError {
    /// Name of the invalid field.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::Total => "total",
            Self::TooLate | Self::Catalogue(CatalogueError::Window(_)) => "ends_at_ms",
            Self::Reservation => "reservation",
            Self::PayWithin => "payment",
            Self::Sku => "sku",
            Self::Price => "price",
            Self::GroupCap | Self::GroupOfOthers => "group",
            Self::Draw => "draw",
            Self::PayloadSchema(_) => "payload_schema",
            Self::WarmBefore => "warm_before_ms",
            Self::Challenge | Self::Catalogue(CatalogueError::Challenge(_)) => "challenge",
            Self::Catalogue(CatalogueError::Shards(_)) => "shards",
            Self::Catalogue(CatalogueError::UserCap(_)) => "user_cap",
            Self::Catalogue(
                CatalogueError::TooManySales(_)
                | CatalogueError::TooManyKeys(_)
                // The origin numbers the shards.
                | CatalogueError::FirstShard(_),
            ) => "",
        }
    }
}

impl NewSale {
    /// Validates what the types cannot express.
    ///
    /// # Errors
    /// All errors, each with its field.
    pub fn check(&self) -> Result<(), Vec<NewSaleError>> {
        // Use the gateways' own validation, so that the rules exist only once.
        let gateways = self.as_gateways_see_it();
        let gateways = gateways.errors().map(NewSaleError::Catalogue);
        let errors: Vec<NewSaleError> = self.own_errors().chain(gateways).collect();
        match errors.is_empty() {
            true => Ok(()),
            false => Err(errors),
        }
    }

    fn own_errors(&self) -> impl Iterator<Item = NewSaleError> {
        let has_title = is_line(&self.fields.title, TITLE_LEN_MAX);
        let sku = self.fields.sku.as_deref();
        let has_sku = sku.is_none_or(|sku| is_line(sku, SKU_LEN_MAX));
        let is_priced = self
            .fields
            .price
            .is_none_or(|price| price.unit_amount <= UNIT_AMOUNT_MAX);
        let has_time_to_reserve = self.fields.reservation.is_none_or(|window| {
            window.from_ms < window.until_ms && window.until_ms <= self.fields.ends_at_ms
        });
        let has_time_to_pay = match self.fields.payment {
            Payment::Hold { pay_within_ms } => (1..=PAY_WITHIN_MS_MAX).contains(&pay_within_ms),
            _ => true,
        };
        let can_draw = self.draw.is_none_or(|draw| {
            (1..=WINNERS_MAX).contains(&draw.winners)
                && self
                    .fields
                    .reservation
                    .is_some_and(|window| window.until_ms <= self.fields.starts_at_ms)
        });
        let group = self.fields.group.as_ref();
        let has_cap = group.is_none_or(|group| (1..=GROUP_CAP_MAX).contains(&group.user_cap));
        let is_own = group.is_none_or(|group| {
            TenantName::owner_of(group.id.as_str()) == TenantName::owner_of(self.id.as_str())
        });
        let rules = [
            (has_cap, NewSaleError::GroupCap),
            (is_own, NewSaleError::GroupOfOthers),
            (can_draw, NewSaleError::Draw),
            (
                self.fields.token || self.fields.challenge.is_none(),
                NewSaleError::Challenge,
            ),
            (has_title, NewSaleError::Title),
            (has_sku, NewSaleError::Sku),
            (is_priced, NewSaleError::Price),
            (self.fields.total <= TOTAL_MAX, NewSaleError::Total),
            (
                self.fields.ends_at_ms <= INSTANT_MS_MAX,
                NewSaleError::TooLate,
            ),
            (has_time_to_reserve, NewSaleError::Reservation),
            (has_time_to_pay, NewSaleError::PayWithin),
            (
                self.fields.warm_before_ms <= Some(INSTANT_MS_MAX),
                NewSaleError::WarmBefore,
            ),
        ];
        let broken = rules.into_iter().filter(|(is_kept, _)| !is_kept);
        let schema = self.payload_schema.as_ref().map(check_schema);
        let schema = schema.and_then(|checked| checked.err().map(NewSaleError::PayloadSchema));
        broken.map(|(_, error)| error).chain(schema)
    }

    fn as_gateways_see_it(&self) -> Sale {
        Sale {
            id: self.id.clone(),
            starts_at_ms: self.fields.starts_at_ms,
            ends_at_ms: self.fields.ends_at_ms,
            shards: self.shards,
            first_shard: 0,
            user_cap: self.fields.user_cap,
            state: SaleState::Open,
            reservation: false,
            token: false,
            challenge: self.fields.challenge,
            degrade: Degrade::default(),
            sku: None,
            cold: false,
            band: Band::default(),
            paused: false,
        }
    }
}

fn is_line(text: &str, len_max: usize) -> bool {
    (1..=len_max).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::price::Currency;

    fn group(id: &str, user_cap: u32) -> Option<SaleGroup> {
        let id = SaleId::new(id).unwrap();
        Some(SaleGroup { id, user_cap })
    }

    fn price(unit_amount: u64) -> Price {
        let currency = Currency::try_from("EUR".to_owned()).unwrap();
        Price {
            unit_amount,
            currency,
        }
    }

    fn sale() -> NewSale {
        NewSale {
            id: SaleId::new("demo").unwrap(),
            shards: 64,
            fields: SaleFields {
                title: "Ein Ä für ein U".to_owned(),
                total: TOTAL_MAX,
                user_cap: 1,
                starts_at_ms: 0,
                ends_at_ms: INSTANT_MS_MAX,
                token: false,
                challenge: None,
                sku: None,
                price: None,
                group: None,
                reservation: None,
                payment: Payment::AtOrder,
                listed: false,
                warm_before_ms: None,
            },
            draw: None,
            payload_schema: None,
        }
    }

    #[test]
    fn sale_at_its_limits_is_accepted() {
        assert_eq!(sale().check(), Ok(()));
        let smallest = NewSale {
            shards: 1,
            fields: SaleFields {
                title: "x".to_owned(),
                total: 0,
                ends_at_ms: 1,
                ..sale().fields
            },
            ..sale()
        };
        assert_eq!(smallest.check(), Ok(()));
    }

    #[test]
    fn sale_beyond_a_limit_is_refused_by_field() {
        let check = |change: fn(&mut NewSale), expected: &str| {
            let mut bad = sale();
            change(&mut bad);
            let errors = bad.check().unwrap_err();
            assert_eq!(errors.len(), 1, "{errors:?}");
            let (field, error) = (errors[0].field(), errors[0].to_string());
            assert!(error.contains(expected), "{error}");
            assert!(error.contains(field), "{field}: {error}");
        };
        check(|s| s.fields.title = String::new(), "title: must be");
        check(|s| s.fields.title = "ä".repeat(201), "title: must be");
        check(|s| s.fields.title = "a\nb".to_owned(), "title: must be");
        check(|s| s.fields.total += 1, "total: must be at most 1000000000");
        check(|s| s.fields.ends_at_ms += 1, "ends_at_ms: must be before");
        check(
            |s| {
                s.fields.reservation = Some(Window {
                    from_ms: 5,
                    until_ms: 5,
                })
            },
            "reservation: until_ms must be after",
        );
        check(
            |s| {
                s.fields.reservation = Some(Window {
                    from_ms: 5,
                    until_ms: INSTANT_MS_MAX + 1,
                });
            },
            "reservation: until_ms must be",
        );
        check(
            |s| s.fields.payment = Payment::Hold { pay_within_ms: 0 },
            "payment: pay_within_ms must be 1 to",
        );
        check(
            |s| s.fields.warm_before_ms = Some(u64::MAX),
            "warm_before_ms:",
        );
        check(
            |s| s.payload_schema = Some(serde_json::json!({"type": "colour"})),
            "payload_schema:",
        );
        check(
            |s| s.draw = Some(DrawRules { winners: 1 }),
            "draw: winners must be",
        );
        check(
            |s| s.fields.sku = Some(String::new()),
            "sku: must be 1 to 64",
        );
        check(|s| s.fields.sku = Some("a\tb".to_owned()), "sku: must be");
        check(
            |s| s.fields.price = Some(price(UNIT_AMOUNT_MAX + 1)),
            "price: unit_amount must be at most",
        );
        check(
            |s| s.fields.group = group("g", 0),
            "group: user_cap must be",
        );
        check(
            |s| s.fields.group = group("g", GROUP_CAP_MAX + 1),
            "group: user_cap must be",
        );
        check(
            |s| s.fields.group = group("acme--g", 1),
            "group: must belong to the sale's tenant",
        );
        check(
            |s| s.fields.challenge = Some(Challenge::Captcha {}),
            "challenge: needs token",
        );
        check(
            |s| {
                s.fields.token = true;
                s.fields.challenge = Some(Challenge::ProofOfWork { bits: 27 });
            },
            "challenge.proof_of_work.bits must be 8 to 26",
        );
        check(|s| s.shards = 0, "shards must be 1 to 64");
        check(|s| s.shards = 65, "shards must be 1 to 64");
        check(|s| s.fields.user_cap = 0, "user_cap must be 1 to 1000");
        check(
            |s| s.fields.starts_at_ms = s.fields.ends_at_ms,
            "must be after starts_at_ms",
        );
    }

    #[test]
    fn all_sale_errors_are_reported_at_once() {
        let bad = NewSale {
            shards: 0,
            fields: SaleFields {
                title: String::new(),
                total: TOTAL_MAX + 1,
                user_cap: 0,
                payment: Payment::Hold { pay_within_ms: 0 },
                starts_at_ms: INSTANT_MS_MAX,
                warm_before_ms: Some(u64::MAX),
                ..sale().fields
            },
            ..sale()
        };
        let errors = bad.check().unwrap_err();
        let fields: Vec<&str> = errors.iter().map(NewSaleError::field).collect();
        let expected = "title total payment warm_before_ms shards user_cap ends_at_ms";
        assert_eq!(fields.join(" "), expected);
    }

    #[test]
    fn omitted_sale_fields_have_defaults_and_payments_are_named() {
        let json = |extra: &str| {
            let text = format!(
                r#"{{"id":"s","title":"S","total":1,"shards":1,"user_cap":1,"starts_at_ms":1,"ends_at_ms":2{extra}}}"#
            );
            serde_json::from_str::<NewSale>(&text)
        };
        let plain = json("").unwrap();
        assert_eq!(
            (plain.fields.payment, plain.fields.reservation),
            (Payment::AtOrder, None)
        );
        let hold = json(r#","payment":{"hold":{"pay_within_ms":9}}"#).unwrap();
        assert_eq!(hold.fields.payment, Payment::Hold { pay_within_ms: 9 });
        let paid = json(r#","payment":"at_payment","reservation":{"from_ms":0,"until_ms":2}"#);
        assert_eq!(paid.unwrap().fields.payment, Payment::AtPayment);
        assert!(json(r#","payment":"later""#).is_err());
    }
}
