//! Redis access through Weir's scripts: see `origin/sales/src/ledger.rs`.

use weir_base::id::{SaleId, UserId};
use weir_base::resp::{Value, encode_command};
use weir_sale::claim::Ticket;
use weir_sale::ledger::{
    Audit, Deduction, DepositReply, FollowUpReply, LendReply, OrderEntry, Overdue, ReleaseKind,
    StockChange, StockChanged, Transfer, WipeReply,
};
use weir_sale::redis::keys::{self, ShardKeys};
use weir_sale::redis::{
    audit, cancel, charge, claim, correct, deposit, lend, overdue, publish, raise_mark, record,
    recount, release, restock, restore, settle, settle_transfer, stock_change, warm, wipe,
};
use weir_sale::sale::Sale;
use weir_sale::shard::bucket;
use weir_scripts::ReplyError;
use weir_scripts::keys::DEFAULT_PREFIX;

use super::io::{Io, RedisError};
use crate::attempt::Attempt;
use crate::sql::Order;

type Result<T> = std::result::Result<T, RedisError>;

impl From<ReplyError> for RedisError {
    fn from(_: ReplyError) -> Self {
        Self
    }
}

/// The lists of users that a sale has in Redis.
#[derive(Clone, Copy)]
pub(super) enum UserList {
    Reserved,
    Blocked,
}

/// A handle to Redis.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    pub(super) io: Io,
    pub(super) sale: SaleId,
}

impl Ledger {
    fn keys(&self, shard: u32) -> ShardKeys {
        ShardKeys::new(DEFAULT_PREFIX, &self.sale, shard)
    }

    pub(super) async fn settle(&self, order: &Order, deduction: Deduction) -> Result<()> {
        let (shard, generation) = order.name;
        let call = settle::call(&self.keys(shard), &order.user, generation, deduction);
        settle::parse(&self.io.run(&call).await?)?;
        Ok(())
    }

    pub(super) async fn charge(&self, order: &Order) -> Result<FollowUpReply> {
        let (shard, generation) = order.name;
        let call = charge::call(&self.keys(shard), &order.user, generation);
        Ok(charge::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn cancel(&self, order: &Order) -> Result<FollowUpReply> {
        let (shard, generation) = order.name;
        let call = cancel::call(&self.keys(shard), &order.user, generation);
        Ok(cancel::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn release(&self, ticket: &Ticket, kind: ReleaseKind) -> Result<()> {
        let claims = [(&ticket.user, ticket.generation, kind)];
        let call = release::call(&self.keys(ticket.shard), &claims);
        release::parse(&self.io.run(&call).await?, 1)?;
        Ok(())
    }

    pub(super) async fn add_users(
        &self,
        sale: &Sale,
        list: UserList,
        users: Vec<UserId>,
    ) -> Result<()> {
        for user in users {
            let keys = self.keys(sale.home_shard(&user));
            let set = match list {
                UserList::Reserved => keys.reserved(bucket(&user)),
                UserList::Blocked => keys.blocked(bucket(&user)),
            };
            let mut command = Vec::new();
            encode_command(
                &mut command,
                [b"SADD".as_slice(), &set, user.as_str().as_bytes()],
            );
            self.io.send(command).await?;
        }
        Ok(())
    }

    /// Restores the claim of each attempt.
    pub(super) async fn add_attempts(
        &self,
        shard: u32,
        attempts: Vec<(UserId, u32, u64)>,
    ) -> Result<()> {
        for (user, key, generation) in attempts {
            let key = self
                .keys(shard)
                .attempt(&user, Attempt { key, body: 0 }.tag());
            let (generation, ttl_ms) = (generation.to_string(), claim::ATTEMPT_TTL_MS.to_string());
            let words = [
                b"SET".as_slice(),
                &key,
                generation.as_bytes(),
                b"PX",
                ttl_ms.as_bytes(),
            ];
            let mut command = Vec::new();
            encode_command(&mut command, words);
            self.io.send(command).await?;
        }
        Ok(())
    }

    pub(super) async fn warm(&self, shard: u32, units: u64, token: Option<&str>) -> Result<bool> {
        let call = warm::call(&self.keys(shard), units, token);
        Ok(warm::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn audit(&self, shard: u32) -> Result<Audit> {
        let call = audit::call(&self.keys(shard));
        Ok(audit::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn audits(&self, sale: &Sale) -> Result<Vec<Audit>> {
        let mut audits = Vec::new();
        for shard in sale.shard_numbers() {
            audits.push(self.audit(shard).await?);
        }
        Ok(audits)
    }

    pub(super) async fn now_ms(&self) -> Result<u64> {
        let mut command = Vec::new();
        encode_command(&mut command, [b"TIME".as_slice()]);
        let Value::Array(parts) = self.io.send(command).await? else {
            return Err(RedisError);
        };
        let [seconds, micros] = parts.as_slice() else {
            return Err(RedisError);
        };
        Ok(digits(seconds)? * 1_000 + digits(micros)? / 1_000)
    }

    pub(super) async fn overdue(&self, shard: u32, grace_ms: u64) -> Result<Vec<Overdue>> {
        const OVERDUE_MAX: u32 = 500;
        let call = overdue::call(&self.keys(shard), grace_ms, OVERDUE_MAX);
        Ok(overdue::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn open_claims(&self, shard: u32) -> Result<Vec<Overdue>> {
        const OPEN_MAX: u32 = 200;
        let call = overdue::all(&self.keys(shard), OPEN_MAX);
        Ok(overdue::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn lend(&self, from: u32, to: u32, expected: u64) -> Result<LendReply> {
        let call = lend::call(&self.keys(from), to, expected);
        Ok(lend::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn deposit(
        &self,
        from: u32,
        to: u32,
        transfer: Transfer,
    ) -> Result<DepositReply> {
        let call = deposit::call(&self.keys(to), from, transfer);
        Ok(deposit::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn settle_transfer(&self, from: u32, to: u32, id: u64) -> Result<bool> {
        let call = settle_transfer::call(&self.keys(from), to, id);
        Ok(settle_transfer::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn restock(&self, shard: u32, units: i64, audit: &Audit) -> Result<bool> {
        let call = restock::call(&self.keys(shard), units, audit);
        Ok(restock::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn raise_mark(&self, shard: u32, mark: u64, audit: &Audit) -> Result<bool> {
        let call = raise_mark::call(&self.keys(shard), mark, audit);
        Ok(raise_mark::parse(&self.io.run(&call).await?)?)
    }

    /// Makes a shard cold and deletes its mark.
    pub(super) async fn forget(&self, shard: u32) -> Result<()> {
        let keys = self.keys(shard);
        let words = [b"UNLINK".to_vec(), keys.stock(), keys.sums(), keys.mark()];
        let mut command = Vec::new();
        encode_command(&mut command, words.iter().map(Vec::as_slice));
        self.io.send(command).await?;
        Ok(())
    }

    pub(super) async fn change(&self, shard: u32, change: StockChange) -> Result<StockChanged> {
        let call = stock_change::call(&self.keys(shard), change);
        Ok(stock_change::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn wipe(&self, shard: u32, token: &str, lease_ms: u64) -> Result<WipeReply> {
        let call = wipe::call(&self.keys(shard), token, lease_ms);
        Ok(wipe::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn restore(
        &self,
        shard: u32,
        token: &str,
        users: &[(&UserId, &[OrderEntry])],
    ) -> Result<bool> {
        let call = restore::call(&self.keys(shard), token, users);
        Ok(restore::parse(&self.io.run(&call).await?)?)
    }

    /// All users of a bucket who have orders and no open claim.
    pub(super) async fn settled_in(
        &self,
        shard: u32,
        bucket: u32,
    ) -> Result<Vec<(UserId, Vec<OrderEntry>)>> {
        let key = self.keys(shard).bought_in(bucket);
        let mut command = Vec::new();
        encode_command(&mut command, [b"HSCAN".as_slice(), &key, b"0"]);
        let read = |(user, orders): (Vec<u8>, Vec<u8>)| {
            let user = UserId::new(user).map_err(|_| RedisError)?;
            Ok((user, record::read_orders(&orders).ok_or(RedisError)?))
        };
        let fields = pairs(self.io.send(command).await?)?;
        fields.into_iter().map(read).collect()
    }

    pub(super) async fn settled(&self, shard: u32, user: &UserId) -> Result<Vec<OrderEntry>> {
        let key = self.keys(shard).bought_in(bucket(user));
        let mut command = Vec::new();
        encode_command(
            &mut command,
            [b"HGET".as_slice(), &key, user.as_str().as_bytes()],
        );
        match self.io.send(command).await? {
            Value::Bulk(orders) => record::read_orders(&orders).ok_or(RedisError),
            _ => Ok(vec![]),
        }
    }

    pub(super) async fn correct(
        &self,
        shard: u32,
        user: &UserId,
        entries: &[OrderEntry],
        orders: &[OrderEntry],
    ) -> Result<bool> {
        let call = correct::call(&self.keys(shard), user, entries, orders);
        Ok(correct::parse(&self.io.run(&call).await?)?)
    }

    /// Restores each open claim's deadline, and recalculates the sums from the claims.
    pub(super) async fn recount(&self, shard: u32, audit: &Audit) -> Result<()> {
        let keys = self.keys(shard);
        let mut command = Vec::new();
        encode_command(&mut command, [b"HSCAN".as_slice(), &keys.claims(), b"0"]);
        let (mut open, mut held) = (0, 0);
        for (user, record) in pairs(self.io.send(command).await?)? {
            let (units, deadline_ms) = record::read_claim(&record).ok_or(RedisError)?;
            let deadline = deadline_ms.to_string();
            let words = [
                b"ZADD".as_slice(),
                &keys.pending(),
                b"NX",
                deadline.as_bytes(),
                &user,
            ];
            let mut command = Vec::new();
            encode_command(&mut command, words);
            self.io.send(command).await?;
            open += 1;
            held += units;
        }
        let sums = Audit {
            open,
            held,
            ..audit.clone()
        };
        self.write_sums(shard, &sums).await
    }

    /// Writes a shard's sums if their version is unchanged.
    pub(super) async fn write_sums(&self, shard: u32, sums: &Audit) -> Result<()> {
        let call = recount::call(&self.keys(shard), sums);
        recount::parse(&self.io.run(&call).await?)?;
        Ok(())
    }

    pub(super) async fn publish(&self, version: u64, catalogue: &[u8]) -> Result<bool> {
        let call = publish::call(DEFAULT_PREFIX, version, catalogue);
        Ok(publish::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn published(&self) -> Result<Option<Vec<u8>>> {
        let key = keys::catalogue(DEFAULT_PREFIX);
        let mut command = Vec::new();
        encode_command(&mut command, [b"GET".as_slice(), &key]);
        match self.io.send(command).await? {
            Value::Bulk(json) => Ok(Some(json)),
            _ => Ok(None),
        }
    }
}

/// The fields and values of a page of a hash.
fn pairs(page: Value) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let Value::Array(page) = page else {
        return Err(RedisError);
    };
    let Some(Value::Array(fields)) = page.into_iter().nth(1) else {
        return Err(RedisError);
    };
    let pair = |pair: &[Value]| match pair {
        [Value::Bulk(field), Value::Bulk(value)] => Ok((field.clone(), value.clone())),
        _ => Err(RedisError),
    };
    fields.chunks(2).map(pair).collect()
}

fn digits(value: &Value) -> Result<u64> {
    let Value::Bulk(digits) = value else {
        return Err(RedisError);
    };
    let digits = std::str::from_utf8(digits).map_err(|_| RedisError)?;
    digits.parse().map_err(|_| RedisError)
}
