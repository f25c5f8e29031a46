//! The catalogue, written from SQL: see `origin/sales/src/jobs/catalogue.rs`.

use std::cell::RefCell;
use std::rc::Rc;

use weir_sale::redis::catalogue;
use weir_sale::sale::{Band, Catalogue, Sale};

use super::io::Io;
use super::ledger::Ledger;
use super::reconcile::BrokeOff;
use crate::mutation::Mutation;
use crate::sql::Sql;

/// How often the publisher checks for changes of the catalogue, and whether Redis has the last one.
const CHANGE_PERIOD_MS: u64 = 250;
const CHECK_PERIOD_MS: u64 = 1_000;

/// The pause after the first failure, which doubles with each further one, and the maximum.
const RETRY_PAUSE_MS: u64 = 100;
const RETRY_PAUSE_MS_MAX: u64 = 5_000;

/// Writes the catalogue.
#[derive(Clone, Debug)]
pub(super) struct Publisher {
    pub(super) io: Io,
    pub(super) ledger: Ledger,
    /// The last written catalogue.
    pub(super) last: Rc<RefCell<Catalogue>>,
}

impl Publisher {
    fn catalogue(sql: &mut Sql, site: usize, version: u64, tells_early: bool) -> Catalogue {
        let band = match tells_early {
            true => Band::None,
            false => sql.band_at(site),
        };
        let sale = Sale {
            cold: sql.warmed_at_ms.is_none() || !sql.is_open_at(site),
            band,
            paused: sql.is_paused,
            ..sql.sale_at(site)
        };
        Catalogue {
            version,
            sales: [sale].into(),
            ..Catalogue::default()
        }
    }

    pub(super) async fn publish(&self) -> Result<(), BrokeOff> {
        let (now_ms, site, tells_early) = (self.io.now_ms(), self.io.site, self.tells_early());
        let next = move |sql: &mut Sql| {
            let version = sql.next_catalogue_version(now_ms);
            Self::catalogue(sql, site, version, tells_early)
        };
        let catalogue = self.io.sql(next).await?;
        let json = catalogue::write(&catalogue).map_err(|_| BrokeOff)?;
        *self.last.borrow_mut() = Catalogue::default();
        self.ledger.publish(catalogue.version, &json).await?;
        *self.last.borrow_mut() = catalogue;
        Ok(())
    }

    fn tells_early(&self) -> bool {
        self.io.makes(Mutation::SoldOutToldEarly)
    }

    async fn publish_changed(&self) -> Result<(), BrokeOff> {
        let version = self.last.borrow().version;
        let (site, tells_early) = (self.io.site, self.tells_early());
        let current = move |sql: &mut Sql| Self::catalogue(sql, site, version, tells_early);
        let current = self.io.sql(current).await?;
        let is_same = version > 0 && *self.last.borrow() == current;
        if is_same {
            return Ok(());
        }
        self.publish().await
    }

    async fn check(&self) -> Result<(), BrokeOff> {
        if self.io.makes(Mutation::CatalogueNotChecked) {
            return Ok(());
        }
        let published = self.ledger.published().await?;
        let published = published.and_then(|json| catalogue::read(&json).ok());
        let is_same = published.is_some_and(|published| {
            let last = self.last.borrow();
            let version = last.version;
            let is_late = published.version >= version;
            is_late
                && Catalogue {
                    version,
                    ..published
                } == *last
        });
        match is_same {
            true => Ok(()),
            false => self.publish().await,
        }
    }

    pub(super) async fn run(self) {
        let mut failures = 0_u32;
        let mut unchecked_ms = 0;
        loop {
            let mut outcome = self.publish_changed().await;
            if outcome.is_ok() && unchecked_ms >= CHECK_PERIOD_MS {
                outcome = self.check().await;
                unchecked_ms = 0;
            }
            let pause_ms = match outcome {
                Ok(()) => {
                    failures = 0;
                    CHANGE_PERIOD_MS
                }
                Err(BrokeOff) => {
                    failures += 1;
                    let doubled = RETRY_PAUSE_MS << (failures - 1).min(10);
                    doubled.min(RETRY_PAUSE_MS_MAX)
                }
            };
            unchecked_ms += pause_ms;
            self.io.sleep_ms(pause_ms).await;
        }
    }
}
