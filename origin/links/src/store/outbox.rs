//! Writes changes of links to the [outbox](weir_origin_core::outbox), in the transactions that make them.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use sqlx::Error;
use weir_link::code::LinkId;
use weir_link::record::Link;

use super::{Action, Change, EndedLink, LinkStore, NewLink};
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
        self.telling = LinkNotifications { sinks, urls };
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
        let shown = self.shown(&new.id, Some((&link, &new.tags)));
        let told = LinkChange {
            id: &new.id,
            kind: kind(Action::Create),
            at_ms: new.created_at_ms,
        };
        self.write(tx, told, &shown, true).await
    }

    /// Writes a change of a link.
    pub(super) async fn changed(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Error> {
        if !self.sinks.has_any() {
            return Ok(());
        }
        let id = &change.before.id;
        let shown = self.shown(id, Some((change.link, change.tags)));
        let told = LinkChange {
            id,
            kind: kind(change.action),
            at_ms: change.now_ms,
        };
        self.write(tx, told, &shown, false).await
    }

    /// Writes the removal of a link, unless its deletion was already reported.
    pub(super) async fn ended(&self, tx: &mut Tx, ended: &EndedLink) -> Result<(), Error> {
        if !self.sinks.has_any() || ended.is_deleted {
            return Ok(());
        }
        let told = LinkChange {
            id: &ended.id,
            kind: ENDED,
            at_ms: ended.expires_at_ms,
        };
        let shown = self.shown(&ended.id, None);
        self.write(tx, told, &shown, false).await
    }

    /// Withdraws the change of a voided link, whose code belongs to another link. A receiver may already have got it;
    /// the link was never handed out.
    pub(super) async fn never_was(&self, tx: &mut Tx, id: &LinkId) -> Result<(), Error> {
        queue::forget(tx, Source::Link, &id.to_string()).await
    }

    async fn write(
        &self,
        tx: &mut Tx,
        told: LinkChange<'_>,
        shown: &Value,
        is_first: bool,
    ) -> Result<(), Error> {
        let subject = told.id.to_string();
        let body = |seq| told.body(&subject, shown, seq);
        let change = outbox::NewChange {
            subject: &subject,
            belongs_to: told.id.domain.as_str(),
            kind: told.kind,
            at_ms: told.at_ms,
            body: &body,
        };
        match is_first {
            true => queue::note_first(tx, Source::Link, self.sinks, change).await,
            false => queue::note(tx, Source::Link, self.sinks, change).await,
        }
    }

    /// The link in the receivers' format, without the fields that its password protects.
    #[expect(clippy::indexing_slicing, reason = "members of a JSON object")]
    fn shown(&self, id: &LinkId, says: Option<(&Link, &[String])>) -> Value {
        let url = self.urls.as_ref().and_then(|urls| urls(id));
        let mut shown = match says {
            Some((link, tags)) => {
                let mut shown = json!(LinkVersion::new(link.face(), tags.to_vec()));
                if link.guard.is_some() {
                    shown["target"] = Value::Null;
                }
                shown
            }
            None => json!({}),
        };
        shown["domain"] = json!(id.domain);
        shown["code"] = json!(id.code);
        shown["url"] = json!(url);
        shown
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
    fn body(self, subject: &str, shown: &Value, seq: u64) -> String {
        json!({
            "id": change_id(subject, seq), "type": self.kind, "sequence": seq, "at_ms": self.at_ms,
            "link": shown,
        })
        .to_string()
    }
}
