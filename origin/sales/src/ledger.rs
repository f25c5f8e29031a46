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
use weir_sale::shard::{BUCKETS, bucket, home_shard};

use super::store::OrderedAttempt;
use super::verdicts::Verdicts;
use crate::jobs::list_changes::{ListChange, ListChanges};
pub use crate::model::claim_key::ClaimKey;
pub use crate::model::user_list::UserList;
use weir_origin_core::redis::{CallError, Redis};

/// How many commands of one page of users run at once: enough to fill the connection, few beside what orders send.
const COMMANDS_AT_ONCE: usize = 64;

/// The users of one step through many: few enough for a step to take far less than a millisecond.
const SCAN_LEN: u32 = 100;

/// The admission ledger of all sales. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Ledger {
    redis: Redis,
    changes: Arc<Mutex<ListChanges>>,
}

impl Ledger {
    /// The ledger on this Redis.
    pub fn new(redis: Redis) -> Self {
        Self {
            redis,
            changes: Arc::default(),
        }
    }

    /// What gateways tell of their decisions about a sale.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn verdicts(&self, sale: &SaleId) -> Result<Verdicts, CallError> {
        Verdicts::read(&self.redis, sale).await
    }

    fn shard(&self, sale: &SaleId, shard: u32) -> ShardKeys {
        ShardKeys::new(self.redis.prefix(), sale, shard)
    }

    /// The claim became an order.
    ///
    /// # Errors
    /// See [`CallError`]; the same goes for all methods below.
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

    /// A deferred order was paid: its units leave the stock.
    pub async fn charge(&self, claim: impl Into<ClaimKey>) -> Result<FollowUpReply, CallError> {
        let claim = claim.into();
        let keys = self.shard(&claim.sale, claim.shard);
        let call = charge::call(&keys, &claim.user, claim.generation);
        Ok(charge::parse(&self.redis.run(&call).await?)?)
    }

    /// The order ended: its units return to the stock.
    pub async fn cancel(&self, claim: impl Into<ClaimKey>) -> Result<FollowUpReply, CallError> {
        let claim = claim.into();
        let keys = self.shard(&claim.sale, claim.shard);
        let call = cancel::call(&keys, &claim.user, claim.generation);
        Ok(cancel::parse(&self.redis.run(&call).await?)?)
    }

    /// The claim ended without an order.
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

    /// Adds users to the sale's reserved or blocked ones. They are looked at again later: see
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

    /// Adds users who are at home on one of `shards`, or all if that is `None`: one command a set, many at a time.
    pub async fn write_users(
        &self,
        sale: &Sale,
        list: UserList,
        users: &[UserId],
        shards: Option<&[u32]>,
    ) -> Result<(), CallError> {
        let mut sets: BTreeMap<Vec<u8>, Vec<&UserId>> = BTreeMap::new();
        for user in users {
            let is_wanted = |shards: &[u32]| shards.contains(&home_shard(user, sale.shards));
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

    /// Says again which claim each attempt was granted.
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

    /// Takes a user off the sale's reserved or blocked ones.
    pub async fn remove_user(
        &self,
        sale: &Sale,
        list: UserList,
        user: &UserId,
    ) -> Result<(), CallError> {
        self.note_change(sale, list, user);
        self.erase_user(sale, list, user).await
    }

    /// As [`Ledger::remove_user`], for whoever knows that it is a repetition.
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

    /// Has gateways refuse a user at home on this shard.
    pub async fn bar(&self, sale: &SaleId, shard: u32, user: &UserId) -> Result<(), CallError> {
        let set = self.shard(sale, shard).blocked(bucket(user));
        let mut add = redis::cmd("SADD");
        self.redis.send(add.arg(set).arg(user.as_str())).await?;
        Ok(())
    }

    /// Has gateways refuse the user no longer.
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

    /// The users whose lists changed so long ago that Redis may have lost that and never will again: they are to be
    /// written once more, as SQL has them.
    pub fn changed_lists(&self) -> Vec<ListChange> {
        let due = self.changes.lock().map(|mut changes| changes.due());
        due.unwrap_or_default()
    }

    fn user_set(&self, sale: &Sale, list: UserList, user: &UserId) -> Vec<u8> {
        let keys = self.shard(&sale.id, home_shard(user, sale.shards));
        match list {
            UserList::Reserved => keys.reserved(bucket(user)),
            UserList::Blocked => keys.blocked(bucket(user)),
        }
    }

    /// Puts `units` on a cold shard: one that was never in use, or the one that the rebuild of this token ends with. False
    /// if it holds stock already, or another rebuilds it.
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

    /// Whether a shard holds stock, even 0 units.
    pub async fn is_warm(&self, sale: &SaleId, shard: u32) -> Result<bool, CallError> {
        let stock = self.shard(sale, shard).stock();
        let reply = self.redis.send(redis::cmd("EXISTS").arg(stock)).await?;
        Ok(reply == redis::Value::Int(1))
    }

    /// The terms of the invariant.
    pub async fn audit(&self, sale: &SaleId, shard: u32) -> Result<Audit, CallError> {
        let call = audit::call(&self.shard(sale, shard));
        Ok(audit::parse(&self.redis.run(&call).await?)?)
    }

    /// The terms of all shards of a sale, in their order. All are asked at once.
    pub async fn audits(&self, sale: &SaleId, shards: u32) -> Result<Vec<Audit>, CallError> {
        let mut tasks = JoinSet::new();
        for shard in 0..shards {
            let (ledger, sale) = (self.clone(), sale.clone());
            tasks.spawn(async move { (shard, ledger.audit(&sale, shard).await) });
        }
        let mut audits = vec![Audit::default(); shards as usize];
        while let Some(joined) = tasks.join_next().await {
            let (shard, audit) = joined?;
            if let Some(place) = audits.get_mut(shard as usize) {
                *place = audit?;
            }
        }
        Ok(audits)
    }

    /// The time by Redis' clock, which is that of deadlines.
    pub async fn now_ms(&self) -> Result<u64, CallError> {
        let time = self.redis.send(&redis::cmd("TIME")).await?;
        let (seconds, micros): (u64, u64) = redis::from_redis_value(time.clone())
            .map_err(|_| CallError::unexpected("invalid reply of TIME", format!("{time:?}")))?;
        Ok(seconds * 1_000 + micros / 1_000)
    }

    /// How many open claims of a shard have a deadline of `due_ms` or earlier.
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

    /// At most `limit` claims whose deadline passed `grace_ms` ago or earlier, the earliest first.
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

    /// At most `limit` open claims, whatever their deadlines.
    pub async fn open_claims(
        &self,
        sale: &SaleId,
        shard: u32,
        limit: u32,
    ) -> Result<Vec<Overdue>, CallError> {
        let call = overdue::all(&self.shard(sale, shard), limit);
        Ok(overdue::parse(&self.redis.run(&call).await?)?)
    }

    /// Units leave a shard for another.
    pub async fn lend(
        &self,
        sale: &SaleId,
        from_shard: u32,
        to_shard: u32,
        wanted: u64,
    ) -> Result<LendReply, CallError> {
        let keys = self.shard(sale, from_shard);
        let call = lend::call(&keys, to_shard, wanted);
        Ok(lend::parse(&self.redis.run(&call).await?)?)
    }

    /// Lent units arrive.
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

    /// The lender forgets a transfer that has arrived.
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

    /// Adds `units` to a shard's stock, or takes them, if it is still as `seen`.
    pub async fn restock(
        &self,
        sale: &SaleId,
        shard: u32,
        units: i64,
        seen: &Audit,
    ) -> Result<bool, CallError> {
        let call = restock::call(&self.shard(sale, shard), units, seen);
        Ok(restock::parse(&self.redis.run(&call).await?)?)
    }

    /// Sets a shard's mark to what SQL counts, if it is still as `seen` and has a lower one.
    pub async fn raise_mark(
        &self,
        sale: &SaleId,
        shard: u32,
        mark: u64,
        seen: &Audit,
    ) -> Result<bool, CallError> {
        let call = raise_mark::call(&self.shard(sale, shard), mark, seen);
        Ok(raise_mark::parse(&self.redis.run(&call).await?)?)
    }

    /// Makes a shard cold and deletes its mark, so that a rebuild takes all of it from SQL.
    pub async fn forget(&self, sale: &SaleId, shard: u32) -> Result<(), CallError> {
        let keys = self.shard(sale, shard);
        let keys = [keys.stock(), keys.sums(), keys.mark()];
        self.redis.send(redis::cmd("UNLINK").arg(&keys)).await?;
        Ok(())
    }

    /// Tells a shard its part of a change of the sale's stock.
    pub async fn change(
        &self,
        sale: &SaleId,
        shard: u32,
        change: StockChange,
    ) -> Result<StockChanged, CallError> {
        let call = stock_change::call(&self.shard(sale, shard), change);
        Ok(stock_change::parse(&self.redis.run(&call).await?)?)
    }

    /// Begins the rebuild of a cold shard: clears it.
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

    /// Writes users' orders on a cold shard; false if it is not cold, or another rebuilds it.
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

    /// Deletes all that a shard has in Redis but its attempts, which expire.
    pub async fn clear(&self, sale: &SaleId, shard: u32) -> Result<(), CallError> {
        let keys = self.shard(sale, shard);
        let sets = (0..BUCKETS).flat_map(|bucket| [keys.reserved(bucket), keys.blocked(bucket)]);
        let keys: Vec<Vec<u8>> = keys.ledger().into_iter().chain(sets).collect();
        for some in keys.chunks(COMMANDS_AT_ONCE) {
            self.redis.send(redis::cmd("UNLINK").arg(some)).await?;
        }
        Ok(())
    }

    /// One step through the users of a bucket of a shard who have orders and no open claim: some of them, and the cursor
    /// of the next step; 0 is the first and the last.
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

    /// The orders of users at home on one shard, as Redis knows them: empty for one whom it knows nothing of, or who
    /// holds a claim.
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

    /// Writes a user's orders as SQL knows them, if Redis has those that were `seen`, and no claim is open.
    pub async fn correct(
        &self,
        sale: &SaleId,
        shard: u32,
        user: &UserId,
        seen: &[OrderEntry],
        orders: &[OrderEntry],
    ) -> Result<bool, CallError> {
        let call = correct::call(&self.shard(sale, shard), user, seen, orders);
        Ok(correct::parse(&self.redis.run(&call).await?)?)
    }

    /// Puts right the claims of a shard of which Redis was made to forget a key: each claim gets its deadline again, and
    /// the sums are what the claims add up to, if no claim comes or goes meanwhile. It goes in small steps.
    pub async fn recount(
        &self,
        sale: &SaleId,
        shard: u32,
        seen: &Audit,
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
            ..seen.clone()
        };
        self.write_sums(sale, shard, &sums).await
    }

    /// Writes a shard's sums, if it is still of their version.
    pub async fn write_sums(
        &self,
        sale: &SaleId,
        shard: u32,
        sums: &Audit,
    ) -> Result<bool, CallError> {
        let call = recount::call(&self.shard(sale, shard), sums);
        Ok(recount::parse(&self.redis.run(&call).await?)?)
    }

    /// Gives gateways a new catalogue, as JSON; false if they have a later one.
    pub async fn publish(&self, version: u64, catalogue: &[u8]) -> Result<bool, CallError> {
        let call = publish::call(self.redis.prefix(), version, catalogue);
        Ok(publish::parse(&self.redis.run(&call).await?)?)
    }

    /// What every key begins with.
    pub(crate) fn key_prefix(&self) -> &str {
        self.redis.prefix()
    }

    /// The catalogue that gateways read.
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
