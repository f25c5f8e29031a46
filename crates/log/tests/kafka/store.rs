//! A consumer like the origin's: effects, handled ids and positions in one SQLite transaction.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use weir_log::kafka::{Batch, KafkaLog, LogError, ReadOutcome, Reader};

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS positions (grp TEXT, part INTEGER, position INTEGER, PRIMARY KEY (grp, part));
    CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS effects (id TEXT PRIMARY KEY, times INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS places (part INTEGER, position INTEGER, times INTEGER NOT NULL, PRIMARY KEY (part, position));
    CREATE TABLE IF NOT EXISTS consumers (name TEXT PRIMARY KEY, records INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS dead (part INTEGER, position INTEGER, PRIMARY KEY (part, position));";

/// The result of a step.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Taken,
    /// Another consumer moved the position first. Nothing was changed.
    Moved,
}

#[derive(Clone)]
pub struct Store {
    pool: SqlitePool,
    group: String,
    /// The consumer's name.
    name: String,
}

impl Store {
    /// Opens the file, which all consumer processes share.
    pub async fn open(file: &Path, group: &str, name: &str) -> Self {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(30));
        // One connection: consumers wait for the file lock, not within one process.
        let pool = SqlitePoolOptions::new().max_connections(1);
        let pool = pool.connect_with(options).await.unwrap();
        sqlx::raw_sql(TABLES).execute(&pool).await.unwrap();
        Self {
            pool,
            group: group.to_owned(),
            name: name.to_owned(),
        }
    }

    async fn position(&self, partition: u16) -> Option<u64> {
        let select = "SELECT position FROM positions WHERE grp = ? AND part = ?";
        let select = sqlx::query_scalar(select).bind(&self.group).bind(partition);
        let position: Option<i64> = select.fetch_optional(&self.pool).await.unwrap();
        position.map(|position| u64::try_from(position).unwrap())
    }

    /// Handles a batch, if the group's stored position equals `from`.
    async fn take(&self, batch: &Batch, from: u64) -> Step {
        let number = |number: u64| i64::try_from(number).unwrap();
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let begin = "INSERT OR IGNORE INTO positions VALUES (?, ?, 0)";
        let begin = sqlx::query(begin).bind(&self.group).bind(batch.partition);
        begin.execute(&mut *tx).await.unwrap();
        let step = "UPDATE positions SET position = ? WHERE grp = ? AND part = ? AND position = ?";
        let step = sqlx::query(step).bind(number(batch.next)).bind(&self.group);
        let step = step.bind(batch.partition).bind(number(from));
        if step.execute(&mut *tx).await.unwrap().rows_affected() == 0 {
            return Step::Moved;
        }
        for record in &batch.records {
            let id = std::str::from_utf8(&record.payload).ok();
            let id = id.filter(|id| !id.is_empty());
            let place = match id {
                Some(_) => {
                    "INSERT INTO places VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET times = times + 1"
                }
                // An invalid record is stored as a dead letter, and later records continue.
                None => "INSERT INTO dead VALUES (?, ?)",
            };
            let place = sqlx::query(place)
                .bind(batch.partition)
                .bind(number(record.position));
            place.execute(&mut *tx).await.unwrap();
            let Some(id) = id else { continue };
            let observed = sqlx::query("INSERT OR IGNORE INTO seen VALUES (?)").bind(id);
            if observed.execute(&mut *tx).await.unwrap().rows_affected() == 1 {
                let effect =
                    "INSERT INTO effects VALUES (?, 1) ON CONFLICT DO UPDATE SET times = times + 1";
                sqlx::query(effect)
                    .bind(id)
                    .execute(&mut *tx)
                    .await
                    .unwrap();
            }
        }
        let count = "INSERT INTO consumers VALUES (?, ?) ON CONFLICT DO UPDATE SET records = records + excluded.records";
        let count = sqlx::query(count)
            .bind(&self.name)
            .bind(number(batch.records.len() as u64));
        count.execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        Step::Taken
    }

    /// The handled ids.
    pub async fn handled(&self) -> BTreeSet<String> {
        let select = sqlx::query_scalar("SELECT id FROM effects");
        select
            .fetch_all(&self.pool)
            .await
            .unwrap()
            .into_iter()
            .collect()
    }

    /// The number of records that a consumer has handled.
    pub async fn handled_by(&self, name: &str) -> i64 {
        let select = sqlx::query_scalar("SELECT records FROM consumers WHERE name = ?").bind(name);
        select
            .fetch_optional(&self.pool)
            .await
            .unwrap()
            .unwrap_or(0)
    }

    /// Records and ids that were handled more than once.
    pub async fn doubled(&self) -> i64 {
        let select = "SELECT (SELECT COUNT(*) FROM places WHERE times > 1) + (SELECT COUNT(*) FROM effects WHERE times > 1)";
        sqlx::query_scalar(select)
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }

    /// The number of dead letters.
    pub async fn dead(&self) -> i64 {
        let select = sqlx::query_scalar("SELECT COUNT(*) FROM dead");
        select.fetch_one(&self.pool).await.unwrap()
    }

    /// Reads the log for the group until `stop`.
    pub async fn consume(&self, log: &KafkaLog, stop: impl Future<Output = ()>) {
        let mut consumer = Consumer {
            store: self,
            reader: log.reader(&self.group).unwrap(),
            positions: BTreeMap::new(),
            unplaced: BTreeSet::new(),
        };
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return,
                result = consumer.turn() => {
                    if let Err(error) = result {
                        // As during a broker outage.
                        eprintln!("{}: {error}", self.name);
                        consumer.place_all_again();
                    }
                }
            }
        }
    }
}

struct Consumer<'a> {
    store: &'a Store,
    reader: Reader,
    positions: BTreeMap<u16, u64>,
    /// Partitions without a start position.
    unplaced: BTreeSet<u16>,
}

impl Consumer<'_> {
    async fn turn(&mut self) -> Result<(), LogError> {
        while let Some(partition) = self.unplaced.first().copied() {
            let position = self.store.position(partition).await.unwrap_or(0);
            match self.reader.start_at(partition, Some(position)).await {
                Ok(at) => self.positions.insert(partition, at),
                // A rebalance came first: the next event reports it.
                Err(LogError::Partition(_)) => None,
                Err(error) => return Err(error),
            };
            self.unplaced.remove(&partition);
        }
        match self.reader.next().await? {
            ReadOutcome::Assigned(partitions) => {
                self.positions.clear();
                self.unplaced = partitions.into_iter().collect();
            }
            ReadOutcome::Batch(batch) => {
                let from = self.positions[&batch.partition];
                match self.store.take(&batch, from).await {
                    Step::Taken => {
                        self.positions.insert(batch.partition, batch.next);
                        self.reader.commit(batch.partition, batch.next);
                    }
                    Step::Moved => {
                        self.unplaced.insert(batch.partition);
                    }
                }
            }
        }
        Ok(())
    }

    /// Restarts all partitions after an error.
    fn place_all_again(&mut self) {
        self.unplaced
            .extend(std::mem::take(&mut self.positions).into_keys());
    }
}
