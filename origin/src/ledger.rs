//! Redis: the admission ledger, through Weir's scripts.
//!
//! Every call here may be made twice with the effect of once, so a call that found its connection
//! broken is made once more. What still fails is of unknown outcome.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};
use tokio::task::{JoinError, JoinSet};
use weir_base::id::{SaleId, UserId};
use weir_resp::Value;
use weir_sale::claim::Ticket;
use weir_sale::ledger::{
    Audit, Deduction, DepositReply, LendReply, OrderEntry, Overdue, ReleaseKind, ReleaseReply,
    SettleReply, ShardProbe, Transfer,
};
use weir_sale::sale::Sale;
use weir_sale::shard::{bucket, home_shard};
use weir_scripts::keys::{self, ShardKeys};
use weir_scripts::{
    Call, ReplyError, audit, cancel, charge, deposit, lend, overdue, probe, release, restock,
    restore, settle, settle_transfer, warm, wipe,
};

use crate::clock::now_ms;
use crate::redis_connection::RedisConnection;
use crate::store::StoredOrder;

/// How long one call may take, from first to last try. An order's answer waits for it, so it stays
/// far below a request's time limit.
const CALL_LIMIT: Duration = Duration::from_secs(1);

/// Commands of one page of users that are under way at once: enough to fill the connection, and
/// few beside what orders send.
const COMMANDS_AT_ONCE: usize = 64;

/// Which claim of Redis a call is about: that of a ticket, or that which an order came from.
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

/// A handle to Redis. Cloning it is cheap: all share one connection.
#[derive(Clone)]
pub struct Ledger {
    link: RedisConnection,
    prefix: Arc<str>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the link: its URL may hold a password.
        f.debug_struct("Ledger")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Why Redis gave no answer of use. Whether it did what it was asked is unknown.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The connection or the command failed.
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    /// The reply is not one of the script's.
    #[error("Redis: {0}")]
    Reply(#[from] ReplyError),
    /// A task that asked it broke off.
    #[error("Redis: {0}")]
    Task(#[from] JoinError),
    /// No answer in time.
    #[error("Redis: no answer within {CALL_LIMIT:?}")]
    Timeout,
}

impl LedgerError {
    /// The first word of Redis' own error, such as `NOGROUP`.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Redis(error) => error.code(),
            _ => None,
        }
    }
}

impl Ledger {
    /// A handle to the Redis at `url`, or to the cluster at several with commas between them,
    /// whose keys all start with `prefix`. Connects when it is first used, so Redis may be down
    /// now. Needs a tokio runtime.
    ///
    /// # Errors
    /// When `url` is not one of Redis'.
    pub fn new(url: &str, prefix: &str) -> Result<Self, RedisError> {
        Ok(Self {
            link: RedisConnection::open(url)?,
            prefix: prefix.into(),
        })
    }

    /// What every key starts with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    fn shard(&self, sale: &SaleId, shard: u32) -> ShardKeys {
        ShardKeys::new(&self.prefix, sale, shard)
    }

    /// The claim became an order.
    ///
    /// # Errors
    /// See [`LedgerError`]; so for all that follow.
    pub async fn settle(
        &self,
        claim: impl Into<ClaimKey>,
        deduction: Deduction,
    ) -> Result<SettleReply, LedgerError> {
        let claim = claim.into();
        let keys = self.shard(&claim.sale, claim.shard);
        let call = settle::call(&keys, &claim.user, claim.generation, deduction);
        Ok(settle::parse(&self.run(&call).await?)?)
    }

    /// A deferred order was paid: its units leave the stock. False if it was charged before.
    pub async fn charge(&self, claim: impl Into<ClaimKey>) -> Result<bool, LedgerError> {
        let claim = claim.into();
        let keys = self.shard(&claim.sale, claim.shard);
        let call = charge::call(&keys, &claim.user, claim.generation);
        Ok(charge::parse(&self.run(&call).await?)?)
    }

    /// The order ended: its units return to the stock. False if Redis knows nothing of it.
    pub async fn cancel(&self, claim: impl Into<ClaimKey>) -> Result<bool, LedgerError> {
        let claim = claim.into();
        let keys = self.shard(&claim.sale, claim.shard);
        let call = cancel::call(&keys, &claim.user, claim.generation);
        Ok(cancel::parse(&self.run(&call).await?)?)
    }

    /// The claim ended without an order.
    pub async fn release(
        &self,
        claim: impl Into<ClaimKey>,
        kind: ReleaseKind,
    ) -> Result<ReleaseReply, LedgerError> {
        let claim = claim.into();
        let keys = self.shard(&claim.sale, claim.shard);
        let call = release::call(&keys, &[(&claim.user, claim.generation, kind)]);
        let replies = release::parse(&self.run(&call).await?, 1)?;
        Ok(replies.first().copied().unwrap_or(ReleaseReply::Nothing))
    }

    /// Adds users to the sale's reserved or blocked ones: one command a set, many at a time.
    pub async fn add_users(
        &self,
        sale: &Sale,
        list: UserList,
        users: &[UserId],
    ) -> Result<(), LedgerError> {
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
            let ledger = self.clone();
            tasks.spawn(async move { ledger.send(&add).await });
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
    ) -> Result<(), LedgerError> {
        let set = self.user_set(sale, list, user);
        let mut remove = redis::cmd("SREM");
        self.send(remove.arg(set).arg(user.as_str())).await?;
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
    ) -> Result<bool, LedgerError> {
        let call = warm::call(&self.shard(sale, shard), units, now_ms);
        Ok(warm::parse(&self.run(&call).await?)?)
    }

    /// Whether a shard holds stock, be it 0 units.
    pub async fn is_warm(&self, sale: &SaleId, shard: u32) -> Result<bool, LedgerError> {
        let stock = self.shard(sale, shard).stock();
        let reply = self.send(redis::cmd("EXISTS").arg(stock)).await?;
        Ok(reply == redis::Value::Int(1))
    }

    /// The terms of the invariant. Reads every record of the shard: not for the way of a request.
    pub async fn audit(&self, sale: &SaleId, shard: u32) -> Result<Audit, LedgerError> {
        let call = audit::call(&self.shard(sale, shard));
        Ok(audit::parse(&self.run(&call).await?)?)
    }

    /// All shards of a sale at a glance, in their order.
    pub async fn probe(&self, sale: &SaleId, shards: u32) -> Result<Vec<ShardProbe>, LedgerError> {
        let mut seen = Vec::new();
        for shard in 0..shards {
            // One call each: on a cluster they are of different slots.
            let call = probe::call(&[self.shard(sale, shard)]);
            seen.extend(probe::parse(&self.run(&call).await?, 1)?);
        }
        Ok(seen)
    }

    /// How many open claims of a shard have a deadline of `due_ms` or earlier.
    pub async fn overdue_count(
        &self,
        sale: &SaleId,
        shard: u32,
        due_ms: u64,
    ) -> Result<u64, LedgerError> {
        let pending = self.shard(sale, shard).pending();
        let mut count = redis::cmd("ZCOUNT");
        count.arg(pending).arg("-inf").arg(due_ms);
        match self.send(&count).await? {
            redis::Value::Int(claims) => Ok(u64::try_from(claims).unwrap_or(0)),
            other => Err(RedisError::from((
                ErrorKind::UnexpectedReturnType,
                "ZCOUNT gave no number",
                format!("{other:?}"),
            ))
            .into()),
        }
    }

    /// At most `limit` claims whose deadline is `due_ms` or earlier, the earliest first.
    pub async fn overdue(
        &self,
        sale: &SaleId,
        shard: u32,
        due_ms: u64,
        limit: u32,
    ) -> Result<Vec<Overdue>, LedgerError> {
        let call = overdue::call(&self.shard(sale, shard), due_ms, limit);
        Ok(overdue::parse(&self.run(&call).await?)?)
    }

    /// Units leave a shard for another.
    pub async fn lend(
        &self,
        sale: &SaleId,
        from_shard: u32,
        to_shard: u32,
        wanted: u64,
    ) -> Result<LendReply, LedgerError> {
        let keys = self.shard(sale, from_shard);
        let call = lend::call(&keys, to_shard, wanted, now_ms());
        Ok(lend::parse(&self.run(&call).await?)?)
    }

    /// Lent units arrive.
    pub async fn deposit(
        &self,
        sale: &SaleId,
        from_shard: u32,
        to_shard: u32,
        transfer: Transfer,
    ) -> Result<DepositReply, LedgerError> {
        let call = deposit::call(&self.shard(sale, to_shard), from_shard, transfer);
        Ok(deposit::parse(&self.run(&call).await?)?)
    }

    /// The lender forgets a transfer that has arrived.
    pub async fn settle_transfer(
        &self,
        sale: &SaleId,
        from_shard: u32,
        to_shard: u32,
        id: u64,
    ) -> Result<bool, LedgerError> {
        let call = settle_transfer::call(&self.shard(sale, from_shard), to_shard, id);
        Ok(settle_transfer::parse(&self.run(&call).await?)?)
    }

    /// Adds `units` to a shard's stock, or takes them, if it is still as `seen`.
    pub async fn restock(
        &self,
        sale: &SaleId,
        shard: u32,
        units: i64,
        seen: &Audit,
    ) -> Result<bool, LedgerError> {
        let call = restock::call(&self.shard(sale, shard), units, seen);
        Ok(restock::parse(&self.run(&call).await?)?)
    }

    /// Clears a cold shard before it is rebuilt; false if it is not cold.
    pub async fn wipe(&self, sale: &SaleId, shard: u32) -> Result<bool, LedgerError> {
        let call = wipe::call(&self.shard(sale, shard));
        Ok(wipe::parse(&self.run(&call).await?)?)
    }

    /// Writes users' orders on a cold shard; false if it is not cold.
    pub async fn restore(
        &self,
        sale: &SaleId,
        shard: u32,
        users: &[(&UserId, &[OrderEntry])],
    ) -> Result<bool, LedgerError> {
        let call = restore::call(&self.shard(sale, shard), users);
        Ok(restore::parse(&self.run(&call).await?)?)
    }

    /// Gives gateways a new catalogue, as JSON.
    pub async fn publish(&self, catalogue: &[u8]) -> Result<(), LedgerError> {
        let key = keys::catalogue(&self.prefix);
        self.send(redis::cmd("SET").arg(key).arg(catalogue)).await?;
        Ok(())
    }

    /// Asks for a sign of life.
    pub async fn ping(&self) -> Result<(), LedgerError> {
        self.send(&redis::cmd("PING")).await.map(drop)
    }

    /// Runs a script, by its digest unless Redis does not know it.
    pub(crate) async fn run(&self, call: &Call) -> Result<Value, LedgerError> {
        let by_digest = command("EVALSHA", &call.script.sha1_hex(), call);
        let by_source = || command("EVAL", call.script.source, call);
        let value = in_time(async {
            match self.attempt(&by_digest).await {
                Err(error) if is_unknown_script(&error) => self.attempt(&by_source()).await,
                other => other,
            }
        });
        Ok(resp_value(value.await?))
    }

    /// Sends a command, again if its connection was broken.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<redis::Value, LedgerError> {
        in_time(self.attempt(command)).await
    }

    /// Sends commands at once: one after the other in a pipeline, or to a cluster side by side. Their replies
    /// come in their order; if one fails, all have failed.
    pub(crate) async fn send_all(
        &self,
        commands: Vec<Cmd>,
    ) -> Result<Vec<redis::Value>, LedgerError> {
        let answer = tokio::time::timeout(CALL_LIMIT, self.link.query_all(commands)).await;
        Ok(answer.map_err(|_| LedgerError::Timeout)??)
    }

    /// Sends a command, and once more if its connection turned out to be broken: the first call
    /// after Redis was away would fail otherwise.
    async fn attempt(&self, command: &Cmd) -> Result<redis::Value, RedisError> {
        match self.link.query(command).await {
            Err(error) if error.is_unrecoverable_error() => self.link.query(command).await,
            other => other,
        }
    }
}

type Joined = Option<Result<Result<redis::Value, LedgerError>, JoinError>>;

fn joined(outcome: Joined) -> Result<(), LedgerError> {
    match outcome {
        Some(reply) => reply?.map(drop),
        None => Ok(()),
    }
}

async fn in_time(
    exchange: impl Future<Output = Result<redis::Value, RedisError>>,
) -> Result<redis::Value, LedgerError> {
    let answer = tokio::time::timeout(CALL_LIMIT, exchange).await;
    Ok(answer.map_err(|_| LedgerError::Timeout)??)
}

fn command(name: &str, script: &str, call: &Call) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(call.keys.len());
    for argument in call.words() {
        command.arg(argument);
    }
    command
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The same value in the type that the scripts' readers take. What RESP2 cannot say is no reply of
/// a script, and becomes a null, which no reader takes.
fn resp_value(value: redis::Value) -> Value {
    match value {
        redis::Value::Int(number) => Value::Integer(number),
        redis::Value::BulkString(bytes) => Value::Bulk(bytes),
        redis::Value::Array(values) => Value::Array(values.into_iter().map(resp_value).collect()),
        redis::Value::SimpleString(text) => Value::Simple(text.into_bytes()),
        redis::Value::Okay => Value::Simple(b"OK".to_vec()),
        redis::Value::ServerError(error) => Value::Error(error.to_string().into_bytes()),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_keep_their_shape() {
        let reply = redis::Value::Array(vec![
            redis::Value::Int(-1),
            redis::Value::BulkString(b"\xff".to_vec()),
            redis::Value::Okay,
            redis::Value::Nil,
            redis::Value::Double(1.0),
        ]);
        let expected = Value::Array(vec![
            Value::Integer(-1),
            Value::Bulk(b"\xff".to_vec()),
            Value::Simple(b"OK".to_vec()),
            Value::Null,
            Value::Null,
        ]);
        assert_eq!(resp_value(reply), expected);
    }

    #[tokio::test]
    async fn a_password_in_the_url_stays_out_of_logs() {
        let ledger = Ledger::new("redis://:hush@127.0.0.1:1", "weir").unwrap();
        let shown = format!("{ledger:?}");
        assert!(shown.contains("weir") && !shown.contains("hush"), "{shown}");
    }
}
