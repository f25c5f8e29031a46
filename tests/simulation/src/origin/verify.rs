//! Corrects users' orders in Redis: see `origin/sales/src/verify.rs`.

use weir_base::id::UserId;
use weir_sale::shard::BUCKETS;

use super::io::Io;
use super::ledger::Ledger;
use super::reconcile::BrokeOff;
use crate::mutation::Mutation;
use crate::sql::Sql;

/// Corrects users' orders.
#[derive(Clone, Debug)]
pub(super) struct Verifier {
    pub(super) io: Io,
    pub(super) ledger: Ledger,
}

impl Verifier {
    /// Whether SQL has lost orders that Redis has.
    pub(super) async fn verify(&self, shard: u32) -> Result<bool, BrokeOff> {
        let before = self.ledger.audit(shard).await?;
        let mut in_sql = self
            .io
            .sql(move |sql: &mut Sql| sql.orders_of(shard))
            .await?;
        let sums = before.with_orders(in_sql.values().flatten());
        let mut differing = Vec::new();
        // For a real shard each bucket is a step; here one step covers all, to keep schedules short.
        for bucket in 0..BUCKETS {
            if !self.io.has_users_in(bucket) {
                continue;
            }
            for (user, observed) in self.ledger.settled_in(shard, bucket).await? {
                if in_sql.remove(&user).as_ref() != Some(&observed) {
                    differing.push(user);
                }
            }
        }
        differing.extend(in_sql.into_keys());
        if differing.is_empty() && sums != before {
            // A key was evicted, and the sums still include its contents.
            self.ledger.write_sums(shard, &sums).await?;
        }
        let mut has_lost = false;
        for user in differing {
            has_lost |= self.correct(shard, &user).await?;
        }
        Ok(has_lost)
    }

    /// Corrects a user's data in Redis, unless SQL has lost orders of that user, which it reports.
    pub(super) async fn correct(&self, shard: u32, user: &UserId) -> Result<bool, BrokeOff> {
        let entries = self.ledger.settled(shard, user).await?;
        let expected = user.clone();
        let orders = move |sql: &mut Sql| sql.orders_of(shard).remove(&expected);
        let orders = self.io.sql(orders).await?.unwrap_or_default();
        if orders == entries {
            return Ok(false);
        }
        let names: Vec<_> = entries
            .iter()
            .map(|order| (shard, order.generation))
            .collect();
        let lacks = move |sql: &mut Sql| names.iter().any(|name| !sql.orders.contains_key(name));
        if self.io.sql(lacks).await? && !self.io.makes(Mutation::LossNotNoticed) {
            return Ok(true);
        }
        self.ledger.correct(shard, user, &entries, &orders).await?;
        Ok(false)
    }
}
