//! The current state of a link, as the API shows it.

use std::collections::HashMap;

use serde::Serialize;
use tracing::debug;
use weir_link::record::Link;

use crate::numbers::Clock;
use crate::records::{LinkRecords, RecordLookup};
use crate::store::{LinkStore, StoredLink};
use weir_origin_core::sql::SqlError;

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LinkState)]
pub enum State {
    /// It redirects.
    Active,
    /// It is disabled.
    Disabled,
    /// It has expired.
    Ended,
    /// It has reached its click limit.
    UsedUp,
}

/// A link's state and remaining clicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// Its state.
    pub state: State,
    /// Remaining clicks; `None`: unlimited.
    pub clicks_left: Option<u64>,
}

/// The usage of a link.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Whether its life has passed without a click.
    is_over: bool,
    clicks_used: u64,
}

/// Reads the state of links. Cloning is cheap.
#[derive(Clone)]
pub struct States {
    pub(super) store: LinkStore,
    pub(super) records: LinkRecords,
    pub(super) clock: Clock,
}

impl State {
    /// The label in tables; the same as in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::Ended => "ended",
            Self::UsedUp => "used_up",
        }
    }
}

impl LinkStatus {
    /// The state of a link that was just created.
    pub fn new(link: &Link) -> Self {
        Self::of(link, Use::default(), 0)
    }

    fn of(link: &Link, existing: Use, now_ms: u64) -> Self {
        let has_max = link.max_clicks > 0;
        let clicks_left = has_max.then(|| link.max_clicks.saturating_sub(existing.clicks_used));
        let has_end_come = (1..=now_ms).contains(&link.expires_at_ms);
        let state = match clicks_left {
            _ if link.is_disabled => State::Disabled,
            _ if has_end_come || existing.is_over => State::Ended,
            Some(0) => State::UsedUp,
            _ => State::Active,
        };
        Self { state, clicks_left }
    }
}

impl States {
    /// The state of one link: see [`States::of`].
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn of_one(&self, link: &StoredLink) -> Result<LinkStatus, SqlError> {
        let standings = self.of(std::slice::from_ref(link)).await?;
        let one = standings.first().copied();
        Ok(one.unwrap_or_else(|| LinkStatus::new(&link.link)))
    }

    /// The states of links. Redis has the latest data: clicks that SQL has not counted yet, and lives that gateways
    /// renewed. If Redis is unavailable or lost its data, SQL is used.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn of(&self, links: &[StoredLink]) -> Result<Vec<LinkStatus>, SqlError> {
        let now_ms = (self.clock)();
        let seems_over = |link: &StoredLink| link.expires_at_ms.is_some_and(|ms| ms <= now_ms);
        let limited = links.iter().filter(|link| link.link.max_clicks > 0);
        let clicks = limited.map(|link| RecordLookup::ClicksUsed(&link.id));
        let over = links.iter().filter(|link| seems_over(link));
        let lives = over.map(|link| RecordLookup::IsThere(&link.id));
        let requests: Vec<_> = clicks.chain(lives).collect();
        let response = self.records.ask(&requests).await.unwrap_or_else(|error| {
            debug!(%error, "link states answered without Redis");
            vec![None; requests.len()]
        });
        let response: HashMap<_, _> = requests.into_iter().zip(response).collect();
        let mut standings = Vec::with_capacity(links.len());
        for link in links {
            let is_there = response
                .get(&RecordLookup::IsThere(&link.id))
                .copied()
                .flatten();
            let used = response.get(&RecordLookup::ClicksUsed(&link.id)).copied();
            let existing = Use {
                is_over: seems_over(link) && is_there != Some(1),
                clicks_used: match used {
                    Some(Some(used)) => used,
                    Some(None) => self.store.clicks().clicks_used(&link.id).await?,
                    None => 0,
                },
            };
            standings.push(LinkStatus::of(&link.link, existing, now_ms));
        }
        Ok(standings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_state_is_the_first_reason_that_blocks_the_redirect() {
        let link = |is_disabled, expires_at_ms, max_clicks| Link {
            is_disabled,
            expires_at_ms,
            max_clicks,
            ..Link::to("https://t.example/")
        };
        let check = |link: Link, is_over, clicks_used, expected, remaining| {
            let existing = Use {
                is_over,
                clicks_used,
            };
            let status = LinkStatus::of(&link, existing, 1_000);
            assert_eq!((status.state, status.clicks_left), (expected, remaining));
        };
        check(link(false, 0, 0), false, 0, State::Active, None);
        check(link(false, 1_001, 2), false, 1, State::Active, Some(1));
        check(link(false, 1_001, 2), false, 2, State::UsedUp, Some(0));
        check(link(false, 0, 2), false, 3, State::UsedUp, Some(0));
        check(link(false, 1_000, 2), false, 2, State::Ended, Some(0));
        check(link(false, 0, 0), true, 0, State::Ended, None);
        check(link(true, 1_000, 2), true, 2, State::Disabled, Some(0));
    }
}
