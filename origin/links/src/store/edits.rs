//! Stores changes of links.

use std::sync::LazyLock;

use sqlx::Error;
use weir_link::code::LinkId;
use weir_link::record::Link;

use super::columns::{LinkRow, labels_json, record};
use super::drain::INSERT_TAG;
use super::outbox::LinkNotifications;
use super::{Action, Change, LinkStore, StoredLink, feed, reads};
use crate::model::labels::Labels;
use weir_origin_core::sql::{self, Columns, SqlError, Statement, Tx, retried, sql};

static UPDATE: LazyLock<String> = LazyLock::new(|| {
    let condition = "domain = ? AND code = ? AND version = ? AND deleted_at_ms IS NULL";
    format!("{} WHERE {condition}", sql::update::<LinkRow>("links", &[]))
});

/// A new click limit starts with its full number of clicks.
const LIMIT_CLICKS: &str = "
    UPDATE links SET clicks_before_max =
        (SELECT COALESCE(SUM(c.clicks), 0) FROM link_clicks c
         WHERE c.domain = ? AND c.code = ? AND c.span = 'day')
    WHERE domain = ? AND code = ?";

const INSERT_PAST: &str = "
    INSERT INTO link_history (domain, code, version, action, record, labels, at_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?)";

const DELETE_TAGS: &str = "DELETE FROM link_tags WHERE domain = ? AND code = ?";

const INSERT_UNPUBLISHED: &str =
    "INSERT INTO link_unpublished (domain, code, version, at_ms) VALUES (?, ?, ?, ?)";

const UNPUBLISHED: &str = "
    SELECT domain, code, version FROM link_unpublished WHERE at_ms < ? ORDER BY at_ms LIMIT ?";

const NOTE_AGAIN: &str = "
    REPLACE INTO link_unpublished (domain, code, version, at_ms)
    SELECT domain, code, MAX(version), MAX(at_ms) FROM link_history WHERE at_ms >= ? GROUP BY domain, code";

const PUT_OFF: &str =
    "UPDATE link_unpublished SET at_ms = ? WHERE domain = ? AND code = ? AND version = ?";

const DELETE_UNPUBLISHED: &str =
    "DELETE FROM link_unpublished WHERE domain = ? AND code = ? AND version = ?";

pub(super) fn named<'a>(statement: Statement<'a>, id: &'a LinkId) -> Statement<'a> {
    statement.text(id.domain.as_str()).text(id.code.as_str())
}

/// Stores changes of links.
#[derive(Clone, Copy, Debug)]
pub struct EditStore<'a>(pub(super) &'a LinkStore);

impl EditStore<'_> {
    /// Changes a link and marks it as pending for Redis. Returns false, without a change, if the link differs from the
    /// one that was read.
    pub async fn change(self, change: Change<'_>) -> Result<bool, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            let is_done = change_in(&mut tx, &self.0.notifications, &change).await?;
            if is_done {
                tx.commit().await?;
            } else {
                tx.rollback().await?;
            }
            Ok(is_done)
        };
        Ok(retried(once).await?)
    }

    /// At most `limit` changes before `before_ms` that Redis may not have: links and their versions.
    pub async fn unpublished(
        self,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<(LinkId, u32)>, SqlError> {
        let select = sql(UNPUBLISHED).number(before_ms).number(limit);
        let rows = self.0.db.all(select).await?;
        let read = |row| Ok((reads::id(row)?, row.number("version")?));
        rows.iter().map(read).collect()
    }

    /// Marks all edits since then as pending for Redis, and returns the number of links.
    pub async fn note_again(self, since_ms: u64) -> Result<u64, SqlError> {
        Ok(self.0.db.execute(sql(NOTE_AGAIN).number(since_ms)).await?)
    }

    /// Resets the age of a change that was just written to Redis, so that it is checked again later.
    pub async fn put_off(self, id: &LinkId, version: u32, now_ms: u64) -> Result<(), SqlError> {
        let update = named(sql(PUT_OFF).number(now_ms), id).number(version);
        self.0.db.execute(update).await?;
        Ok(())
    }

    /// Records that Redis has a change.
    pub async fn mark_published(self, id: &LinkId, version: u32) -> Result<(), SqlError> {
        let delete = named(sql(DELETE_UNPUBLISHED), id).number(version);
        self.0.db.execute(delete).await?;
        Ok(())
    }
}

async fn change_in(
    tx: &mut Tx,
    notifications: &LinkNotifications,
    change: &Change<'_>,
) -> Result<bool, Error> {
    if !update(tx, change).await? {
        return Ok(false);
    }
    let (before, now_ms) = (change.before, change.now_ms);
    if before.link.max_clicks == 0 && change.link.max_clicks > 0 {
        let limit = named(named(sql(LIMIT_CLICKS), &before.id), &before.id);
        tx.execute(limit).await?;
    }
    if before.link.version == 1 {
        // Store the initial version now: until the first edit it needs no row.
        let created = (Action::Create, before.created_at_ms);
        insert_past(tx, before, &before.link, &before.labels, created).await?;
    }
    let done = (change.action, now_ms);
    insert_past(tx, before, change.link, change.labels, done).await?;
    if before.labels.keys() != change.labels.keys() || change.action == Action::Delete {
        replace_tags(tx, change).await?;
    }
    let insert = named(sql(INSERT_UNPUBLISHED), &before.id);
    tx.insert(insert.number(change.link.version).number(now_ms))
        .await?;
    notifications.changed(tx, change).await?;
    feed::mark(tx, &[&before.id]).await?;
    Ok(true)
}

async fn update(tx: &mut Tx, change: &Change<'_>) -> Result<bool, Error> {
    let (row, before) = (LinkRow::changed(change)?, change.before);
    let update = named(row.bind(sql(&UPDATE)), &before.id).number(before.link.version);
    Ok(tx.execute(update).await? > 0)
}

async fn insert_past(
    tx: &mut Tx,
    of: &StoredLink,
    link: &Link,
    labels: &Labels,
    (action, at_ms): (Action, u64),
) -> Result<(), Error> {
    let (record, labels) = (record(link)?, labels_json(labels)?);
    let insert = named(sql(INSERT_PAST), &of.id).number(link.version);
    let insert = insert.text(action.label()).text(&record).text(&labels);
    tx.insert(insert.number(at_ms)).await.map(drop)
}

async fn replace_tags(tx: &mut Tx, change: &Change<'_>) -> Result<(), Error> {
    let before = change.before;
    tx.execute(named(sql(DELETE_TAGS), &before.id)).await?;
    if change.action == Action::Delete {
        return Ok(());
    }
    for key in &change.labels.keys() {
        let insert = sql(INSERT_TAG).text(key).number(before.created_at_ms);
        tx.insert(named(insert, &before.id)).await?;
    }
    Ok(())
}
