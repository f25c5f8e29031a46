//! The admission ledger in Redis, through Weir's scripts.

use std::collections::BTreeMap;

use tokio::task::{JoinError, JoinSet};
use weir_base::id::{SaleId, UserId};
use weir_sale::claim::Ticket;
use weir_sale::ledger::{
    Audit, Deduction, DepositReply, LendReply, OrderEntry, Overdue, ReleaseKind, ReleaseReply,
    SettleReply, ShardProbe, Transfer,
};
use weir_sale::sale::Sale;
use weir_sale::shard::{BUCKETS, bucket, home_shard};
use weir_scripts::keys::{self, ShardKeys};
use weir_scripts::{
    audit, cancel, charge, claim, deposit, lend, overdue, probe, release, restock, restore, settle,
    settle_transfer, warm, wipe,
};

use super::store::{OrderedAttempt, StoredOrder};
use crate::clock::now_ms;
use crate::redis::{CallError, Redis};

/// How many commands of one page of users run at once: enough to fill the connection, few beside what orders send.
const COMMANDS_AT_ONCE: usize = 64;

/// Names a claim in Redis: that of a ticket, or the one that an order came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimKey {
    sale: SaleId,
    shard: u32,
    generation: u64,
    user: UserId,
}

impl From<&Ticket> for ClaimKey {
    fn from(ticket: &Ticket) -> Self {
        Self {
            sale: ticket.sale.clone(),
            shard: ticket.shard,
            generation: ticket.generation,
            user: ticket.user.clone(),
        }
    }
}

impl From<&StoredOrder> for ClaimKey {
    fn from(order: &StoredOrder) -> Self {
        Self {
            sale: order.sale.clone(),
            shard: order.shard,
            generation: order.generation,
            user: order.user.clone(),
        }
    }
}

/// The lists of users that a sale has in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserList {
    /// Who has reserved.
    Reserved,
    /// Who may not buy.
    Blocked,
}

/// The admission ledger of all sales. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Ledger {
    redis: Redis,
}

impl Ledger {
    /// The ledger on this Redis.
    pub fn new(redis: Redis) -> Self {
        Self { redis }
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

    /// A deferred order was paid: its units leave the stock. False if it was charged before.
    pub async fn charge(&self, claim: impl Into<ClaimKey>) -> Result<bool, CallError> {
        let claim = claim.into();
        let keys = self.shard(&claim.sale, claim.shard);
        let call = charge::call(&keys, &claim.user, claim.generation);
        Ok(charge::parse(&self.redis.run(&call).await?)?)
    }

    /// The order ended: its units return to the stock. False if Redis knows nothing of it.
    pub async fn cancel(&self, claim: impl Into<ClaimKey>) -> Result<bool, CallError> {
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

    /// Adds users to the sale's reserved or blocked ones: one command a set, many at a time.
    pub async fn add_users(
        &self,
        sale: &Sale,
        list: UserList,
        users: &[UserId],
    ) -> Result<(), CallError> {
        let mut sets: BTreeMap<Vec<u8>, Vec<&UserId>> = BTreeMap::new();
        for user in users {
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
    pub async fn unbar(&self, sale: &SaleId, shard: u32, user: &UserId) -> Result<(), CallError> {
        let set = self.shard(sale, shard).blocked(bucket(user));
        let mut remove = redis::cmd("SREM");
        self.redis.send(remove.arg(set).arg(user.as_str())).await?;
        Ok(())
    }

    fn user_set(&self, sale: &Sale, list: UserList, user: &UserId) -> Vec<u8> {
        let keys = self.shard(&sale.id, home_shard(user, sale.shards));
        match list {
            UserList::Reserved => keys.reserved(bucket(user)),
            UserList::Blocked => keys.blocked(bucket(user)),
        }
    }

    /// Puts `units` on a shard that is cold; false if it holds stock already.
    pub async fn warm(
        &self,
        sale: &SaleId,
        shard: u32,
        units: u64,
        now_ms: u64,
    ) -> Result<bool, CallError> {
        let call = warm::call(&self.shard(sale, shard), units, now_ms);
        Ok(warm::parse(&self.redis.run(&call).await?)?)
    }

    /// Whether a shard holds stock, even 0 units.
    pub async fn is_warm(&self, sale: &SaleId, shard: u32) -> Result<bool, CallError> {
        let stock = self.shard(sale, shard).stock();
        let reply = self.redis.send(redis::cmd("EXISTS").arg(stock)).await?;
        Ok(reply == redis::Value::Int(1))
    }

    /// The terms of the invariant. It reads every record of the shard: too slow for a request's path.
    pub async fn audit(&self, sale: &SaleId, shard: u32) -> Result<Audit, CallError> {
        let call = audit::call(&self.shard(sale, shard));
        Ok(audit::parse(&self.redis.run(&call).await?)?)
    }

    /// All shards of a sale at a glance, in their order.
    pub async fn probe(&self, sale: &SaleId, shards: u32) -> Result<Vec<ShardProbe>, CallError> {
        let mut seen = Vec::new();
        for shard in 0..shards {
            // One call each: on a cluster they are of different slots.
            let call = probe::call(&[self.shard(sale, shard)]);
            seen.extend(probe::parse(&self.redis.run(&call).await?, 1)?);
        }
        Ok(seen)
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
                "ZCOUNT gave no number",
                format!("{other:?}"),
            )),
        }
    }

    /// At most `limit` claims whose deadline is `due_ms` or earlier, the earliest first.
    pub async fn overdue(
        &self,
        sale: &SaleId,
        shard: u32,
        due_ms: u64,
        limit: u32,
    ) -> Result<Vec<Overdue>, CallError> {
        let call = overdue::call(&self.shard(sale, shard), due_ms, limit);
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
        let call = lend::call(&keys, to_shard, wanted, now_ms());
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

    /// Clears a cold shard before it is rebuilt; false if it is not cold.
    pub async fn wipe(&self, sale: &SaleId, shard: u32) -> Result<bool, CallError> {
        let call = wipe::call(&self.shard(sale, shard));
        Ok(wipe::parse(&self.redis.run(&call).await?)?)
    }

    /// Writes users' orders on a cold shard; false if it is not cold.
    pub async fn restore(
        &self,
        sale: &SaleId,
        shard: u32,
        users: &[(&UserId, &[OrderEntry])],
    ) -> Result<bool, CallError> {
        let call = restore::call(&self.shard(sale, shard), users);
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

    /// Gives gateways a new catalogue, as JSON.
    pub async fn publish(&self, catalogue: &[u8]) -> Result<(), CallError> {
        let key = keys::catalogue(self.redis.prefix());
        self.redis
            .send(redis::cmd("SET").arg(key).arg(catalogue))
            .await?;
        Ok(())
    }
}

type Joined = Option<Result<Result<redis::Value, CallError>, JoinError>>;

fn joined(outcome: Joined) -> Result<(), CallError> {
    match outcome {
        Some(reply) => reply?.map(drop),
        None => Ok(()),
    }
}
