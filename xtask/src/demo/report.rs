//! What the demo says at the end: tables for a person, JSON for a machine.

use super::books::Books;
use super::counters::Counters;
use super::storm::Storm;
use serde_json::{Value, json};
use std::fmt::Write;

/// Everything that was asked for and found.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) stock: u64,
    pub(super) shards: u32,
    pub(super) users: u64,
    pub(super) workers: u32,
    pub(super) connections: u32,
    pub(super) seed: u64,
    pub(super) storm: Storm,
    pub(super) counters: Counters,
    pub(super) books: Books,
}

impl Report {
    fn oversold(&self) -> u64 {
        self.books.oversold(self.stock)
    }

    fn unsold(&self) -> u64 {
        self.books.unsold(self.stock, self.users)
    }

    /// No unit sold twice, and none left that someone came for.
    pub(super) fn is_good(&self) -> bool {
        self.oversold() == 0 && self.unsold() == 0
    }

    /// In milliseconds.
    fn latency_ms(&self, quantile: f64) -> f64 {
        self.storm.latency_us.value_at_quantile(quantile) as f64 / 1000.0
    }

    pub(super) fn json(&self) -> Value {
        let Self {
            storm,
            counters,
            books,
            ..
        } = self;
        json!({
            "stock": self.stock,
            "shards": self.shards,
            "users": self.users,
            "workers": self.workers,
            "connections": self.connections,
            "seed": self.seed,
            "requests": storm.requests,
            "requests_broken": storm.broken,
            "users_gave_up": storm.gave_up,
            "orders": books.sql.orders,
            "units_ordered": books.sql.units,
            "sql_remaining": books.sql.remaining,
            "oversold": self.oversold(),
            "unsold": self.unsold(),
            "balanced": books.balanced(self.stock),
            "redis_shards": books.shards.iter().map(|shard| json!({
                "stock": shard.stock,
                "held": shard.held,
                "bought": shard.bought,
                "epoch": shard.epoch,
            })).collect::<Vec<_>>(),
            "verdicts": storm.verdicts,
            "statuses": storm.statuses,
            "latency_ms": {
                "p50": self.latency_ms(0.5),
                "p99": self.latency_ms(0.99),
                "p999": self.latency_ms(0.999),
            },
            "requests_per_s": storm.requests_per_s(),
            "redis_commands": counters.redis_commands,
            "redis_commands_gateway": counters.redis_commands_gateway,
            "redis_requests": counters.redis_requests,
            "requests_per_redis_command": counters.requests_per_command(),
            "duration_s": storm.duration.as_secs_f64(),
        })
    }

    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        self.write(&mut text).ok();
        text
    }

    fn write(&self, to: &mut String) -> std::fmt::Result {
        writeln!(
            to,
            "\n{} units in {} shards, {} buyers over {} connections, {} Envoy workers, seed {}\n",
            self.stock, self.shards, self.users, self.connections, self.workers, self.seed
        )?;
        self.write_answers(to)?;
        self.write_speed(to)?;
        self.write_books(to)?;
        self.write_checks(to)
    }

    fn write_answers(&self, to: &mut String) -> std::fmt::Result {
        let Storm {
            verdicts, statuses, ..
        } = &self.storm;
        writeln!(to, "{:<24} {:>10}", "verdict", "answers")?;
        for (verdict, count) in verdicts {
            writeln!(to, "  {verdict:<22} {count:>10}")?;
        }
        writeln!(to, "{:<24} {:>10}", "status", "answers")?;
        for (status, count) in statuses {
            writeln!(to, "  {status:<22} {count:>10}")?;
        }
        if self.storm.broken > 0 {
            writeln!(to, "  {:<22} {:>10}", "no answer", self.storm.broken)?;
        }
        if self.storm.gave_up > 0 {
            writeln!(
                to,
                "{:<24} {:>10}",
                "buyers who gave up", self.storm.gave_up
            )?;
        }
        writeln!(to)
    }

    fn write_speed(&self, to: &mut String) -> std::fmt::Result {
        let Self {
            storm, counters, ..
        } = self;
        writeln!(
            to,
            "{} requests in {:.2} s: {:.0} requests/s",
            storm.requests,
            storm.duration.as_secs_f64(),
            storm.requests_per_s()
        )?;
        writeln!(
            to,
            "latency: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms",
            self.latency_ms(0.5),
            self.latency_ms(0.99),
            self.latency_ms(0.999)
        )?;
        write!(
            to,
            "{} requests needed Redis; the gateway sent {} commands",
            counters.redis_requests, counters.redis_commands_gateway
        )?;
        if let Some(ratio) = counters.requests_per_command() {
            write!(to, " ({ratio:.1} requests a command)")?;
        }
        writeln!(
            to,
            ", Redis ran {} with the origin's\n",
            counters.redis_commands
        )
    }

    fn write_books(&self, to: &mut String) -> std::fmt::Result {
        writeln!(
            to,
            "{:<10} {:>8} {:>8} {:>8}",
            "Redis", "stock", "held", "bought"
        )?;
        for (index, shard) in self.books.shards.iter().enumerate() {
            let stock = shard
                .stock
                .map_or("cold".to_owned(), |stock| stock.to_string());
            let (held, bought) = (shard.held, shard.bought);
            writeln!(to, "  shard {index:<2} {stock:>8} {held:>8} {bought:>8}")?;
        }
        let (stock, held, bought) = (self.books.stock(), self.books.held(), self.books.bought());
        writeln!(to, "  {:<8} {stock:>8} {held:>8} {bought:>8}", "sum")?;
        let sql = self.books.sql;
        writeln!(
            to,
            "SQL        {} orders, {} units ordered, {} remaining\n",
            sql.orders, sql.units, sql.remaining
        )
    }

    fn write_checks(&self, to: &mut String) -> std::fmt::Result {
        let (oversold, unsold) = (self.oversold(), self.unsold());
        let sum = format!(
            "stock {} + held {} + ordered {} = total {}",
            self.books.stock(),
            self.books.held(),
            self.books.sql.units,
            self.stock
        );
        for (holds, what) in [
            (self.books.balanced(self.stock), sum),
            (oversold == 0, format!("oversold {oversold}")),
            (unsold == 0, format!("unsold {unsold}")),
        ] {
            let mark = if holds { '✓' } else { '✗' };
            writeln!(to, "{mark} {what}")?;
        }
        let created = self.storm.statuses.get(&201).copied().unwrap_or(0);
        if created != self.books.sql.orders {
            writeln!(
                to,
                "Note: clients saw {created} orders made, SQL holds {}: an answer can be lost on \
                 a broken connection, its order is not.",
                self.books.sql.orders
            )?;
        }
        Ok(())
    }
}
