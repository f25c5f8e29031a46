//! Lists in Redis: one script call per change.

use std::time::Duration;

use redis::{Cmd, Value, cmd};
use ring::rand::{SecureRandom, SystemRandom};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use weir_history::redis::history::{Active, Change, List};
use weir_history::redis::history_fill::NO_GENERATION;
use weir_history::redis::history_read::{CountReply, NewGeneration, Promise};
use weir_history::redis::keys::{HistoryKeys, history_active, history_active_of, history_mark};
use weir_history::redis::{
    history_clear, history_count, history_delete, history_fill, history_read, history_view,
};
use weir_history::slot::{SLOTS, Tags};
use weir_history::{DAY_MS, Owner, Removals, ViewOutcome, ViewedProduct};
use weir_scripts::Call;

use super::config::Bounds;
use weir_origin_core::background::Interval;
use weir_origin_core::redis::{CallError, Redis};

/// Commands in one pipeline: client and server buffer this many replies.
const PIPELINE: usize = 250;

/// Lifetime of a day's set of active owners beyond a list's lifetime, in milliseconds.
const ACTIVE_MORE_MS: u64 = 2 * DAY_MS;

/// Lifetime of a count promise, in milliseconds.
const PROMISE_MS: u64 = 10_000;

/// Lifetime of the marker of an unloaded list, in milliseconds: longer than a load takes.
const LOADING_MS: u64 = 60_000;

/// Lifetime of a cached count, in milliseconds. Products may change, and views may expire, without a change of the
/// list.
const COUNT_MS: u64 = 10 * 60_000;

/// Number of owners per scan step.
const SCAN: usize = 200;

/// Number of parts of a cluster's slots, each with a checkpoint.
const MARKS: u16 = 64;

/// Interval between checks of Redis settings, which may change at run time.
const WATCH_PERIOD: Duration = Duration::from_secs(60);

/// Minimum number of views that Redis should store in a list's packed encoding.
const PACKED_MIN: u64 = 256;

/// Lists in Redis. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct HotLists {
    redis: Redis,
    bounds: Bounds,
    tags: std::sync::Arc<Tags>,
}

/// A page of owners in a set.
#[derive(Debug)]
pub struct ActivePage {
    /// The encoded owners.
    pub owners: Vec<Vec<u8>>,
    /// The cursor of the next page; 0: this is the last page.
    pub next: u64,
}

impl HotLists {
    /// Creates the lists on a Redis.
    pub fn new(redis: Redis, bounds: Bounds) -> Self {
        let tags = Tags::new().into();
        Self {
            redis,
            bounds,
            tags,
        }
    }

    fn keys(&self, owner: &Owner) -> HistoryKeys {
        HistoryKeys::new(self.redis.prefix(), owner)
    }

    fn change<'a>(&self, owner: &'a Owner) -> Change<'a> {
        Change {
            owner,
            max: self.bounds.views_max,
            life_ms: self.bounds.hot_ms,
        }
    }

    fn active_of(&self, owner: &Owner, now_ms: u64) -> Vec<u8> {
        history_active_of(self.redis.prefix(), &self.tags, now_ms / DAY_MS, owner)
    }

    fn active<'a>(&self, key: &'a [u8]) -> Active<'a> {
        Active {
            key,
            life_ms: self.bounds.hot_ms + ACTIVE_MORE_MS,
        }
    }

    /// Records views, with one call per owner. Returns the outcome of each view.
    ///
    /// # Errors
    /// If Redis is unavailable; the remaining views are not recorded. Repeating the call is safe.
    pub async fn view(
        &self,
        views: &[(Owner, Vec<ViewedProduct>)],
        now_ms: u64,
    ) -> Result<Vec<Vec<ViewOutcome>>, CallError> {
        let mut outcomes = Vec::with_capacity(views.len());
        for chunk in views.chunks(PIPELINE) {
            let call = |(owner, views): &(Owner, Vec<ViewedProduct>)| {
                let active = self.active_of(owner, now_ms);
                let active = self.active(&active);
                history_view::call(&self.keys(owner), &active, &self.change(owner), views)
            };
            let calls: Vec<Call> = chunk.iter().map(call).collect();
            let replies = self.redis.run_all(&calls).await?;
            for ((_, views), reply) in chunk.iter().zip(replies) {
                outcomes.push(history_view::parse(&reply, views.len())?);
            }
        }
        Ok(outcomes)
    }

    /// The checkpoint keys: one, or in a cluster one for each part of the slots.
    fn marks(&self) -> Vec<Vec<u8>> {
        let count = if self.redis.is_cluster() { MARKS } else { 1 };
        let slots = (0..count).map(|n| n * (SLOTS / MARKS));
        let key = |slot| history_mark(self.redis.prefix(), &self.tags, slot);
        slots.map(key).collect()
    }

    /// Moves the checkpoints of a log if all are at or after `from`. Returns whether they were.
    pub async fn advance_mark(&self, source: &str, from: u64, to: u64) -> Result<bool, CallError> {
        let marks = self.marks();
        let calls: Vec<Call> = marks
            .iter()
            .map(|key| weir_history::redis::history_mark::call(key, source, from, to))
            .collect();
        let mut all = true;
        for reply in self.redis.run_all(&calls).await? {
            all &= weir_history::redis::history_mark::parse(&reply)?;
        }
        Ok(all)
    }

    /// The smallest checkpoint of a log; `None` if one is missing.
    pub async fn mark(&self, source: &str) -> Result<Option<u64>, CallError> {
        let marks = self.marks();
        let ask = |key: &Vec<u8>| cmd("HGET").arg(key).arg(source).to_owned();
        let replies = self.redis.send_all(marks.iter().map(ask).collect()).await?;
        let number = |reply: Value| redis::from_redis_value::<Option<u64>>(reply).ok().flatten();
        let marks: Option<Vec<u64>> = replies.into_iter().map(number).collect();
        Ok(marks.and_then(|marks| marks.into_iter().min()))
    }

    /// Sets the checkpoints of a log.
    pub async fn set_mark(&self, source: &str, to: u64) -> Result<(), CallError> {
        let (marks, position) = (
            self.marks(),
            weir_history::redis::history_mark::position(to),
        );
        let set = |key: &Vec<u8>| cmd("HSET").arg(key).arg(source).arg(&position).to_owned();
        self.redis.send_all(marks.iter().map(set).collect()).await?;
        Ok(())
    }

    /// Reads an owner's list.
    pub async fn read(&self, owner: &Owner) -> Result<List, CallError> {
        let name = new_generation();
        let call = history_read::call(&self.keys(owner), named(&name), None);
        Ok(history_read::parse(&self.redis.run(&call).await?)?)
    }

    /// Reads the cached count. If there is none, returns the list, and stores `promise` unless another one exists.
    pub async fn read_count(&self, owner: &Owner, promise: &str) -> Result<CountReply, CallError> {
        let promise = Promise {
            name: promise,
            life_ms: PROMISE_MS,
        };
        let name = new_generation();
        let call = history_read::call(&self.keys(owner), named(&name), Some(promise));
        Ok(history_read::parse_count(&self.redis.run(&call).await?)?)
    }

    /// Stores the promised count, unless the list has changed since.
    pub async fn put_count(
        &self,
        owner: &Owner,
        promise: &str,
        count: u64,
    ) -> Result<bool, CallError> {
        let call = history_count::call(&self.keys(owner), promise, count, COUNT_MS);
        Ok(history_count::parse(&self.redis.run(&call).await?)?)
    }

    /// Writes removals, and the cold list if given, and returns the resulting list. `generation` is the list's
    /// generation when it was read before them. Without it, or if the generation has changed, removals are applied but
    /// the list does not count as loaded.
    pub async fn fill(
        &self,
        owner: &Owner,
        generation: Option<&str>,
        removals: &Removals,
        cold: Option<&[ViewedProduct]>,
    ) -> Result<List, CallError> {
        let (keys, change) = (self.keys(owner), self.change(owner));
        let generation = generation.unwrap_or(NO_GENERATION);
        let call = history_fill::call(&keys, &change, generation, removals, cold);
        Ok(history_fill::parse(&self.redis.run(&call).await?)?)
    }

    /// Deletes views of each product up to its given time. Returns the number deleted.
    pub async fn delete(
        &self,
        owner: &Owner,
        deleted: &[ViewedProduct],
        forget_ms: u64,
        now_ms: u64,
    ) -> Result<usize, CallError> {
        let active = self.active_of(owner, now_ms);
        let (active, change) = (self.active(&active), self.change(owner));
        let call = history_delete::call(&self.keys(owner), &active, &change, forget_ms, deleted);
        Ok(history_delete::parse(&self.redis.run(&call).await?)?)
    }

    /// Clears views up to `at_ms`. Returns the number cleared.
    pub async fn clear(&self, owner: &Owner, at_ms: u64, now_ms: u64) -> Result<usize, CallError> {
        let active = self.active_of(owner, now_ms);
        let (active, change) = (self.active(&active), self.change(owner));
        let call = history_clear::call(&self.keys(owner), &active, &change, at_ms);
        Ok(history_clear::parse(&self.redis.run(&call).await?)?)
    }

    /// Filters these slots to those with owners active on that day.
    pub async fn active_slots(
        &self,
        day: u64,
        slots: impl Iterator<Item = u16>,
    ) -> Result<Vec<u16>, CallError> {
        let slots: Vec<u16> = slots.collect();
        let mut found = Vec::new();
        for chunk in slots.chunks(PIPELINE) {
            let ask = |slot: &u16| {
                let key = history_active(self.redis.prefix(), &self.tags, day, *slot);
                cmd("EXISTS").arg(key).to_owned()
            };
            let replies = self.redis.send_all(chunk.iter().map(ask).collect()).await?;
            let is_there = |reply: &Value| *reply != Value::Int(0);
            let there = chunk.iter().zip(&replies).filter(|(_, r)| is_there(r));
            found.extend(there.map(|(slot, _)| *slot));
        }
        Ok(found)
    }

    /// A page of a slot's owners who were active on that day.
    pub async fn active_page(
        &self,
        day: u64,
        slot: u16,
        from: u64,
    ) -> Result<ActivePage, CallError> {
        let key = history_active(self.redis.prefix(), &self.tags, day, slot);
        let mut scan = cmd("SSCAN");
        scan.arg(key).arg(from).arg("COUNT").arg(SCAN);
        let reply = self.redis.send(&scan).await?;
        let page: (u64, Vec<Vec<u8>>) = redis::from_redis_value(reply)
            .map_err(|error| CallError::unexpected("a set's members", error.to_string()))?;
        let (next, owners) = page;
        Ok(ActivePage { owners, next })
    }

    /// Removes finished owners from the set.
    pub async fn forget_active(
        &self,
        day: u64,
        slot: u16,
        owners: &[Vec<u8>],
    ) -> Result<(), CallError> {
        if owners.is_empty() {
            return Ok(());
        }
        let key = history_active(self.redis.prefix(), &self.tags, day, slot);
        self.redis
            .send(cmd("SREM").arg(key).arg(owners))
            .await
            .map(drop)
    }

    /// The configured maximum of packed views in a list, if Redis reports it.
    async fn packed_max(&self) -> Result<Option<u64>, CallError> {
        let mut get = Cmd::new();
        get.arg("CONFIG")
            .arg("GET")
            .arg("zset-max-listpack-entries");
        Ok(least_number(&self.redis.send(&get).await?))
    }
}

/// A unique random name. If the operating system provides no random numbers, lists do not count as loaded.
fn new_generation() -> String {
    let mut name = [0; 8];
    match SystemRandom::new().fill(&mut name) {
        Ok(()) => hex::encode(name),
        Err(_) => NO_GENERATION.to_owned(),
    }
}

fn named(name: &str) -> NewGeneration<'_> {
    NewGeneration {
        name,
        life_ms: LOADING_MS,
    }
}

/// Warns if a Redis setting makes lists use five times the memory: once when detected, and after each change. Runs
/// until `stop`.
pub async fn watch_listpacks(hot: HotLists, stop: CancellationToken) {
    let mut interval = Interval::every(WATCH_PERIOD, "checking the list encoding in Redis", stop);
    let mut response = None;
    while interval.next().await {
        // Skip the check if Redis does not permit `CONFIG GET`.
        let packed_max = hot.packed_max().await.ok().flatten();
        if packed_max != response
            && let Some(entries) = packed_max.filter(|max| *max < PACKED_MIN)
        {
            warn!(
                entries,
                "browse history lists use five times the memory: set zset-max-listpack-entries {PACKED_MIN} in Redis"
            );
        }
        response = packed_max;
        interval.ended(&Ok::<(), CallError>(()));
    }
}

/// The smallest number in a reply of one or more servers.
fn least_number(reply: &Value) -> Option<u64> {
    match reply {
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        Value::SimpleString(text) => text.parse().ok(),
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::Array(values) => values.iter().filter_map(least_number).min(),
        Value::Map(pairs) => pairs
            .iter()
            .filter_map(|(_, value)| least_number(value))
            .min(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_value_of_several_servers_is_used() {
        let text = |text: &str| Value::BulkString(text.into());
        let one = Value::Array(vec![text("zset-max-listpack-entries"), text("256")]);
        assert_eq!(least_number(&one), Some(256));
        let other = Value::Array(vec![text("zset-max-listpack-entries"), text("128")]);
        let nodes = Value::Map(vec![(text("a:1"), one), (text("b:2"), other)]);
        assert_eq!(least_number(&nodes), Some(128));
        assert_eq!(least_number(&Value::Nil), None);
    }
}
