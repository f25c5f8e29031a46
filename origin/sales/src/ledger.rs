//! The admission ledger in Redis, through Weir's scripts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::task::{JoinError, JoinSet};
use weir_base::id::{SaleId, UserId};
use weir_sale::ledger::{
    Audit, Deduction, DepositReply, FollowUpReply, LendReply, OrderEntry, Overdue, ReleaseKind,
    ReleaseReply, SettleReply, StockChange, StockChanged, Transfer, WipeReply,
};
use weir_sale::redis::keys::{self, ShardKeys};
use weir_sale::redis::{
    audit, cancel, charge, claim, correct, deposit, lend, overdue, publish, raise_mark, record,
    recount, release, restock, restore, settle, settle_transfer, stock_change, warm, wipe,
};
use weir_sale::sale::Sale;
use weir_sale::shard::{BUCKETS, bucket};

use super::store::OrderedAttempt;
use super::verdicts::Verdicts;
use crate::jobs::list_changes::{ListChange, ListChanges};
pub use crate::model::claim_key::ClaimKey;
pub use crate::model::user_list::UserList;
use weir_origin_core::redis::{CallError, Redis};

/// Maximum number of concurrent commands when users are written: enough to use the connection fully, few compared with
/// those of orders.
const COMMANDS_AT_ONCE: usize = 64;

/// Number of users per SCAN step, so that a step takes far less than a millisecond.
const SCAN_LEN: u32 = 100;

/// The admission ledger of all sales. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Ledger {
    redis: Redis,
    changes: Arc<Mutex<ListChanges>>,
}

impl Ledger {
    /// Creates the ledger on this Redis.
    pub fn new(redis: Redis) -> Self {
        Self {
            redis,
            changes: Arc::default(),
        }
    }

    /// Reads the decision counts that gateways report for a sale.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn verdicts(&self, sale: &SaleId) -> Result<Verdicts, CallError> {
        Verdicts::read(&self.redis, sale).await
    }

    fn shard(&self, sale: &SaleId, shard: u32) -> ShardKeys {
        ShardKeys::new(self.redis.prefix(), sale, shard)
    }

    /// Settles a claim that became an order.
    ///
    /// # Errors
    /// See [`CallError`]; the same applies to all methods below.
    pub async fn settle(
        &self,
        claim: impl Into<ClaimKey>,
        deduction: Deduction,
    ) -> Result<SettleReply, CallError> {
        let claim = claim.into();
        let keys = self.shard(&claim.sale, claim.shard);
        let call = settle::call(&keys, &claim.user, claim.generation, deduction);
        Ok(settle::parse(&self.redis.run(&call).await?)?)
    }

    /// Charges a paid order that is deducted at payment: its units leave the stock.
    pub async fn charge(&self, claim: impl Into<ClaimKey>) -> Result<FollowUpReply, CallError> {
        let claim = claim.into();
        let keys = self.shard(&claim.sale, claim.shard);
        let call = charge::call(&keys, &claim.user, claim.generation);
        Ok(charge::parse(&self.redis.run(&call).await?)?)
    }

    /// Cancels an ended order: its units return to the stock.
    pub async fn cancel(&self, claim: impl Into<ClaimKey>) -> Result<FollowUpReply, CallError> {
        let claim = claim.into();
        let keys = self.shard(&claim.sale, claim.shard);
        let call = cancel::call(&keys, &claim.user, claim.generation);
        Ok(cancel::parse(&self.redis.run(&call).await?)?)
    }

    /// Releases a claim that ended without an order.
    pub async fn release(
        &self,
        claim: impl Into<ClaimKey>,
        kind: ReleaseKind,
    ) -> Result<ReleaseReply, CallError> {
        let claim = claim.into();
        let keys = self.shard(&claim.sale, claim.shard);
        let call = release::call(&keys, &[(&claim.user, claim.generation, kind)]);
        let replies = release::parse(&self.redis.run(&call).await?, 1)?;
        Ok(replies.first().copied().unwrap_or(ReleaseReply::Nothing))
    }

    /// Adds users to the sale's reserved or blocked users. Queues them to be written again later: see
    /// [`Ledger::changed_lists`].
    pub async fn add_users(
        &self,
        sale: &Sale,
        list: UserList,
        users: &[UserId],
    ) -> Result<(), CallError> {
        users
            .iter()
            .for_each(|user| self.note_change(sale, list, user));
        self.write_users(sale, list, users, None).await
    }

    /// Adds the users whose home is one of `shards`, or all if it is `None`. Sends one command per set, many
    /// concurrently.
    pub async fn write_users(
        &self,
        sale: &Sale,
        list: UserList,
        users: &[UserId],
        shards: Option<&[u32]>,
    ) -> Result<(), CallError> {
        let mut sets: BTreeMap<Vec<u8>, Vec<&UserId>> = BTreeMap::new();
        for user in users {
            let is_wanted = |shards: &[u32]| shards.contains(&sale.home_shard(user));
            if !shards.is_none_or(is_wanted) {
                continue;
            }
            let set = self.user_set(sale, list, user);
            sets.entry(set).or_default().push(user);
        }
        let mut tasks = JoinSet::new();
        for (set, users) in sets {
            let mut add = redis::cmd("SADD");
            add.arg(set);
            for user in users {
                add.arg(user.as_str());
            }
            if tasks.len() >= COMMANDS_AT_ONCE {
                joined(tasks.join_next().await)?;
            }
            let redis = self.redis.clone();
            tasks.spawn(async move { redis.send(&add).await });
        }
        while !tasks.is_empty() {
            joined(tasks.join_next().await)?;
        }
        Ok(())
    }

    /// Restores the claim of each idempotency key.
    pub async fn add_attempts(
        &self,
        sale: &SaleId,
        shard: u32,
        attempts: &[OrderedAttempt],
    ) -> Result<(), CallError> {
        let keys = self.shard(sale, shard);
        let mut tasks = JoinSet::new();
        for (user, key, generation) in attempts {
            let mut set = redis::cmd("SET");
            set.arg(keys.attempt(user, key.tag())).arg(*generation);
            set.arg("PX").arg(claim::ATTEMPT_TTL_MS);
            if tasks.len() >= COMMANDS_AT_ONCE {
                joined(tasks.join_next().await)?;
            }
            let redis = self.redis.clone();
            tasks.spawn(async move { redis.send(&set).await });
        }
        while !tasks.is_empty() {
            joined(tasks.join_next().await)?;
        }
        Ok(())
    }

    /// Removes a user from the sale's reserved or blocked users. Queues the change to be written again later.
    pub async fn remove_user(
        &self,
        sale: &Sale,
        list: UserList,
        user: &UserId,
    ) -> Result<(), CallError> {
        self.note_change(sale, list, user);
        self.erase_user(sale, list, user).await
    }

    /// Like [`Ledger::remove_user`], without queueing.
    pub async fn erase_user(
        &self,
        sale: &Sale,
        list: UserList,
        user: &UserId,
    ) -> Result<(), CallError> {
        let set = self.user_set(sale, list, user);
        let mut remove = redis::cmd("SREM");
        self.redis.send(remove.arg(set).arg(user.as_str())).await?;
        Ok(())
    }

    /// Blocks a user whose home is this shard.
    pub async fn bar(&self, sale: &SaleId, shard: u32, user: &UserId) -> Result<(), CallError> {
        let set = self.shard(sale, shard).blocked(bucket(user));
        let mut add = redis::cmd("SADD");
        self.redis.send(add.arg(set).arg(user.as_str())).await?;
        Ok(())
    }

    /// Unblocks a user whose home is this shard.
    pub async fn unblock_user(
        &self,
        sale: &SaleId,
        shard: u32,
        user: &UserId,
    ) -> Result<(), CallError> {
        let set = self.shard(sale, shard).blocked(bucket(user));
        let mut remove = redis::cmd("SREM");
        self.redis.send(remove.arg(set).arg(user.as_str())).await?;
        Ok(())
    }

    fn note_change(&self, sale: &Sale, list: UserList, user: &UserId) {
        let change = ListChange {
            at: Instant::now(),
            sale: sale.id.clone(),
            list,
            user: user.clone(),
        };
        if let Ok(mut changes) = self.changes.lock() {
            changes.note(change);
        }
    }

    /// Removes and returns queued list changes that are old enough to be durable in Redis. The caller writes them again
    /// from SQL.
    pub fn changed_lists(&self) -> Vec<ListChange> {
        let due = self.changes.lock().map(|mut changes| changes.due());
        due.unwrap_or_default()
    }

    fn user_set(&self, sale: &Sale, list: UserList, user: &UserId) -> Vec<u8> {
        let keys = self.shard(&sale.id, sale.home_shard(user));
        match list {
            UserList::Reserved => keys.reserved(bucket(user)),
            UserList::Blocked => keys.blocked(bucket(user)),
        }
    }

    /// Loads `units` into a cold shard: one that was never in use, or the one whose rebuild with this token ends.
    /// Returns false if the shard has stock already, or another origin rebuilds it.
    pub async fn warm(
        &self,
        sale: &SaleId,
        shard: u32,
        units: u64,
        token: Option<&str>,
    ) -> Result<bool, CallError> {
        let call = warm::call(&self.shard(sale, shard), units, token);
        Ok(warm::parse(&self.redis.run(&call).await?)?)
    }

    /// Whether a shard has a stock entry, even of 0 units.
    pub async fn is_warm(&self, sale: &SaleId, shard: u32) -> Result<bool, CallError> {
        let stock = self.shard(sale, shard).stock();
        let reply = self.redis.send(redis::cmd("EXISTS").arg(stock)).await?;
        Ok(reply == redis::Value::Int(1))
    }

    /// Reads the balance terms of a shard.
    pub async fn audit(&self, sale: &SaleId, shard: u32) -> Result<Audit, CallError> {
        let call = audit::call(&self.shard(sale, shard));
        Ok(audit::parse(&self.redis.run(&call).await?)?)
    }

    /// Reads the balance terms of all shards of a sale here, in order and concurrently.
    pub async fn audits(&self, sale: &Sale) -> Result<Vec<Audit>, CallError> {
        let mut tasks = JoinSet::new();
        for (index, shard) in (0..sale.shards).zip(sale.shard_numbers()) {
            let (ledger, id) = (self.clone(), sale.id.clone());
            tasks.spawn(async move { (index, ledger.audit(&id, shard).await) });
        }
        let mut audits = vec![Audit::default(); sale.shards as usize];
        while let Some(joined) = tasks.join_next().await {
            let (index, audit) = joined?;
            if let Some(place) = audits.get_mut(index as usize) {
                *place = audit?;
            }
        }
        Ok(audits)
    }

    /// The time of Redis' clock, which deadlines use.
    pub async fn now_ms(&self) -> Result<u64, CallError> {
        let time = self.redis.send(&redis::cmd("TIME")).await?;
        let (seconds, micros): (u64, u64) = redis::from_redis_value(time.clone())
            .map_err(|_| CallError::unexpected("invalid reply of TIME", format!("{time:?}")))?;
        Ok(seconds * 1_000 + micros / 1_000)
    }

    /// Number of a shard's open claims with a deadline of `due_ms` or earlier.
    pub async fn overdue_count(
        &self,
        sale: &SaleId,
        shard: u32,
        due_ms: u64,
    ) -> Result<u64, CallError> {
        let pending = self.shard(sale, shard).pending();
        let mut count = redis::cmd("ZCOUNT");
        count.arg(pending).arg("-inf").arg(due_ms);
        match self.redis.send(&count).await? {
            redis::Value::Int(claims) => Ok(u64::try_from(claims).unwrap_or(0)),
            other => Err(CallError::unexpected(
                "invalid reply of ZCOUNT",
                format!("{other:?}"),
            )),
        }
    }

    /// Returns up to `limit` claims whose deadline passed at least `grace_ms` ago, earliest first.
    pub async fn overdue(
        &self,
        sale: &SaleId,
        shard: u32,
        grace_ms: u64,
        limit: u32,
    ) -> Result<Vec<Overdue>, CallError> {
        let call = overdue::call(&self.shard(sale, shard), grace_ms, limit);
        Ok(overdue::parse(&self.redis.run(&call).await?)?)
    }

    /// Returns up to `limit` open claims, regardless of their deadlines.
    pub async fn open_claims(
        &self,
        sale: &SaleId,
        shard: u32,
        limit: u32,
    ) -> Result<Vec<Overdue>, CallError> {
        let call = overdue::all(&self.shard(sale, shard), limit);
        Ok(overdue::parse(&self.redis.run(&call).await?)?)
    }

    /// Starts a transfer: units leave a shard for another.
    pub async fn lend(
        &self,
        sale: &SaleId,
        from_shard: u32,
        to_shard: u32,
        requested: u64,
    ) -> Result<LendReply, CallError> {
        let keys = self.shard(sale, from_shard);
        let call = lend::call(&keys, to_shard, requested);
        Ok(lend::parse(&self.redis.run(&call).await?)?)
    }

    /// Deposits transferred units on the target shard.
    pub async fn deposit(
        &self,
        sale: &SaleId,
        from_shard: u32,
        to_shard: u32,
        transfer: Transfer,
    ) -> Result<DepositReply, CallError> {
        let call = deposit::call(&self.shard(sale, to_shard), from_shard, transfer);
        Ok(deposit::parse(&self.redis.run(&call).await?)?)
    }

    /// Settles a completed transfer on the source shard.
    pub async fn settle_transfer(
        &self,
        sale: &SaleId,
        from_shard: u32,
        to_shard: u32,
        id: u64,
    ) -> Result<bool, CallError> {
        let call = settle_transfer::call(&self.shard(sale, from_shard), to_shard, id);
        Ok(settle_transfer::parse(&self.redis.run(&call).await?)?)
    }

    /// Adds `units` to a shard's stock, or removes them if below 0, if the shard is unchanged since `audit`.
    pub async fn restock(
        &self,
        sale: &SaleId,
        shard: u32,
        units: i64,
        audit: &Audit,
    ) -> Result<bool, CallError> {
        let call = restock::call(&self.shard(sale, shard), units, audit);
        Ok(restock::parse(&self.redis.run(&call).await?)?)
    }

    /// Raises a shard's mark to SQL's count, if the shard is unchanged since `audit` and its mark is lower.
    pub async fn raise_mark(
        &self,
        sale: &SaleId,
        shard: u32,
        mark: u64,
        audit: &Audit,
    ) -> Result<bool, CallError> {
        let call = raise_mark::call(&self.shard(sale, shard), mark, audit);
        Ok(raise_mark::parse(&self.redis.run(&call).await?)?)
    }

    /// Makes a shard cold and deletes its mark, so that a rebuild reads everything from SQL.
    pub async fn forget(&self, sale: &SaleId, shard: u32) -> Result<(), CallError> {
        let keys = self.shard(sale, shard);
        let keys = [keys.stock(), keys.sums(), keys.mark()];
        self.redis.send(redis::cmd("UNLINK").arg(&keys)).await?;
        Ok(())
    }

    /// Applies a shard's share of a stock change.
    pub async fn change(
        &self,
        sale: &SaleId,
        shard: u32,
        change: StockChange,
    ) -> Result<StockChanged, CallError> {
        let call = stock_change::call(&self.shard(sale, shard), change);
        Ok(stock_change::parse(&self.redis.run(&call).await?)?)
    }

    /// Starts the rebuild of a cold shard: deletes its data.
    pub async fn wipe(
        &self,
        sale: &SaleId,
        shard: u32,
        token: &str,
        lease_ms: u64,
    ) -> Result<WipeReply, CallError> {
        let call = wipe::call(&self.shard(sale, shard), token, lease_ms);
        Ok(wipe::parse(&self.redis.run(&call).await?)?)
    }

    /// Writes users' orders to a cold shard. Returns false if it is not cold, or another origin rebuilds it.
    pub async fn restore(
        &self,
        sale: &SaleId,
        shard: u32,
        token: &str,
        users: &[(&UserId, &[OrderEntry])],
    ) -> Result<bool, CallError> {
        let call = restore::call(&self.shard(sale, shard), token, users);
        Ok(restore::parse(&self.redis.run(&call).await?)?)
    }

    /// Deletes all keys of a shard except its idempotency keys, which expire.
    pub async fn clear(&self, sale: &SaleId, shard: u32) -> Result<(), CallError> {
        let keys = self.shard(sale, shard);
        let sets = (0..BUCKETS).flat_map(|bucket| [keys.reserved(bucket), keys.blocked(bucket)]);
        let keys: Vec<Vec<u8>> = keys.ledger().into_iter().chain(sets).collect();
        for some in keys.chunks(COMMANDS_AT_ONCE) {
            self.redis.send(redis::cmd("UNLINK").arg(some)).await?;
        }
        Ok(())
    }

    /// Scans users of a bucket with orders and no open claim. Returns some of them and the next cursor. The scan starts
    /// and ends with cursor 0.
    pub async fn settled_page(
        &self,
        sale: &SaleId,
        shard: u32,
        bucket: u32,
        cursor: u64,
    ) -> Result<(u64, Vec<(UserId, Vec<OrderEntry>)>), CallError> {
        let mut scan = redis::cmd("HSCAN");
        scan.arg(self.shard(sale, shard).bought_in(bucket));
        scan.arg(cursor).arg("COUNT").arg(SCAN_LEN);
        let reply = self.redis.send(&scan).await?;
        let (cursor, fields): (u64, Vec<Vec<u8>>) = redis::from_redis_value(reply)
            .map_err(|error| CallError::unexpected("invalid reply of HSCAN", error.to_string()))?;
        let pairs = fields.chunks_exact(2);
        let users = pairs.filter_map(|pair| {
            let [user, orders] = pair else { return None };
            Some((UserId::new(user).ok()?, record::read_orders(orders)?))
        });
        Ok((cursor, users.collect()))
    }

    /// Reads users' orders on a shard. The result is empty for users without orders in Redis and for users with an open
    /// claim.
    pub async fn settled(
        &self,
        sale: &SaleId,
        shard: u32,
        users: &[UserId],
    ) -> Result<Vec<Vec<OrderEntry>>, CallError> {
        let keys = self.shard(sale, shard);
        let get = |user: &UserId| {
            let mut get = redis::cmd("HGET");
            get.arg(keys.bought_in(bucket(user))).arg(user.as_str());
            get
        };
        let replies = self.redis.send_all(users.iter().map(get).collect()).await?;
        let orders = |reply| match reply {
            redis::Value::BulkString(text) => record::read_orders(&text).unwrap_or_default(),
            _ => vec![],
        };
        Ok(replies.into_iter().map(orders).collect())
    }

    /// Overwrites a user's orders in Redis from SQL, if Redis still has the orders in `entries` and the user has no open
    /// claim.
    pub async fn correct(
        &self,
        sale: &SaleId,
        shard: u32,
        user: &UserId,
        entries: &[OrderEntry],
        orders: &[OrderEntry],
    ) -> Result<bool, CallError> {
        let call = correct::call(&self.shard(sale, shard), user, entries, orders);
        Ok(correct::parse(&self.redis.run(&call).await?)?)
    }

    /// Repairs the claims of a shard that has lost one of its keys, in small steps. Restores each claim's deadline, and
    /// recomputes the sums unless claims change meanwhile.
    pub async fn recount(
        &self,
        sale: &SaleId,
        shard: u32,
        audit: &Audit,
    ) -> Result<bool, CallError> {
        let keys = self.shard(sale, shard);
        let (mut cursor, mut claims) = (0, BTreeMap::new());
        loop {
            let mut scan = redis::cmd("HSCAN");
            scan.arg(keys.claims())
                .arg(cursor)
                .arg("COUNT")
                .arg(SCAN_LEN);
            let reply = self.redis.send(&scan).await?;
            let (next, fields): (u64, Vec<Vec<u8>>) =
                redis::from_redis_value(reply).map_err(|error| {
                    CallError::unexpected("invalid reply of HSCAN", error.to_string())
                })?;
            for pair in fields.chunks_exact(2) {
                if let [user, record] = pair
                    && let Some((held, deadline_ms)) = record::read_claim(record)
                {
                    let mut add = redis::cmd("ZADD");
                    add.arg(keys.pending()).arg("NX").arg(deadline_ms).arg(user);
                    self.redis.send(&add).await?;
                    claims.insert(user.clone(), held);
                }
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        let sums = Audit {
            open: claims.len() as u64,
            held: claims.values().sum(),
            ..audit.clone()
        };
        self.write_sums(sale, shard, &sums).await
    }

    /// Writes a shard's sums if its version is unchanged.
    pub async fn write_sums(
        &self,
        sale: &SaleId,
        shard: u32,
        sums: &Audit,
    ) -> Result<bool, CallError> {
        let call = recount::call(&self.shard(sale, shard), sums);
        Ok(recount::parse(&self.redis.run(&call).await?)?)
    }

    /// Publishes a catalogue as JSON. Returns false if Redis has a later version.
    pub async fn publish(&self, version: u64, catalogue: &[u8]) -> Result<bool, CallError> {
        let call = publish::call(self.redis.prefix(), version, catalogue);
        Ok(publish::parse(&self.redis.run(&call).await?)?)
    }

    /// The random name of this Redis. The first origin that asks gives it `new`.
    pub async fn identity(&self, new: &str) -> Result<String, CallError> {
        let key = keys::identity(self.redis.prefix());
        let mut set = redis::cmd("SET");
        self.redis.send(set.arg(&key).arg(new).arg("NX")).await?;
        let name = self.redis.send(redis::cmd("GET").arg(&key)).await?;
        redis::from_redis_value(name)
            .map_err(|error| CallError::unexpected("invalid reply of GET", error.to_string()))
    }

    /// Prefix of all keys.
    pub(crate) fn key_prefix(&self) -> &str {
        self.redis.prefix()
    }

    /// Reads the published catalogue.
    pub async fn published(&self) -> Result<Option<Vec<u8>>, CallError> {
        let key = keys::catalogue(self.redis.prefix());
        match self.redis.send(redis::cmd("GET").arg(key)).await? {
            redis::Value::BulkString(json) => Ok(Some(json)),
            _ => Ok(None),
        }
    }
}

type Joined = Option<Result<Result<redis::Value, CallError>, JoinError>>;

fn joined(outcome: Joined) -> Result<(), CallError> {
    match outcome {
        Some(reply) => reply?.map(drop),
        None => Ok(()),
    }
}
