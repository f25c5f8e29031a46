//! Redis, through Weir's scripts: see `origin/src/sales/ledger.rs`.

use weir_base::id::{SaleId, UserId};
use weir_resp::{Value, encode_command};
use weir_sale::claim::Ticket;
use weir_sale::ledger::{
    Audit, Deduction, DepositReply, LendReply, OrderEntry, Overdue, ReleaseKind, ShardProbe,
    Transfer,
};
use weir_sale::sale::Sale;
use weir_sale::shard::{bucket, home_shard};
use weir_scripts::keys::{self, DEFAULT_PREFIX, ShardKeys};
use weir_scripts::{
    ReplyError, audit, cancel, charge, deposit, lend, overdue, probe, release, restock, restore,
    settle, settle_transfer, warm, wipe,
};

use super::io::{Io, RedisError};
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

    pub(super) async fn charge(&self, order: &Order) -> Result<bool> {
        let (shard, generation) = order.name;
        let call = charge::call(&self.keys(shard), &order.user, generation);
        Ok(charge::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn cancel(&self, order: &Order) -> Result<bool> {
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
            let keys = self.keys(home_shard(&user, sale.shards));
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

    pub(super) async fn warm(&self, shard: u32, units: u64, now_ms: u64) -> Result<bool> {
        let call = warm::call(&self.keys(shard), units, now_ms);
        Ok(warm::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn audit(&self, shard: u32) -> Result<Audit> {
        let call = audit::call(&self.keys(shard));
        Ok(audit::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn probe(&self, shards: u32) -> Result<Vec<ShardProbe>> {
        let mut seen = Vec::new();
        for shard in 0..shards {
            let call = probe::call(&[self.keys(shard)]);
            seen.extend(probe::parse(&self.io.run(&call).await?, 1)?);
        }
        Ok(seen)
    }

    pub(super) async fn overdue(&self, shard: u32, due_ms: u64) -> Result<Vec<Overdue>> {
        const OVERDUE_MAX: u32 = 500;
        let call = overdue::call(&self.keys(shard), due_ms, OVERDUE_MAX);
        Ok(overdue::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn lend(&self, from: u32, to: u32, wanted: u64) -> Result<LendReply> {
        let call = lend::call(&self.keys(from), to, wanted, self.io.now_ms());
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

    pub(super) async fn restock(&self, shard: u32, units: i64, seen: &Audit) -> Result<bool> {
        let call = restock::call(&self.keys(shard), units, seen);
        Ok(restock::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn wipe(&self, shard: u32) -> Result<bool> {
        let call = wipe::call(&self.keys(shard));
        Ok(wipe::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn restore(
        &self,
        shard: u32,
        users: &[(&UserId, &[OrderEntry])],
    ) -> Result<bool> {
        let call = restore::call(&self.keys(shard), users);
        Ok(restore::parse(&self.io.run(&call).await?)?)
    }

    pub(super) async fn publish(&self, catalogue: &[u8]) -> Result<()> {
        let key = keys::catalogue(DEFAULT_PREFIX);
        let mut command = Vec::new();
        encode_command(&mut command, [b"SET".as_slice(), &key, catalogue]);
        match self.io.send(command).await? {
            Value::Simple(_) => Ok(()),
            _ => Err(RedisError),
        }
    }
}
