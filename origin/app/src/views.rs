//! Connects events and browse history: the consumer group `history` stores product views.
//!
//! A view is an event of the type `view` with the attribute `sku`, a string or an integer, and a customer or a visitor.
//! Views may arrive in any order and more than once: the latest view of a product counts. So failed events do not block
//! later ones.

use std::sync::Arc;

use serde::Deserialize;
use weir_base::id::UserId;
use weir_event::envelope::Envelope;
use weir_event::name::{CustomerId, VisitorId};
use weir_history::{Owner, Sku};

use crate::events::groups::marks::{MarkFuture, Marks};
use crate::events::groups::{
    Delivery, HandleFuture, Handler, NewGroup, Outcome, RecomputeFuture, Unit,
};
use crate::events::log::Target;
use crate::history::marks::Rebuild;
use crate::history::{History, View};

/// Name of the consumer group.
pub const GROUP: &str = "history";

/// Event type of views.
pub const VIEW: &str = "view";

/// Creates the consumer group that stores views in `history`.
pub fn group(history: History) -> NewGroup {
    let views = Arc::new(Views { history });
    NewGroup {
        marks: Some(views.clone()),
        ..NewGroup::new(GROUP, views)
    }
}

#[derive(Debug)]
struct Views {
    history: History,
}

/// The attributes that a view uses.
#[derive(Deserialize)]
struct Attributes {
    sku: Option<NumberOrText>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

/// Reads an event as a view; `None` if it is not a view.
fn view_of(event: &Envelope) -> Result<Option<View>, String> {
    if event.event_type.as_str() != VIEW {
        return Ok(None);
    }
    let customer = event.customer.as_ref().map(CustomerId::as_str);
    let visitor = event.visitor.as_ref().map(VisitorId::as_str);
    view(event.at_ms, customer, visitor, &event.attributes)
}

/// Reads an event of the type [`VIEW`]. `None` if it has no product or no owner.
pub(crate) fn view(
    at_ms: u64,
    customer: Option<&str>,
    visitor: Option<&str>,
    attributes: &str,
) -> Result<Option<View>, String> {
    let attributes: Attributes = serde_json::from_str(attributes)
        .map_err(|_| "/attributes/sku: must be a string or an integer".to_owned())?;
    let sku = match attributes.sku {
        None => return Ok(None),
        Some(NumberOrText::Number(number)) => Sku::from(number),
        Some(NumberOrText::Text(text)) => {
            Sku::new(&text).map_err(|error| format!("/attributes/sku: {error}"))?
        }
    };
    let owner = match (customer, visitor) {
        (Some(customer), _) => UserId::new(customer).map(|customer| Owner::user(&customer)),
        (None, Some(visitor)) => Owner::guest(visitor),
        (None, None) => return Ok(None),
    };
    let owner = owner.map_err(|error| format!("customer: {error}"))?;
    Ok(Some(View { owner, sku, at_ms }))
}

impl Views {
    async fn note<'e>(&self, events: impl Iterator<Item = &'e Envelope>) -> Vec<Outcome> {
        let views: Vec<_> = events.map(view_of).collect();
        let existing: Vec<View> = views
            .iter()
            .filter_map(|view| view.clone().ok().flatten())
            .collect();
        let recorded = match existing.is_empty() {
            true => Ok(()),
            false => self.history.record(&existing).await.map(drop),
        };
        let outcome = |view| match (view, &recorded) {
            (Err(reason), _) => Outcome::Refused(reason),
            (Ok(Some(_)), Err(error)) => Outcome::Failed(error.to_string()),
            (Ok(_), _) => Outcome::Done,
        };
        views.into_iter().map(outcome).collect()
    }
}

impl Handler for Views {
    fn handle<'a>(&'a self, events: &'a [Delivery]) -> HandleFuture<'a> {
        Box::pin(async move { self.note(events.iter().map(|event| &event.envelope)).await })
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn recompute<'a>(
        &'a self,
        _unit: &'a Unit,
        events: &'a [Envelope],
    ) -> Option<RecomputeFuture<'a>> {
        Some(Box::pin(async move {
            let outcomes = self.note(events.iter()).await;
            let failed = outcomes.into_iter().find_map(|outcome| match outcome {
                Outcome::Failed(reason) => Some(reason),
                _ => None,
            });
            failed.map_or(Ok(()), Err)
        }))
    }

    fn can_recompute(&self) -> bool {
        true
    }
}

/// Checkpoints, stored next to the lists in Redis.
impl Marks for Views {
    fn advance<'a>(&'a self, source: &'a str, from: u64, to: u64) -> MarkFuture<'a, bool> {
        Box::pin(async move {
            let advanced = self.history.advance_mark(source, from, to).await;
            advanced.map_err(|error| error.to_string())
        })
    }

    fn read<'a>(&'a self, source: &'a str) -> MarkFuture<'a, Option<u64>> {
        Box::pin(async move {
            let mark = self.history.mark(source).await;
            mark.map_err(|error| error.to_string())
        })
    }

    fn write<'a>(&'a self, source: &'a str, to: u64) -> MarkFuture<'a, ()> {
        Box::pin(async move {
            let written = self.history.set_mark(source, to).await;
            written.map_err(|error| error.to_string())
        })
    }

    fn rebuild<'a>(&'a self, source: &'a str, at: u64) -> MarkFuture<'a, Target> {
        Box::pin(async move {
            match self.history.rebuild_from(source, at).await {
                Ok(Rebuild::Position(position)) => Ok(Target::Position(position)),
                Ok(Rebuild::Time(time_ms)) => Ok(Target::Time(time_ms)),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}
