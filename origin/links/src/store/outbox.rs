//! Writes changes of links to the [outbox](weir_origin_core::outbox), in the transactions that make them.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use sqlx::Error;
use weir_link::code::LinkId;
use weir_link::record::Link;

use super::{Action, Change, EndedLink, LinkStore, NewLink};
use crate::model::labels::Labels;
use crate::model::view::LinkVersion;
use weir_origin_core::outbox::{self, Queue, Sinks, Source, change_id, queue};
use weir_origin_core::sql::{Tx, damaged};

/// Kind of the change when an ended link is removed.
const ENDED: &str = "link.ended";

/// Returns the short URL of a link; `None`: its domain no longer exists.
pub type Urls = Arc<dyn Fn(&LinkId) -> Option<String> + Send + Sync>;

/// The receivers of link changes, and data that the store lacks.
#[derive(Clone, Default)]
pub(super) struct LinkNotifications {
    sinks: Sinks,
    urls: Option<Urls>,
}

impl fmt::Debug for LinkNotifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Telling").field(&self.sinks).finish()
    }
}

impl LinkStore {
    /// Configures the receivers for which each change of a link is written.
    #[must_use]
    pub fn telling(mut self, sinks: Sinks, urls: Urls) -> Self {
        let urls = Some(urls);
        self.notifications = LinkNotifications { sinks, urls };
        self
    }

    /// The queue of link changes for receivers.
    pub fn outbox(&self) -> Queue {
        Queue::new(self.db.clone(), Source::Link)
    }
}

/// The change's kind for receivers.
fn kind(action: Action) -> &'static str {
    match action {
        Action::Create => "link.created",
        Action::Edit => "link.edited",
        Action::Disable => "link.disabled",
        Action::Enable => "link.enabled",
        Action::Delete => "link.deleted",
    }
}

impl LinkNotifications {
    /// Writes the creation of a link.
    pub(super) async fn created(&self, tx: &mut Tx, new: &NewLink) -> Result<(), Error> {
        if !self.sinks.has_any() {
            return Ok(());
        }
        let link = Link::decode(new.record.as_bytes());
        let link = link.map_err(|error| damaged("record", error))?;
        let link_json = self.link_json(&new.id, Some((&link, &new.labels)));
        let change = LinkChange {
            id: &new.id,
            kind: kind(Action::Create),
            at_ms: new.created_at_ms,
        };
        self.write(tx, change, &link_json, true).await
    }

    /// Writes a change of a link.
    pub(super) async fn changed(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Error> {
        if !self.sinks.has_any() {
            return Ok(());
        }
        let id = &change.before.id;
        let link_json = self.link_json(id, Some((change.link, change.labels)));
        let reply = LinkChange {
            id,
            kind: kind(change.action),
            at_ms: change.now_ms,
        };
        self.write(tx, reply, &link_json, false).await
    }

    /// Writes the removal of a link, unless its deletion was already reported.
    pub(super) async fn ended(&self, tx: &mut Tx, ended: &EndedLink) -> Result<(), Error> {
        if !self.sinks.has_any() || ended.is_deleted {
            return Ok(());
        }
        let change = LinkChange {
            id: &ended.id,
            kind: ENDED,
            at_ms: ended.expires_at_ms,
        };
        let link_json = self.link_json(&ended.id, None);
        self.write(tx, change, &link_json, false).await
    }

    /// Withdraws the change of a voided link, whose code belongs to another link. A receiver may already have got it;
    /// the link was never handed out.
    pub(super) async fn never_was(&self, tx: &mut Tx, id: &LinkId) -> Result<(), Error> {
        queue::forget(tx, Source::Link, &id.to_string()).await
    }

    async fn write(
        &self,
        tx: &mut Tx,
        reply: LinkChange<'_>,
        link_json: &Value,
        is_first: bool,
    ) -> Result<(), Error> {
        let subject = reply.id.to_string();
        let body = |seq| reply.body(&subject, link_json, seq);
        let change = outbox::NewChange {
            subject: &subject,
            belongs_to: reply.id.domain.as_str(),
            kind: reply.kind,
            at_ms: reply.at_ms,
            body: &body,
        };
        match is_first {
            true => queue::note_first(tx, Source::Link, self.sinks, change).await,
            false => queue::note(tx, Source::Link, self.sinks, change).await,
        }
    }

    /// The link in the receivers' format, without the fields that its password protects.
    #[expect(clippy::indexing_slicing, reason = "members of a JSON object")]
    fn link_json(&self, id: &LinkId, expected: Option<(&Link, &Labels)>) -> Value {
        let url = self.urls.as_ref().and_then(|urls| urls(id));
        let mut link_json = match expected {
            Some((link, labels)) => {
                let mut link_json = json!(LinkVersion::new(link.face(), labels.clone()));
                if link.guard.is_some() {
                    link_json["target"] = Value::Null;
                }
                link_json
            }
            None => json!({}),
        };
        link_json["domain"] = json!(id.domain);
        link_json["code"] = json!(id.code);
        link_json["url"] = json!(url);
        link_json
    }
}

/// A change without the link's fields.
#[derive(Clone, Copy)]
struct LinkChange<'a> {
    id: &'a LinkId,
    kind: &'static str,
    at_ms: u64,
}

impl LinkChange<'_> {
    fn body(self, subject: &str, link_json: &Value, seq: u64) -> String {
        json!({
            "id": change_id(subject, seq), "type": self.kind, "sequence": seq, "at_ms": self.at_ms,
            "link": link_json,
        })
        .to_string()
    }
}
