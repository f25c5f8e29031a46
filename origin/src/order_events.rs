//! Where sales and events meet: changes of orders, appended to the log of events.
//!
//! Such an event has the change's kind as its type, such as `order.paid`, the topic `orders`, the buyer as its customer, and
//! the change as its attributes. Its id is made of the change's, and no client can give one like it: a change that is appended
//! again is the same event.

use ring::digest::{SHA256, digest};
use serde::Deserialize;
use weir_event::envelope::Envelope;
use weir_event::fingerprint::Fingerprint;
use weir_event::name::{CustomerId, EventId, EventType, KeyName, Topic};

use crate::events::Events;
use crate::events::record::LogRecord;
use crate::sales::outbox::{Delivered, Sink};
use crate::sales::store::OrderChange;

/// The topic of these events.
pub const TOPIC: &str = "orders";

/// In the place of a write key: nobody has sent them.
const KEY: &str = "origin";

/// Appends changes of orders to the log of events.
#[derive(Debug)]
pub struct OrderEvents(pub Events);

/// What counts of a change's body.
#[derive(Deserialize)]
struct Body {
    order: Order,
}

#[derive(Deserialize)]
struct Order {
    user: String,
}

impl Sink for OrderEvents {
    fn deliver<'a>(&'a self, change: &'a OrderChange) -> Delivered<'a> {
        Box::pin(async move {
            let Self(events) = self;
            let envelope = envelope(change)?;
            let record = LogRecord::Event(Box::new(envelope));
            let record = record.encode(events.collector().partitions);
            let appended = events.log().append(vec![record], events.now_ms()).await;
            appended.map_err(|error| error.to_string())
        })
    }
}

fn envelope(change: &OrderChange) -> Result<Envelope, String> {
    let unfit = |error: &dyn std::fmt::Display| format!("the change is no event: {error}");
    let body: Body = serde_json::from_str(&change.body).map_err(|error| unfit(&error))?;
    let id = hex::encode(hash(&format!("order change {}", change.id())));
    Ok(Envelope {
        id: EventId::new(format!("~{id}")).map_err(|error| unfit(&error))?,
        event_type: EventType::new(&change.kind).map_err(|error| unfit(&error))?,
        customer: CustomerId::new(&body.order.user).ok(),
        visitor: None,
        at_ms: change.at_ms,
        received_ms: change.at_ms,
        key: KeyName::new(KEY).map_err(|error| unfit(&error))?,
        address: None,
        topics: vec![Topic::new(TOPIC).map_err(|error| unfit(&error))?],
        attributes: change.body.clone(),
        fingerprint: Fingerprint(hash(&change.body)),
    })
}

fn hash(text: &str) -> [u8; Fingerprint::LEN] {
    let hash = digest(&SHA256, text.as_bytes());
    hash.as_ref().first_chunk().copied().unwrap_or_default()
}
