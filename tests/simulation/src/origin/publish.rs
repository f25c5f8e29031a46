//! The catalogue, written from SQL: see `origin/src/sales/catalogue.rs`.

use std::cell::RefCell;
use std::rc::Rc;

use weir_sale::sale::{Band, Catalogue, Sale, SaleState};
use weir_scripts::documents::catalogue;

use super::io::Io;
use super::ledger::Ledger;
use super::reconcile::BrokeOff;

/// How often the catalogue is written without a change, and how often it is looked whether it has changed.
const PERIOD_MS: u64 = 10_000;
const CHANGE_PERIOD_MS: u64 = 1_000;

/// The pause after the first failure, doubled with each further one, and the longest.
const RETRY_PAUSE_MS: u64 = 100;
const RETRY_PAUSE_MS_MAX: u64 = 5_000;

/// Writes the catalogue.
#[derive(Clone, Debug)]
pub(super) struct Publisher {
    pub(super) io: Io,
    pub(super) ledger: Ledger,
    /// What was written last.
    pub(super) last: Rc<RefCell<Vec<u8>>>,
}

impl Publisher {
    pub(super) async fn publish(&self, only_changed: bool) -> Result<(), BrokeOff> {
        let current = |sql: &mut crate::sql::Sql| {
            let warmed = sql.warmed_at_ms;
            let sale = Sale {
                band: Band::of(u64::try_from(sql.remaining).unwrap_or(0), sql.total),
                ..sql.sale.clone()
            };
            warmed.map(|_| sale)
        };
        let sale = self.io.sql(current).await?;
        let catalogue = Catalogue {
            switch: SaleState::Open,
            sales: sale.into_iter().collect(),
        };
        let json = catalogue::write(&catalogue).map_err(|_| BrokeOff)?;
        if only_changed && *self.last.borrow() == json {
            return Ok(());
        }
        self.ledger.publish(&json).await?;
        *self.last.borrow_mut() = json;
        Ok(())
    }

    pub(super) async fn run(self) {
        let mut failures = 0_u32;
        let mut unwritten_ms = PERIOD_MS;
        loop {
            let only_changed = unwritten_ms < PERIOD_MS;
            let pause_ms = match self.publish(only_changed).await {
                Ok(()) => {
                    failures = 0;
                    unwritten_ms = if only_changed { unwritten_ms } else { 0 };
                    CHANGE_PERIOD_MS
                }
                Err(BrokeOff) => {
                    unwritten_ms = PERIOD_MS;
                    failures += 1;
                    let doubled = RETRY_PAUSE_MS << (failures - 1).min(10);
                    doubled.min(RETRY_PAUSE_MS_MAX)
                }
            };
            unwritten_ms = unwritten_ms.saturating_add(pause_ms);
            self.io.sleep_ms(pause_ms).await;
        }
    }
}
