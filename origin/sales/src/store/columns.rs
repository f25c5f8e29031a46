//! The columns of a sale, each defined once.

use sqlx::Error;
use weir_base::id::SaleId;

use crate::model::price::{Currency, Price};
use crate::model::sale::{Payment, SaleFields, SaleGroup, Window};
use weir_origin_core::sql::{Codec, Json, Plain, Row, Statement, damaged};

weir_origin_core::columns!(SaleFields {
    title: Plain["title"],
    total: Plain["total"],
    user_cap: Plain["user_cap"],
    starts_at_ms: Plain["starts_at_ms"],
    ends_at_ms: Plain["ends_at_ms"],
    token: Plain["token"],
    challenge: Json["challenge"],
    sku: Plain["sku"],
    price: PriceColumns["unit_amount", "currency"],
    group: GroupColumns["group_id", "group_cap"],
    reservation: WindowColumns["reserve_from_ms", "reserve_until_ms"],
    payment: PaymentColumns["payment", "pay_within_ms"],
    listed: Plain["listed"],
    warm_before_ms: Plain["warm_before_ms"],
});

/// Amount and currency of a sale or an order; both NULL: no price.
pub(super) struct PriceColumns;

impl Codec<Option<Price>> for PriceColumns {
    fn bind<'a>(price: &'a Option<Price>, statement: Statement<'a>) -> Statement<'a> {
        let price = price.as_ref();
        statement
            .maybe(price.map(|price| price.unit_amount))
            .maybe_text(price.map(|price| price.currency.as_str()))
    }

    fn read(row: &Row, _: &[&str]) -> Result<Option<Price>, Error> {
        let (unit_amount, currency) = (row.maybe("unit_amount")?, row.maybe_text("currency")?);
        let Some((unit_amount, currency)) = unit_amount.zip(currency) else {
            return Ok(None);
        };
        let currency = Currency::try_from(currency).map_err(|error| damaged("currency", error))?;
        Ok(Some(Price {
            unit_amount,
            currency,
        }))
    }
}

/// Id and limit per user of a group; both NULL: no group.
struct GroupColumns;

impl Codec<Option<SaleGroup>> for GroupColumns {
    fn bind<'a>(group: &'a Option<SaleGroup>, statement: Statement<'a>) -> Statement<'a> {
        let group = group.as_ref();
        statement
            .maybe_text(group.map(|group| group.id.as_str()))
            .maybe(group.map(|group| group.user_cap.into()))
    }

    fn read(row: &Row, _: &[&str]) -> Result<Option<SaleGroup>, Error> {
        let Some(id) = row.maybe_text("group_id")? else {
            return Ok(None);
        };
        let id = SaleId::new(id).map_err(|error| damaged("group_id", error))?;
        let user_cap = row.maybe("group_cap")?.unwrap_or_default();
        let user_cap = u32::try_from(user_cap).map_err(|error| damaged("group_cap", error))?;
        Ok(Some(SaleGroup { id, user_cap }))
    }
}

/// Start and end; both NULL: no reservation is needed.
struct WindowColumns;

impl Codec<Option<Window>> for WindowColumns {
    fn bind<'a>(window: &'a Option<Window>, statement: Statement<'a>) -> Statement<'a> {
        statement
            .maybe(window.map(|window| window.from_ms))
            .maybe(window.map(|window| window.until_ms))
    }

    fn read(row: &Row, _: &[&str]) -> Result<Option<Window>, Error> {
        let from_ms = row.maybe("reserve_from_ms")?;
        let window = from_ms.zip(row.maybe("reserve_until_ms")?);
        Ok(window.map(|(from_ms, until_ms)| Window { from_ms, until_ms }))
    }
}

/// The payment type, and the time to pay of holds.
struct PaymentColumns;

impl Codec<Payment> for PaymentColumns {
    fn bind<'a>(payment: &'a Payment, statement: Statement<'a>) -> Statement<'a> {
        let (word, pay_within_ms) = match *payment {
            Payment::AtOrder => ("at_order", None),
            Payment::Hold { pay_within_ms } => ("hold", Some(pay_within_ms)),
            Payment::AtPayment => ("at_payment", None),
        };
        statement.text(word).maybe(pay_within_ms)
    }

    fn read(row: &Row, _: &[&str]) -> Result<Payment, Error> {
        match (row.text("payment")?.as_str(), row.maybe("pay_within_ms")?) {
            ("at_order", None) => Ok(Payment::AtOrder),
            ("hold", Some(pay_within_ms)) => Ok(Payment::Hold { pay_within_ms }),
            ("at_payment", None) => Ok(Payment::AtPayment),
            _ => Err(damaged("payment", "is not a payment method")),
        }
    }
}
