//! Prices. Weir does not transfer money: it stores the price with each order, and compares it with payments.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum price of one unit, in the currency's smallest unit. The total of an order stays exact in JSON numbers
/// (2^53).
pub const UNIT_AMOUNT_MAX: u64 = 1_000_000_000_000;

/// A currency as an ISO 4217 code: three capital letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Currency([u8; 3]);

/// The text is not three capital letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a currency must be three capital letters, such as EUR (ISO 4217)")]
pub struct CurrencyError;

impl Currency {
    /// The code.
    pub fn as_str(&self) -> &str {
        // The code is always ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl TryFrom<String> for Currency {
    type Error = CurrencyError;

    fn try_from(text: String) -> Result<Self, CurrencyError> {
        let letters = <[u8; 3]>::try_from(text.as_bytes()).map_err(|_| CurrencyError)?;
        match letters.iter().all(u8::is_ascii_uppercase) {
            true => Ok(Self(letters)),
            false => Err(CurrencyError),
        }
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> Self {
        currency.as_str().to_owned()
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Price per unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// In the currency's smallest unit, such as cents. 0 is free.
    #[schema(maximum = 1_000_000_000_000_u64)]
    pub unit_amount: u64,
    /// ISO 4217 code, such as EUR.
    #[schema(value_type = String, pattern = "^[A-Z]{3}$")]
    pub currency: Currency,
}

impl Price {
    /// Total price of `units` units.
    pub fn times(self, units: u32) -> Money {
        Money {
            amount: self.unit_amount.saturating_mul(units.into()),
            currency: self.currency,
        }
    }
}

/// An amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Money {
    /// In the currency's smallest unit.
    pub amount: u64,
    /// The currency.
    pub currency: Currency,
}

/// Price of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OrderPrice {
    /// Price per unit at the time of the order, in the currency's smallest unit.
    unit_amount: u64,
    /// Total price.
    amount: u64,
    /// ISO 4217 code, such as EUR.
    #[schema(value_type = String, pattern = "^[A-Z]{3}$")]
    currency: Currency,
}

impl OrderPrice {
    /// The price of `units` units.
    pub fn new(price: Price, units: u32) -> Self {
        Self {
            unit_amount: price.unit_amount,
            amount: price.times(units).amount,
            currency: price.currency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn currency_is_three_capital_letters() {
        let read = |text: &str| Currency::try_from(text.to_owned());
        assert_eq!(read("EUR").unwrap().as_str(), "EUR");
        for bad in ["", "EU", "EURO", "eur", "E1R", "E R", "ÄU"] {
            assert_eq!(read(bad), Err(CurrencyError), "{bad}");
        }
    }

    #[test]
    fn highest_order_price_is_exact_in_json() {
        let currency = Currency::try_from("JPY".to_owned()).unwrap();
        let price = Price {
            unit_amount: UNIT_AMOUNT_MAX,
            currency,
        };
        let dearest = price.times(weir_sale::sale::USER_CAP_MAX).amount;
        assert_eq!(dearest, UNIT_AMOUNT_MAX * 1_000);
        assert!(dearest < 1 << 53);
    }
}
