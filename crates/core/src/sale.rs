//! What gateways know of sales: the catalogue, which the origin publishes and gateways poll.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::id::SaleId;

/// The most shards that one sale's stock is spread over. Bounds what a gateway remembers and
/// polls for a sale; 64 shards of one Redis core each are far beyond one sale's need.
pub const SHARDS_MAX: u32 = 64;

/// The most sales in one catalogue. Bounds a gateway's memory and the time of one poll.
pub const SALES_MAX: usize = 1_000;

/// All that gateways need to know, published by the origin under one Redis key as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// The sales that may be asked for now or soon, in any order.
    pub sales: Vec<Sale>,
}

/// One sale as gateways see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sale {
    /// The sale's name.
    pub id: SaleId,
    /// First instant at which claims are taken, in milliseconds since the Unix epoch.
    pub starts_at_ms: u64,
    /// First instant at which claims are taken no more, in milliseconds since the Unix epoch.
    pub ends_at_ms: u64,
    /// Over how many shards the stock is spread: 1 to [`SHARDS_MAX`].
    pub shards: u32,
    /// The most units one user may have, orders and open claim together: at least 1.
    pub user_cap: u32,
    /// Whether an operator lets the sale run at all.
    pub state: SaleState,
}

/// The operator's switch of one sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SaleState {
    /// Runs within its window.
    Open,
    /// Takes no claims, whatever the time.
    Closed,
}

/// Where an instant lies relative to a sale's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the start, with the milliseconds still to wait.
    NotStarted {
        /// Milliseconds until the start: at least 1.
        wait_ms: u64,
    },
    /// Within the window.
    Running,
    /// At or after the end.
    Ended,
}

/// Why a catalogue was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// More sales than [`SALES_MAX`].
    #[error("holds {0} sales, more than {SALES_MAX}")]
    TooManySales(usize),
    /// A sale's shard count is 0 or above [`SHARDS_MAX`].
    #[error("sale {0}: shards must be 1 to {SHARDS_MAX}")]
    Shards(SaleId),
    /// A sale's per-user cap is 0.
    #[error("sale {0}: user_cap must be at least 1")]
    UserCap(SaleId),
    /// A sale ends before it starts.
    #[error("sale {0}: ends_at_ms must be after starts_at_ms")]
    Window(SaleId),
}

impl Sale {
    /// Where `now_ms` lies relative to the window.
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

    fn check(&self) -> Result<(), CatalogueError> {
        if !(1..=SHARDS_MAX).contains(&self.shards) {
            return Err(CatalogueError::Shards(self.id.clone()));
        }
        if self.user_cap == 0 {
            return Err(CatalogueError::UserCap(self.id.clone()));
        }
        if self.ends_at_ms <= self.starts_at_ms {
            return Err(CatalogueError::Window(self.id.clone()));
        }
        Ok(())
    }
}

impl Catalogue {
    /// Checks what the types cannot say, and sorts the sales so that [`Catalogue::find`] is fast.
    /// Of two entries with one id the first stays.
    ///
    /// # Errors
    /// Says which sale is wrong and how.
    pub fn checked(mut self) -> Result<Self, CatalogueError> {
        if self.sales.len() > SALES_MAX {
            return Err(CatalogueError::TooManySales(self.sales.len()));
        }
        self.sales.iter().try_for_each(Sale::check)?;
        self.sales.sort_by(|a, b| a.id.cmp(&b.id));
        self.sales.dedup_by(|later, first| later.id == first.id);
        Ok(self)
    }

    /// The sale named `id`, in a catalogue that was [`Catalogue::checked`].
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
            user_cap: 1,
            state: SaleState::Open,
        }
    }

    #[test]
    fn the_window_holds_its_start_and_not_its_end() {
        let sale = sale("s");
        assert_eq!(sale.phase(999), Phase::NotStarted { wait_ms: 1 });
        assert_eq!(sale.phase(1_000), Phase::Running);
        assert_eq!(sale.phase(1_999), Phase::Running);
        assert_eq!(sale.phase(2_000), Phase::Ended);
        assert_eq!(sale.phase(u64::MAX), Phase::Ended);
    }

    #[test]
    fn a_checked_catalogue_finds_each_of_its_sales_and_no_other() {
        let sales = vec![sale("c"), sale("a"), sale("b"), sale("a")];
        let catalogue = Catalogue { sales }.checked().unwrap();
        for id in ["a", "b", "c"] {
            assert_eq!(catalogue.find(id.as_bytes()).unwrap().id.as_str(), id);
        }
        assert_eq!(catalogue.find(b"d"), None);
        assert_eq!(catalogue.find(b"\xff"), None);
        assert_eq!(catalogue.sales.len(), 3);
    }

    #[test]
    fn a_catalogue_with_a_senseless_sale_is_refused_by_name() {
        let refused = |change: fn(&mut Sale)| {
            let mut bad = sale("bad");
            change(&mut bad);
            Catalogue { sales: vec![bad] }.checked().unwrap_err()
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
            refused(|s| s.user_cap = 0),
            CatalogueError::UserCap(id.clone())
        );
        assert_eq!(
            refused(|s| s.ends_at_ms = 1_000),
            CatalogueError::Window(id)
        );
    }

    #[test]
    fn the_catalogue_travels_as_json() {
        let catalogue = Catalogue {
            sales: vec![sale("s")],
        };
        let text = serde_json::to_string(&catalogue).unwrap();
        assert_eq!(
            text,
            r#"{"sales":[{"id":"s","starts_at_ms":1000,"ends_at_ms":2000,"shards":4,"user_cap":1,"state":"open"}]}"#
        );
        assert_eq!(serde_json::from_str::<Catalogue>(&text).unwrap(), catalogue);
        assert!(serde_json::from_str::<Catalogue>(&text.replace("\"s\"", "\"{s}\"")).is_err());
    }
}
