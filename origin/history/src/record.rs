//! Notes views. Whoever calls may call again with the same views, in another order, or with some of them: nothing changes by
//! it, and what was removed stays away.

use std::collections::HashMap;

use weir_history::{AT_MS_MAX, DAY_MS, Owner, Sku, ViewOutcome, ViewedProduct, oldest_ms};

use super::History;
use weir_origin_core::redis::CallError;

/// How far ahead of the origin's clock a view may be: as far as the events that it comes from.
const AHEAD_MS_MAX: u64 = DAY_MS;

/// Somebody has seen a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Who.
    pub owner: Owner,
    /// What.
    pub sku: Sku,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// The outcome of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is the latest of its product.
    Latest,
    /// It, or a later one of its product, was known before.
    Known,
    /// It was deleted or cleared before it came.
    Removed,
    /// It is older than views are kept.
    Expired,
    /// Its time is more than a day ahead: it is not taken, or it would stand first for so long.
    Ahead,
}

impl Outcome {
    /// All of them.
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
    /// Notes views: one script call for each owner, all in one trip. Tells the outcome of each, in their order.
    ///
    /// # Errors
    /// When Redis does not answer: then any of them may have been noted, and all may be sent again.
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
        let noted = self.0.hot.view(&groups, now_ms).await?;
        for (indices, noted) in indices.iter().zip(noted) {
            for (index, viewed) in indices.iter().zip(noted) {
                outcomes[*index] = Some(outcome(viewed));
            }
        }
        let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
        let metrics = &self.0.metrics;
        outcomes.iter().for_each(|outcome| metrics.view(*outcome));
        Ok(outcomes)
    }
}

/// Why a view does not reach Redis.
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
