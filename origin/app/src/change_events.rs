//! Order and link changes as events: appends changes from the outbox to the event log.
//!
//! The event type is the kind of the change, such as `order.paid`. The topic names the domain, and the attributes
//! contain the change. For an order, the buyer is the customer. The event id is derived from the change id, and clients
//! cannot send such an id. Appending a change again yields the same event.

use std::sync::Arc;

use anyhow::{Context, Result};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use weir_event::envelope::Envelope;
use weir_event::fingerprint::Fingerprint;
use weir_event::name::{CustomerId, EventId, EventType, KeyName, Topic};

use crate::config::Config;
use crate::events::Events;
use crate::events::model::record::LogRecord;
use crate::origin::Origin;
use crate::outbox::{Change, DeliveryFuture, Sink, SinkName};

/// Topic of order changes.
#[cfg(feature = "sales")]
const ORDERS: &str = "orders";

/// Topic of link changes.
#[cfg(feature = "links")]
const LINKS: &str = "links";

/// Stands in for the write key, because no client sends these events.
const KEY: &str = "origin";

/// Connects changes of orders and links to the event log as configured by the flags.
pub(crate) fn open(mut origin: Origin, config: &Config) -> Result<Origin> {
    let events = origin.events().cloned();
    let sink = |flag: &str, topic| {
        let events = events.clone();
        let events = events.with_context(|| format!("{flag} needs --events-log or --events"))?;
        anyhow::Ok(Arc::new(ChangeEvents { events, topic }))
    };
    #[cfg(feature = "sales")]
    if config.sales.orders_events {
        let sink = sink("--orders-events", ORDERS)?;
        origin = origin.with_receiver(SinkName::Events, sink, config.sales.outbox_times());
    }
    #[cfg(feature = "links")]
    if config.links.links_events {
        anyhow::ensure!(config.links.links.is_some(), "--links-events needs --links");
        let sink = sink("--links-events", LINKS)?;
        origin = origin.with_link_receiver(SinkName::Events, sink, config.links.outbox_times());
    }
    Ok(origin)
}

/// Appends changes to the log of events.
#[derive(Debug)]
struct ChangeEvents {
    events: Events,
    topic: &'static str,
}

/// The fields of a change's body that the event uses.
#[derive(Deserialize)]
struct Body {
    order: Option<Order>,
}

#[derive(Deserialize)]
struct Order {
    user: String,
}

impl ChangeEvents {
    fn envelope(&self, change: &Change) -> Result<Envelope, String> {
        let unfit =
            |error: &dyn std::fmt::Display| format!("the change is not a valid event: {error}");
        let body: Body = serde_json::from_str(&change.body).map_err(|error| unfit(&error))?;
        let buyer = body
            .order
            .and_then(|order| CustomerId::new(&order.user).ok());
        // Order ids and link ids never collide: only link ids contain a slash.
        let id = hex::encode(hash(&format!("order change {}", change.id())));
        Ok(Envelope {
            id: EventId::new(format!("~{id}")).map_err(|error| unfit(&error))?,
            event_type: EventType::new(&change.kind).map_err(|error| unfit(&error))?,
            customer: buyer,
            visitor: None,
            at_ms: change.at_ms,
            received_ms: change.at_ms,
            key: KeyName::new(KEY).map_err(|error| unfit(&error))?,
            address: None,
            topics: vec![Topic::new(self.topic).map_err(|error| unfit(&error))?],
            attributes: change.body.clone(),
            fingerprint: Fingerprint(hash(&change.body)),
        })
    }
}

impl Sink for ChangeEvents {
    fn deliver<'a>(&'a self, change: &'a Change) -> DeliveryFuture<'a> {
        Box::pin(async move {
            let events = &self.events;
            let record = LogRecord::Event(Box::new(self.envelope(change)?));
            let record = record.encode(events.collector().partitions);
            let appended = events.log().append(vec![record], events.now_ms()).await;
            appended.map_err(|error| error.to_string())
        })
    }
}

fn hash(text: &str) -> [u8; Fingerprint::LEN] {
    let hash = digest(&SHA256, text.as_bytes());
    hash.as_ref().first_chunk().copied().unwrap_or_default()
}
