//! The end times of links: clicks extend them, and the clean-up deletes ended links.

use std::collections::BTreeMap;

use sqlx::Error;
use weir_link::code::LinkId;

use super::edits::named;
use super::{EndedLink, LinkStore, feed, reads};
use weir_origin_core::sql::{Database, MANY, Row, SqlError, Tx, filled, in_many, retried, sql};

/// Rows per transaction: others wait for it, so it stays short.
const BATCH: usize = 500;

/// Also respects a link's fixed end.
const TOUCH: &str = "
    UPDATE links
    SET expires_at_ms = CASE
        WHEN ends_at_ms IS NOT NULL AND ends_at_ms < ? + life_ms THEN ends_at_ms
        ELSE ? + life_ms END
    WHERE domain = ? AND code = ? AND deleted_at_ms IS NULL
        AND life_ms > 0 AND expires_at_ms < ? + life_ms";

const ENDED: &str = "
    SELECT domain, code, expires_at_ms, CASE WHEN deleted_at_ms IS NULL THEN 0 ELSE 1 END AS is_deleted
    FROM links WHERE expires_at_ms >= ? AND expires_at_ms < ? ORDER BY expires_at_ms LIMIT ?";

const PROLONG: &str = "
    UPDATE links SET expires_at_ms = ?
    WHERE domain = ? AND code = ? AND expires_at_ms = ? AND deleted_at_ms IS NULL";

const REMOVE: &str = "DELETE FROM links WHERE domain = ? AND code = ? AND expires_at_ms = ?";

/// The other data of a deleted link.
const REMOVE_REST: [&str; 7] = [
    in_many!("DELETE FROM link_tags WHERE domain = ? AND code"),
    in_many!("DELETE FROM link_history WHERE domain = ? AND code"),
    in_many!("DELETE FROM link_unpublished WHERE domain = ? AND code"),
    // The next link with this code starts without clicks.
    in_many!("DELETE FROM link_clicks WHERE domain = ? AND code"),
    in_many!("DELETE FROM link_totals WHERE domain = ? AND code"),
    in_many!("DELETE FROM link_click_parts WHERE domain = ? AND code"),
    in_many!("DELETE FROM link_click_cells WHERE domain = ? AND code"),
];

/// Stores the end times of links.
#[derive(Clone, Copy, Debug)]
pub struct EndStore<'a>(pub(super) &'a LinkStore);

impl EndStore<'_> {
    /// Records the last clicks of links, which extends the end of links with a life.
    pub async fn touch(self, clicks: &[(LinkId, u64)]) -> Result<(), SqlError> {
        for chunk in clicks.chunks(BATCH) {
            retried(|| touch_chunk(&self.0.db, chunk)).await?;
        }
        Ok(())
    }

    /// At most `limit` links that ended at or after `from_ms` and before `before_ms`, earliest first.
    pub async fn ended(
        self,
        from_ms: u64,
        before_ms: u64,
        limit: usize,
    ) -> Result<Vec<EndedLink>, SqlError> {
        let select = sql(ENDED).number(from_ms).number(before_ms).number(limit);
        let rows = self.0.db.all(select).await?;
        let read = |row: &Row| {
            Ok(EndedLink {
                id: reads::id(row)?,
                expires_at_ms: row.number("expires_at_ms")?,
                is_deleted: row.flag("is_deleted")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Gives links a later end, unless it was changed meanwhile.
    pub async fn prolong(self, ended: &[(EndedLink, u64)]) -> Result<(), SqlError> {
        for chunk in ended.chunks(BATCH) {
            retried(|| prolong_chunk(&self.0.db, chunk)).await?;
        }
        Ok(())
    }

    /// Deletes links and all of their data, unless they got a later end. Returns the number of deleted links.
    pub async fn remove(self, ended: &[EndedLink]) -> Result<u64, SqlError> {
        let mut removed = 0;
        for chunk in ended.chunks(BATCH) {
            removed += retried(|| remove_chunk(self.0, chunk)).await?;
        }
        Ok(removed)
    }
}

async fn touch_chunk(db: &Database, clicks: &[(LinkId, u64)]) -> Result<(), Error> {
    let mut tx = db.begin().await?;
    for (id, last_ms) in clicks {
        let update = named(sql(TOUCH).number(*last_ms).number(*last_ms), id);
        tx.execute(update.number(*last_ms)).await?;
    }
    tx.commit().await
}

async fn prolong_chunk(db: &Database, ended: &[(EndedLink, u64)]) -> Result<(), Error> {
    let mut tx = db.begin().await?;
    for (link, until_ms) in ended {
        let update = named(sql(PROLONG).number(*until_ms), &link.id);
        tx.execute(update.number(link.expires_at_ms)).await?;
    }
    tx.commit().await
}

async fn remove_chunk(store: &LinkStore, ended: &[EndedLink]) -> Result<u64, Error> {
    let mut tx = store.db.begin().await?;
    let mut removed = BTreeMap::<&str, Vec<&str>>::new();
    let mut missing = Vec::new();
    for one in ended {
        let EndedLink {
            id, expires_at_ms, ..
        } = one;
        let delete = named(sql(REMOVE), id).number(*expires_at_ms);
        if tx.execute(delete).await? > 0 {
            let codes = removed.entry(id.domain.as_str()).or_default();
            codes.push(id.code.as_str());
            missing.push(id);
            store.notifications.ended(&mut tx, one).await?;
        }
    }
    for (domain, codes) in &removed {
        remove_rest(&mut tx, domain, codes).await?;
    }
    feed::mark(&mut tx, &missing).await?;
    tx.commit().await?;
    Ok(removed.values().map(|codes| codes.len() as u64).sum())
}

async fn remove_rest(tx: &mut Tx, domain: &str, codes: &[&str]) -> Result<(), Error> {
    for some in codes.chunks(MANY) {
        for statement in REMOVE_REST {
            let delete = sql(statement).text(domain);
            tx.execute(filled(some).fold(delete, |delete, code| delete.text(code)))
                .await?;
        }
    }
    Ok(())
}
