//! The mark: the number of order changes that a shard has applied after their commit in SQL.
//!
//! Creating an order is one change, ending it is another. The origin sends the change to the shard after the commit and
//! before its response, and the script for the change counts it. SQL counts the same changes in their transactions.
//!
//! Redis receives a change after SQL, and may lose it. So the marks of a sale never exceed SQL's count, unless SQL has
//! lost commits after a failover to a lagging replica or a restore from a backup. New orders raise both numbers by one,
//! so the difference remains until an operator decides about the lost orders.

use crate::ledger::Audit;

/// The number of changes of orders, by the numbers of existing and ended ones.
///
/// ```
/// // Two orders were made, and one of them was cancelled.
/// assert_eq!(weir_sale::mark::changes(1, 1), 3);
/// ```
pub fn changes(current: u64, ended: u64) -> u64 {
    current.saturating_add(ended.saturating_mul(2))
}

/// The number of changes that SQL has lost, if Redis was read before SQL. `in_sql` is SQL's count for the whole sale.
pub fn changes_lost(shards: &[Audit], in_sql: u64) -> u64 {
    let marks = shards.iter().map(|observed| observed.mark);
    marks.sum::<u64>().saturating_sub(in_sql)
}

/// Whether to raise a shard's mark to SQL's count, where both were read at one instant and contain the same orders.
/// Redis has then lost calls or data, and a low mark would hide the same number of lost commits.
pub fn is_behind(audit: &Audit, in_sql: u64) -> bool {
    audit.stock.is_some() && audit.open == 0 && audit.mark < in_sql
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Checks, ClaimReply, ClaimTerms, Deduction, ShardLedger};
    use alloc::format;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use weir_base::id::UserId;

    /// A change of an order of one shard, in SQL and then in Redis.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// A user's claim becomes an order; Redis receives the change `reported` times.
        Order { user: u8, reported: u8 },
        /// A user's order ends; Redis receives the change `reported` times, at least once.
        End { user: u8, reported: u8 },
    }

    fn step(told_min: u8) -> impl Strategy<Value = Step> {
        let part = move || (0..4_u8, told_min..3_u8);
        prop_oneof![
            3 => part().prop_map(|(user, reply)| Step::Order { user, reported: reply }),
            2 => part().prop_map(|(user, reply)| Step::End { user, reported: reply }),
        ]
    }

    /// SQL's counts, and a shard that follows it.
    #[derive(Clone, Default)]
    struct SqlAndShard {
        shard: ShardLedger,
        /// Each user's existing order.
        active: Vec<(UserId, u64)>,
        ended: u64,
    }

    impl SqlAndShard {
        fn run(&mut self, step: Step) {
            match step {
                Step::Order {
                    user,
                    reported: reply,
                } => self.order(&named(user), reply),
                Step::End {
                    user,
                    reported: reply,
                } => self.end(&named(user), reply),
            }
        }

        fn order(&mut self, user: &UserId, reply: u8) {
            let terms = ClaimTerms {
                ttl_ms: 1,
                user_cap: 1,
                quantity: 1,
                checks: Checks::default(),
            };
            let (ClaimReply::Granted(held) | ClaimReply::GrantedAgain(held)) =
                self.shard.claim(user, terms)
            else {
                return;
            };
            let order = (user.clone(), held.generation);
            if !self.active.contains(&order) {
                self.active.push(order);
            }
            for _ in 0..reply {
                self.shard.settle(user, held.generation, Deduction::AtOrder);
            }
        }

        fn end(&mut self, user: &UserId, reply: u8) {
            let Some(at) = self
                .active
                .iter()
                .position(|(existing, _)| existing == user)
            else {
                return;
            };
            let (user, generation) = self.active.remove(at);
            self.ended += 1;
            for _ in 0..reply.max(1) {
                self.shard.cancel(&user, generation);
            }
        }

        fn in_sql(&self) -> u64 {
            changes(self.active.len() as u64, self.ended)
        }
    }

    fn named(user: u8) -> UserId {
        UserId::new(format!("u{user}")).unwrap()
    }

    proptest! {
        #[test]
        fn mark_exceeds_sql_only_after_sql_was_rolled_back(
            before in prop::collection::vec(step(0), 0..30),
            lost in prop::collection::vec(step(0), 0..30),
            after in prop::collection::vec(step(1), 0..10),
        ) {
            let mut both = SqlAndShard::default();
            both.shard.warm(100, None);
            for step in before {
                both.run(step);
                prop_assert_eq!(changes_lost(&[both.shard.audit()], both.in_sql()), 0);
            }
            let copy = both.in_sql();
            for step in lost {
                both.run(step);
            }
            let (mark, in_sql) = (both.shard.audit().mark, both.in_sql());
            prop_assert!(mark <= in_sql);
            // From here on, the backup is in use, and new orders reach both.
            for step in after {
                both.run(step);
            }
            let new = both.in_sql() - in_sql;
            let shards = [both.shard.audit()];
            prop_assert!(changes_lost(&shards, copy + new) >= mark.saturating_sub(copy));
        }
    }

    #[test]
    fn mark_is_raised_only_where_no_claim_is_open() {
        let observed = |stock, open, mark| Audit {
            stock,
            open,
            mark,
            ..Audit::default()
        };
        assert!(is_behind(&observed(Some(0), 0, 4), 5));
        assert!(!is_behind(&observed(Some(0), 0, 5), 5));
        assert!(
            !is_behind(&observed(Some(0), 1, 4), 5),
            "the claim may be the order that is missing"
        );
        assert!(!is_behind(&observed(None, 0, 0), 5), "cold");
    }
}
