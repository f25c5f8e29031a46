//! Records views. Calls may repeat views, in any order and in part, without effect. Removed views stay removed.

use std::collections::HashMap;

use weir_history::{AT_MS_MAX, DAY_MS, Owner, Sku, ViewOutcome, ViewedProduct, oldest_ms};

use super::History;
use weir_origin_core::redis::CallError;

/// How far a view may be ahead of the origin's clock, in milliseconds: the same as for its event.
const AHEAD_MS_MAX: u64 = DAY_MS;

/// A product view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The user or guest.
    pub owner: Owner,
    /// The product.
    pub sku: Sku,
    /// The time, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// Outcome of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is the latest view of its product.
    Latest,
    /// It, or a later view of its product, is already stored.
    Known,
    /// It was deleted or cleared before it arrived.
    Removed,
    /// It is older than the retention of views.
    Expired,
    /// Its time is more than a day ahead. It is refused, because it would stay first for that time.
    Ahead,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 5] = [
        Self::Latest,
        Self::Known,
        Self::Removed,
        Self::Expired,
        Self::Ahead,
    ];

    /// Its label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::Known => "known",
            Self::Removed => "removed",
            Self::Expired => "expired",
            Self::Ahead => "ahead",
        }
    }
}

impl History {
    /// Records views: one script call per owner, all in one round trip. Returns their outcomes in order.
    ///
    /// # Errors
    /// If Redis is unavailable. Some views may have been recorded; the call may be repeated.
    #[expect(
        clippy::indexing_slicing,
        reason = "indices of lists that this function fills"
    )]
    pub async fn record(&self, views: &[View]) -> Result<Vec<Outcome>, CallError> {
        let now_ms = self.now_ms();
        let mut outcomes: Vec<Option<Outcome>> =
            views.iter().map(|view| refused(view, now_ms)).collect();
        let (mut places, mut groups) = (HashMap::new(), Vec::<(Owner, Vec<ViewedProduct>)>::new());
        let mut indices: Vec<Vec<usize>> = Vec::new();
        for (index, view) in views.iter().enumerate() {
            if outcomes[index].is_some() {
                continue;
            }
            let place = *places.entry(&view.owner).or_insert_with(|| {
                groups.push((view.owner.clone(), Vec::new()));
                indices.push(Vec::new());
                groups.len() - 1
            });
            let (sku, at_ms) = (view.sku.clone(), view.at_ms);
            groups[place].1.push(ViewedProduct { sku, at_ms });
            indices[place].push(index);
        }
        let recorded = self.0.hot.view(&groups, now_ms).await?;
        for (indices, recorded) in indices.iter().zip(recorded) {
            for (index, viewed) in indices.iter().zip(recorded) {
                outcomes[*index] = Some(outcome(viewed));
            }
        }
        let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
        let metrics = &self.0.metrics;
        outcomes.iter().for_each(|outcome| metrics.view(*outcome));
        Ok(outcomes)
    }
}

/// Why a view is not written to Redis.
fn refused(view: &View, now_ms: u64) -> Option<Outcome> {
    if view.at_ms <= oldest_ms(now_ms) {
        return Some(Outcome::Expired);
    }
    let is_ahead = view.at_ms > now_ms.saturating_add(AHEAD_MS_MAX);
    (is_ahead || view.at_ms > AT_MS_MAX).then_some(Outcome::Ahead)
}

fn outcome(viewed: ViewOutcome) -> Outcome {
    match viewed {
        ViewOutcome::Removed => Outcome::Removed,
        ViewOutcome::Latest => Outcome::Latest,
        ViewOutcome::Known => Outcome::Known,
    }
}
