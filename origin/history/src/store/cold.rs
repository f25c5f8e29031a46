//! The cold store in SQL: one row per list.

use weir_history::{Owner, ViewedProduct, cold};

use super::HistoryStore;
use crate::model::cold::{ColdFuture, ColdStore, ColdStoreError, StoredList};
use weir_origin_core::sql::sql;

const SELECT: &str = "SELECT version, value FROM history_cold WHERE owner_key = ?";

const INSERT: &str =
    "INSERT INTO history_cold (owner_key, value, version, newest_at_ms) VALUES (?, ?, ?, ?)";

const UPDATE: &str = "
    UPDATE history_cold SET value = ?, version = version + 1, newest_at_ms = ?
    WHERE owner_key = ? AND version = ?";

const DELETE_VERSION: &str = "DELETE FROM history_cold WHERE owner_key = ? AND version = ?";

const DELETE: &str = "DELETE FROM history_cold WHERE owner_key = ?";

const SELECT_OLD: &str =
    "SELECT owner_key FROM history_cold WHERE newest_at_ms < ? ORDER BY newest_at_ms LIMIT ?";

const DELETE_OLD: &str = "DELETE FROM history_cold WHERE owner_key = ? AND newest_at_ms < ?";

impl HistoryStore {
    async fn read_cold(&self, owner: &Owner) -> Result<StoredList, ColdStoreError> {
        let key = cold::key(owner);
        let row = self
            .db
            .one(sql(SELECT).text(&key))
            .await
            .map_err(sql_error)?;
        let Some(row) = row else {
            return Ok(StoredList::default());
        };
        let value = row.bytes("value").map_err(sql_error)?;
        Ok(StoredList {
            version: Some(row.number("version").map_err(sql_error)?),
            views: cold::decode(&value)?,
        })
    }

    async fn write_cold(
        &self,
        owner: &Owner,
        version: Option<u64>,
        views: &[ViewedProduct],
    ) -> Result<bool, sqlx::Error> {
        let (key, value) = (cold::key(owner), cold::encode(views));
        let newest_ms = views.first().map(|observed| observed.at_ms);
        match (version, newest_ms) {
            (None, None) => Ok(true),
            (Some(version), None) => {
                let delete = sql(DELETE_VERSION).text(&key).number(version);
                Ok(self.db.execute(delete).await? > 0)
            }
            (None, Some(newest_ms)) => {
                let insert = sql(INSERT).text(&key).bytes(&value);
                let insert = insert.number((self.clock)()).number(newest_ms);
                self.db.insert(insert).await
            }
            (Some(version), Some(newest_ms)) => {
                let update = sql(UPDATE).bytes(&value).number(newest_ms);
                Ok(self.db.execute(update.text(&key).number(version)).await? > 0)
            }
        }
    }

    async fn forget_older_cold(&self, oldest_ms: u64, max: usize) -> Result<u64, sqlx::Error> {
        let select = sql(SELECT_OLD).number(oldest_ms).number(max as u64);
        let mut forgotten = 0;
        for row in self.db.all(select).await? {
            let key = row.text("owner_key")?;
            let delete = sql(DELETE_OLD).text(&key).number(oldest_ms);
            forgotten += self.db.execute(delete).await?;
        }
        Ok(forgotten)
    }
}

fn sql_error(error: sqlx::Error) -> ColdStoreError {
    ColdStoreError::Sql(error.into())
}

impl ColdStore for HistoryStore {
    fn read<'a>(&'a self, owner: &'a Owner) -> ColdFuture<'a, StoredList> {
        Box::pin(self.read_cold(owner))
    }

    fn write<'a>(
        &'a self,
        owner: &'a Owner,
        version: Option<u64>,
        views: &'a [ViewedProduct],
    ) -> ColdFuture<'a, bool> {
        Box::pin(async move {
            let written = self.write_cold(owner, version, views).await;
            written.map_err(sql_error)
        })
    }

    fn forget<'a>(&'a self, owner: &'a Owner) -> ColdFuture<'a, ()> {
        Box::pin(async move {
            let key = cold::key(owner);
            let deleted = self.db.execute(sql(DELETE).text(&key)).await;
            deleted.map(drop).map_err(sql_error)
        })
    }

    fn forget_older<'a>(&'a self, oldest_ms: u64, max: usize) -> ColdFuture<'a, u64> {
        Box::pin(async move {
            let forgotten = self.forget_older_cold(oldest_ms, max).await;
            forgotten.map_err(sql_error)
        })
    }
}
