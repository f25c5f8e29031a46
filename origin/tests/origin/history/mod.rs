//! Browse history on a real Redis and a real database.

mod fold;
mod join;
mod lists;
mod marks;
mod products;
mod random;
mod remove;
mod switches;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::cmd;
use weir_base::id::UserId;
use weir_history::{Owner, Sku, ViewedProduct};
use weir_origin::history::{History, Outcome, Settings, View};

use crate::support::World;

/// The middle of a day.
const NOON_MS: u64 = 20_000 * weir_history::DAY_MS + weir_history::DAY_MS / 2;

/// A clock that only moves when the test sets it.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn at_noon() -> Self {
        Self(Arc::new(AtomicU64::new(NOON_MS)))
    }

    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn pass(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }

    fn set(&self, settings: &mut Settings) {
        let clock = self.clone();
        settings.clock = Arc::new(move || clock.now_ms());
    }
}

fn user(name: &str) -> Owner {
    Owner::user(&UserId::new(name).unwrap())
}

fn guest(name: &str) -> Owner {
    Owner::guest(name).unwrap()
}

fn viewed(sku: u64, at_ms: u64) -> ViewedProduct {
    let sku = Sku::from(sku);
    ViewedProduct { sku, at_ms }
}

/// Records one owner's views of these products at these times.
async fn record(history: &History, owner: &Owner, views: &[(u64, u64)]) -> Vec<Outcome> {
    let view = |&(sku, at_ms): &(u64, u64)| View {
        owner: owner.clone(),
        sku: Sku::from(sku),
        at_ms,
    };
    let views: Vec<View> = views.iter().map(view).collect();
    history.record(&views).await.unwrap()
}

/// Reads the list, which must be complete.
async fn list(history: &History, owner: &Owner) -> Vec<(u64, u64)> {
    let views = history.views(owner).await.unwrap();
    assert!(views.is_complete);
    pairs(&views.views)
}

fn pairs(views: &[ViewedProduct]) -> Vec<(u64, u64)> {
    views
        .iter()
        .map(|viewed| (viewed.sku.number().unwrap(), viewed.at_ms))
        .collect()
}

/// The owner's list in the cold store.
async fn cold(history: &History, owner: &Owner) -> Vec<(u64, u64)> {
    pairs(&history.cold().read(owner).await.unwrap().views)
}

/// Redis loses all history data.
async fn lose(world: &World) {
    for key in world.keys("h:*").await {
        world.redis(cmd("DEL").arg(key)).await;
    }
}
