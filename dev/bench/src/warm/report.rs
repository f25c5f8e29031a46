//! The results: a table for people, JSON for programs.

use super::{Buyer, Memory, Plan, Stages, Verdicts};
use crate::keyspace::{Keyspace, ListedUsers};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// The maximum size of a Redis value, in bytes: moving or deleting a larger one blocks Redis.
pub(super) const VALUE_BYTES_MAX: u64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Report {
    pub(super) plan: Plan,
    /// The time to write the reservations into SQL, which Weir does not do.
    pub(super) sql: Duration,
    /// From the operator's request to the response.
    pub(super) warm_up: Duration,
    /// Redis' memory before and after the warm-up, in bytes.
    pub(super) redis_before: u64,
    pub(super) redis_after: u64,
    pub(super) keyspace: Keyspace,
    pub(super) listed: ListedUsers,
    pub(super) gateway: Stages,
    pub(super) verdicts: Verdicts,
}

impl Report {
    /// Whether all values are small, all users are present, and all answers are correct.
    pub(super) fn is_good(&self) -> bool {
        self.checks().iter().all(|(holds, _)| *holds)
    }

    fn checks(&self) -> [(bool, String); 3] {
        let (plan, listed, largest) = (&self.plan, &self.listed, &self.keyspace.largest);
        let expected = ListedUsers {
            reserved: plan.users.into(),
            blocked: plan.blocked.into(),
        };
        let ListedUsers { reserved, blocked } = listed;
        [
            (
                largest.bytes <= VALUE_BYTES_MAX,
                format!(
                    "the largest value is {} bytes: {}",
                    largest.bytes, largest.name
                ),
            ),
            (
                *listed == expected,
                format!("{reserved} reserved and {blocked} blocked users are in Redis"),
            ),
            (
                self.answers_are_right(),
                "every buyer got the right answer".to_owned(),
            ),
        ]
    }

    fn answers_are_right(&self) -> bool {
        Buyer::ALL.iter().all(|buyer| {
            let count = u64::from(buyer.count(&self.plan));
            let observed = self.verdicts.get(buyer).into_iter().flatten();
            let right: u64 = observed
                .filter(|(verdict, _)| *verdict == buyer.verdict())
                .map(|(_, count)| count)
                .sum();
            right == count
        })
    }

    fn users(&self) -> u64 {
        self.listed.reserved + self.listed.blocked
    }

    fn redis_bytes_per_user(&self) -> f64 {
        self.redis_after.saturating_sub(self.redis_before) as f64 / self.users().max(1) as f64
    }

    fn users_per_s(&self) -> f64 {
        self.users() as f64 / self.warm_up.as_secs_f64().max(f64::EPSILON)
    }

    fn stages(&self) -> [(String, Memory); 4] {
        let Stages {
            no_sale,
            all_but_the_large_sale,
            all_sales,
            after_purchases,
        } = self.gateway;
        let others = self.plan.sales - 1;
        [
            ("no sale".to_owned(), no_sale),
            (format!("{others} sales"), all_but_the_large_sale),
            ("and the large one".to_owned(), all_sales),
            ("after purchases".to_owned(), after_purchases),
        ]
    }

    pub(super) fn json(&self) -> Value {
        let Plan {
            users,
            blocked,
            sales,
            shards,
            workers,
        } = self.plan;
        let gateway =
            |(stage, memory): (String, Memory)| json!({ "stage": stage, "bytes": memory });
        let verdicts = |buyer: &Buyer| (buyer.label().to_owned(), json!(self.verdicts.get(buyer)));
        json!({
            "users": users,
            "blocked": blocked,
            "sales": sales,
            "shards": shards,
            "workers": workers,
            "warm_up_s": self.warm_up.as_secs_f64(),
            "users_per_s": self.users_per_s(),
            "sql_s": self.sql.as_secs_f64(),
            "redis_bytes_before": self.redis_before,
            "redis_bytes_after": self.redis_after,
            "redis_bytes_per_user": self.redis_bytes_per_user(),
            "redis": self.keyspace,
            "users_in_redis": self.listed,
            "gateway": self.stages().map(gateway),
            "verdicts": Buyer::ALL.iter().map(verdicts).collect::<serde_json::Map<_, _>>(),
            "good": self.is_good(),
        })
    }

    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        self.write(&mut text).ok();
        text
    }

    fn write(&self, to: &mut String) -> std::fmt::Result {
        let plan = &self.plan;
        writeln!(
            to,
            "\n{} users reserved, {} of them blocked, in {} shards; {} sales open, {} Envoy workers\n",
            plan.users, plan.blocked, plan.shards, plan.sales, plan.workers
        )?;
        writeln!(
            to,
            "warm-up          {:.2} s, {:.0} users/s",
            self.warm_up.as_secs_f64(),
            self.users_per_s()
        )?;
        self.write_redis(to)?;
        self.write_gateway(to)?;
        self.write_answers(to)?;
        for (holds, subject) in self.checks() {
            let mark = if holds { '✓' } else { '✗' };
            writeln!(to, "{mark} {subject}")?;
        }
        Ok(())
    }

    fn write_redis(&self, to: &mut String) -> std::fmt::Result {
        writeln!(
            to,
            "Redis            {:.1} MB before, {:.1} MB after: {:.1} bytes a user",
            megabytes(self.redis_before),
            megabytes(self.redis_after),
            self.redis_bytes_per_user()
        )?;
        let Keyspace { keys, bytes, .. } = &self.keyspace;
        let size = megabytes(*bytes);
        writeln!(to, "                 {keys} keys, {size:.1} MB in all\n")
    }

    fn write_gateway(&self, to: &mut String) -> std::fmt::Result {
        writeln!(
            to,
            "{:<24} {:>12} {:>12}",
            "gateway's memory", "resident", "allocated"
        )?;
        for (stage, memory) in self.stages() {
            let (resident, allocated) = (megabytes(memory.resident), megabytes(memory.allocated));
            writeln!(to, "  {stage:<22} {resident:>9.1} MB {allocated:>9.1} MB")?;
        }
        writeln!(to)
    }

    fn write_answers(&self, to: &mut String) -> std::fmt::Result {
        writeln!(to, "{:<16} {:<16} {:>7}", "buyers", "verdict", "answers")?;
        for (buyer, observed) in &self.verdicts {
            for (verdict, count) in observed {
                writeln!(to, "  {:<14} {verdict:<16} {count:>7}", buyer.label())?;
            }
        }
        writeln!(to)
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
