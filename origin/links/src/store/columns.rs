//! The columns of a link, each defined once.

use sqlx::Error;
use weir_link::record::Link;

use super::{Action, Change, NewLink, StoredLink, ends_at, reads};
use crate::model::labels::Labels;
use weir_origin_core::sql::{Columns, Plain, Row, damaged};

/// A row of `links` without its id. The record contains a link's fields; a field needs a column only if SQL searches by
/// it.
pub(super) struct LinkRow {
    /// See [`Link::encode`].
    record: String,
    version: u32,
    /// [`Labels`] as JSON.
    labels: String,
    life_ms: u64,
    ends_at_ms: Option<u64>,
    created_at_ms: u64,
    changed_at_ms: u64,
    expires_at_ms: Option<u64>,
    deleted_at_ms: Option<u64>,
}

weir_origin_core::columns!(LinkRow {
    record: Plain["record"],
    version: Plain["version"],
    labels: Plain["labels"],
    life_ms: Plain["life_ms"],
    ends_at_ms: Plain["ends_at_ms"],
    created_at_ms: Plain["created_at_ms"],
    changed_at_ms: Plain["changed_at_ms"],
    expires_at_ms: Plain["expires_at_ms"],
    deleted_at_ms: Plain["deleted_at_ms"],
});

impl LinkRow {
    /// The row of a new link.
    pub(super) fn new(link: &NewLink) -> Result<Self, Error> {
        let now_ms = link.created_at_ms;
        Ok(Self {
            record: link.record.clone(),
            version: 1,
            labels: labels_json(&link.labels)?,
            life_ms: link.life_ms,
            ends_at_ms: unless_zero(link.ends_at_ms),
            created_at_ms: now_ms,
            changed_at_ms: now_ms,
            expires_at_ms: ends_at(link.life_ms, link.ends_at_ms, now_ms),
            deleted_at_ms: None,
        })
    }

    /// The row after a change.
    pub(super) fn changed(change: &Change<'_>) -> Result<Self, Error> {
        let Change { link, now_ms, .. } = *change;
        let deleted_at_ms = (change.action == Action::Delete).then_some(now_ms);
        Ok(Self {
            record: record(link)?,
            version: link.version,
            labels: labels_json(change.labels)?,
            life_ms: link.life_ms,
            ends_at_ms: unless_zero(link.expires_at_ms),
            created_at_ms: change.before.created_at_ms,
            changed_at_ms: now_ms,
            expires_at_ms: deleted_at_ms.or(ends_at(link.life_ms, link.expires_at_ms, now_ms)),
            deleted_at_ms,
        })
    }
}

/// Builds a statement that selects links, with the SQL for their clicks and the rest of the statement. Its alias of
/// `links` is `l`.
pub(super) fn select(clicks: &str, rest: &str) -> String {
    let columns = LinkRow::NAMES.join(", l.");
    format!("SELECT l.domain, l.code, l.{columns}, {clicks} AS clicks {rest}")
}

/// Decodes a row of [`select`].
pub(super) fn stored(row: &Row) -> Result<StoredLink, Error> {
    let columns = LinkRow::read(row)?;
    Ok(StoredLink {
        id: reads::id(row)?,
        link: read_record(&columns.record)?,
        labels: read_labels(&columns.labels)?,
        clicks: row.number("clicks")?,
        created_at_ms: columns.created_at_ms,
        changed_at_ms: columns.changed_at_ms,
        expires_at_ms: columns.expires_at_ms,
    })
}

pub(super) fn record(link: &Link) -> Result<String, Error> {
    String::from_utf8(link.encode()).map_err(|error| damaged("record", error))
}

pub(super) fn read_record(record: &str) -> Result<Link, Error> {
    Link::decode(record.as_bytes()).map_err(|error| damaged("record", error))
}

pub(super) fn labels_json(labels: &Labels) -> Result<String, Error> {
    serde_json::to_string(labels).map_err(|error| damaged("labels", error))
}

pub(super) fn read_labels(labels: &str) -> Result<Labels, Error> {
    serde_json::from_str(labels).map_err(|error| damaged("labels", error))
}

fn unless_zero(number: u64) -> Option<u64> {
    (number > 0).then_some(number)
}
