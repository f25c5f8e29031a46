//! The demo's final report: tables for people, JSON for programs.

use super::cast::{BotTactic, Shares};
use super::link::LinkShow;
use super::operator::Audit;
use super::play::SaleRush;
use super::room::RoomResult;
use super::sql::SqlCounts;
use super::stock_balance::StockBalance;
use super::tally::{AtEdge, Row, Tallies, Tally};
use super::views::Browsing;
use serde_json::{Map, Value, json};
use std::fmt::{self, Write};
use weir_sale::verdict::Verdict;

/// All parameters and results.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) stock: u64,
    pub(super) shards: u32,
    pub(super) shares: Shares,
    pub(super) workers: u32,
    pub(super) connections: u32,
    pub(super) seed: u64,
    /// The lines printed during the demo.
    pub(super) phases: Value,
    pub(super) reserved: SqlCounts,
    pub(super) rushes: Vec<SaleRush>,
    /// What all clients observed, from the first reservation on.
    pub(super) observed: Tallies,
    pub(super) audit: Audit,
    pub(super) balance: StockBalance,
    /// The waiting room before the checkout, if enabled.
    pub(super) room: Option<RoomResult>,
    /// The products that people viewed before, if enabled.
    pub(super) browsing: Option<Browsing>,
    /// The short link at the end, if enabled.
    pub(super) link: Option<LinkShow>,
    /// Whether people also came through an edge.
    pub(super) has_edge: bool,
}

/// A required result.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    has_passed: bool,
    description: String,
}

impl Report {
    fn oversold(&self) -> u64 {
        let audited = self.audit.orders.saturating_sub(self.audit.total);
        self.balance.oversold(self.stock).max(audited)
    }

    fn unsold(&self) -> u64 {
        self.balance
            .unsold(self.stock, self.shares.eligible().into())
    }

    /// Whether every check has passed.
    pub(super) fn is_good(&self) -> bool {
        self.checks().iter().all(|check| check.has_passed)
    }

    fn checks(&self) -> Vec<Check> {
        let Audit {
            stock,
            transfers,
            claims,
            orders,
            total,
            ..
        } = self.audit;
        let (balance, sql) = (&self.balance, self.balance.sql);
        let (oversold, unsold) = (self.oversold(), self.unsold());
        let check = |has_passed, description: String| Check {
            has_passed,
            description,
        };
        let mut checks = vec![
            check(
                self.audit.balanced && self.audit.exact && total == self.stock,
                format!(
                    "audit: stock {stock} + transfers {transfers} + claims {claims} + orders {orders} = total {total}"
                ),
            ),
            check(
                balance.balanced(self.stock) && sql.units == orders,
                format!(
                    "Redis and SQL, read directly: stock {} + transfers {} + claims {} + orders {}",
                    balance.stock(),
                    balance.moving(),
                    balance.held(),
                    sql.units
                ),
            ),
            check(oversold == 0, format!("oversold {oversold}")),
            check(unsold == 0, format!("unsold {unsold}")),
            check(
                sql.paid == sql.orders,
                format!("{} of {} orders paid", sql.paid, sql.orders),
            ),
            check(
                sql.buyers == sql.paid,
                format!("from {} different people", sql.buyers),
            ),
            check(sql.bots == 0, format!("bots ordered {}", sql.bots)),
        ];
        let room = self.room.iter().flat_map(RoomResult::checks);
        let browsing = self.browsing.iter().flat_map(Browsing::checks);
        let links = self.link.iter().flat_map(LinkShow::checks);
        let edge = self.has_edge.then(|| {
            let granted = self.observed.people.of(Verdict::Granted);
            self.at_edge().checks(granted)
        });
        let shows = room
            .chain(browsing)
            .chain(links)
            .chain(edge.into_iter().flatten());
        checks.extend(shows.map(|(holds, subject)| check(holds, subject)));
        checks
    }

    fn at_edge(&self) -> AtEdge {
        let mut all = self.observed.people.at_edge;
        all.add(self.observed.bots.at_edge);
        all
    }

    pub(super) fn json(&self) -> Value {
        let sql = self.balance.sql;
        json!({
            "stock": self.stock,
            "shards": self.shards,
            "users": self.shares.people,
            "users_eligible": self.shares.eligible(),
            "users_not_reserving": self.shares.strangers,
            "users_scalping": self.shares.scalpers,
            "users_forgetful": self.shares.forgetful,
            "bots": self.shares.bots as usize * BotTactic::ALL.len(),
            "workers": self.workers,
            "connections": self.connections,
            "seed": self.seed,
            "good": self.is_good(),
            "phases": self.phases,
            "reserved": self.reserved.reserved,
            "blocked": self.reserved.blocked,
            "verdicts": rows_json(&self.observed.verdicts()),
            "origin_answers": rows_json(&self.observed.origin()),
            "people": tally_json(&self.observed.people),
            "bots_seen": tally_json(&self.observed.bots),
            "rushes": self.rushes.iter().map(rush_json).collect::<Vec<_>>(),
            "audit": self.audit.json(),
            "room": self.room.as_ref().map(RoomResult::json),
            "events": self.browsing.as_ref().map(Browsing::json),
            "link": self.link.as_ref().map(LinkShow::json),
            "edge": self.has_edge.then(|| self.at_edge().json()),
            "orders": sql.orders,
            "orders_paid": sql.paid,
            "orders_expired": sql.expired,
            "orders_of_bots": sql.bots,
            "buyers": sql.buyers,
            "units_ordered": sql.units,
            "sql_remaining": sql.remaining,
            "oversold": self.oversold(),
            "unsold": self.unsold(),
            "balanced": self.balance.balanced(self.stock),
            "redis_shards": self.balance.shards.iter().map(|shard| json!({
                "stock": shard.stock,
                "held": shard.held,
                "bought": shard.bought,
                "epoch": shard.epoch,
            })).collect::<Vec<_>>(),
        })
    }

    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        self.write(&mut text).ok();
        text
    }

    fn write(&self, to: &mut String) -> fmt::Result {
        writeln!(
            to,
            "\n{} units in {} shards, {} people over {} connections, {} Envoy workers, seed {}\n",
            self.stock, self.shards, self.shares.people, self.connections, self.workers, self.seed
        )?;
        write_rows(to, "the gateway's verdict", &self.observed.verdicts())?;
        let room = self.observed.room();
        if !room.is_empty() {
            write_rows(to, "the waiting room's", &room)?;
        }
        write_rows(to, "the origin's answer", &self.observed.origin())?;
        self.write_lost(to)?;
        if self.has_edge {
            write_edge(to, self.at_edge())?;
        }
        if let Some(rush) = self.rushes.first() {
            write_speed(to, rush)?;
        }
        self.write_books(to)?;
        if let Some(link) = &self.link {
            writeln!(to, "{}", link.table())?;
        }
        for Check {
            has_passed,
            description,
        } in self.checks()
        {
            writeln!(to, "{} {description}", if has_passed { '✓' } else { '✗' })?;
        }
        Ok(())
    }

    fn write_lost(&self, to: &mut String) -> fmt::Result {
        let Tallies { people, bots } = &self.observed;
        for (subject, people, bots) in [
            ("no answer", people.broken, bots.broken),
            ("gave up", people.gave_up, bots.gave_up),
        ] {
            if people + bots > 0 {
                writeln!(to, "{subject:<24} {people:>10} {bots:>10}")?;
            }
        }
        writeln!(to)
    }

    fn write_books(&self, to: &mut String) -> fmt::Result {
        let StockBalance { shards, sql } = &self.balance;
        writeln!(
            to,
            "{:<10} {:>8} {:>8} {:>8}",
            "Redis", "stock", "claims", "orders"
        )?;
        for (index, shard) in shards.iter().enumerate() {
            let stock = shard
                .stock
                .map_or("cold".to_owned(), |stock| stock.to_string());
            let (held, bought) = (shard.held, shard.bought);
            writeln!(to, "  shard {index:<2} {stock:>8} {held:>8} {bought:>8}")?;
        }
        let (stock, held, bought) = (
            self.balance.stock(),
            self.balance.held(),
            self.balance.bought(),
        );
        writeln!(to, "  {:<8} {stock:>8} {held:>8} {bought:>8}", "sum")?;
        writeln!(
            to,
            "SQL        {} orders of {} units: {} paid; {} expired before; {} units remain\n",
            sql.orders, sql.units, sql.paid, sql.expired, sql.remaining
        )
    }
}

fn write_rows(to: &mut String, title: &str, rows: &[Row]) -> fmt::Result {
    writeln!(to, "{title:<24} {:>10} {:>10}", "people", "bots")?;
    for Row { word, people, bots } in rows {
        let line = format!("  {word:<22} {:>10} {:>10}", number(*people), number(*bots));
        writeln!(to, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Empty for zero, so that zeros do not draw attention.
fn number(count: u64) -> String {
    match count {
        0 => String::new(),
        count => count.to_string(),
    }
}

fn write_edge(to: &mut String, at_edge: AtEdge) -> fmt::Result {
    let AtEdge { own, sent_on, .. } = at_edge;
    writeln!(
        to,
        "{} answers through the edge: {own} of its own, {sent_on} from a gateway\n",
        at_edge.all()
    )
}

fn write_speed(to: &mut String, rush: &SaleRush) -> fmt::Result {
    let SaleRush {
        observed,
        counters,
        elapsed,
        ..
    } = rush;
    writeln!(
        to,
        "first rush: {} requests in {:.2} s: {:.0} requests/s",
        observed.requests(),
        elapsed.as_secs_f64(),
        rush.requests_per_s()
    )?;
    writeln!(
        to,
        "people's latency: p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms",
        observed.people.latency_ms(0.5),
        observed.people.latency_ms(0.99),
        observed.people.latency_ms(0.999)
    )?;
    write!(
        to,
        "{} requests needed Redis; the gateway sent {} commands",
        counters.redis_requests, counters.redis_commands_gateway
    )?;
    if let Some(ratio) = counters.requests_per_command() {
        write!(to, " ({ratio:.1} requests per command)")?;
    }
    writeln!(
        to,
        ", Redis ran {} including the origin's\n",
        counters.redis_commands
    )
}

fn rows_json(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        (
            row.word.clone(),
            json!({ "people": row.people, "bots": row.bots }),
        )
    };
    rows.iter().map(row).collect::<Map<_, _>>().into()
}

fn tally_json(tally: &Tally) -> Value {
    json!({
        "requests": tally.requests,
        "requests_broken": tally.broken,
        "gave_up": tally.gave_up,
        "answers": tally.words,
        "statuses": tally.statuses,
        "latency_ms": {
            "p50": tally.latency_ms(0.5),
            "p99": tally.latency_ms(0.99),
            "p999": tally.latency_ms(0.999),
        },
    })
}

fn rush_json(rush: &SaleRush) -> Value {
    let counters = &rush.counters;
    json!({
        "people_came": rush.arrived,
        "orders_paid": rush.paid,
        "orders_unpaid": rush.unpaid,
        "duration_s": rush.elapsed.as_secs_f64(),
        "requests_per_s": rush.requests_per_s(),
        "people": tally_json(&rush.observed.people),
        "bots": tally_json(&rush.observed.bots),
        "redis_commands": counters.redis_commands,
        "redis_commands_gateway": counters.redis_commands_gateway,
        "redis_requests": counters.redis_requests,
        "requests_per_redis_command": counters.requests_per_command(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::sql::Sql;
    use super::*;
    use weir_sale::ledger::Audit as Shard;

    type Fault = fn(&mut Report);

    /// A report of ten units, all sold and paid.
    fn report() -> Report {
        Report {
            stock: 10,
            shards: 1,
            shares: Shares::for_people(1_000, 10),
            workers: 2,
            connections: 8,
            seed: 1,
            phases: Value::Null,
            reserved: SqlCounts::default(),
            rushes: Vec::new(),
            observed: Tallies::empty().unwrap(),
            audit: Audit {
                stock: 0,
                transfers: 0,
                claims: 0,
                orders: 10,
                total: 10,
                balanced: true,
                exact: true,
                epoch: 1,
            },
            balance: StockBalance {
                sql: Sql {
                    orders: 10,
                    units: 10,
                    paid: 10,
                    buyers: 10,
                    ..Sql::default()
                },
                shards: vec![Shard {
                    stock: Some(0),
                    bought: 10,
                    ..Shard::default()
                }],
            },
            room: None,
            browsing: Some(Browsing::good()),
            link: Some(LinkShow::of(10_000, 10_000)),
            has_edge: false,
        }
    }

    #[test]
    fn sold_and_paid_sale_passes_and_any_single_fault_fails() {
        assert!(report().is_good(), "{}", report().table());
        let faults: [(Fault, &str); 10] = [
            (|r| r.audit.balanced = false, "audit:"),
            (|r| r.audit.exact = false, "audit:"),
            (|r| r.audit.total = 11, "audit:"),
            (|r| r.balance.shards[0].stock = Some(1), "Redis and SQL"),
            (|r| r.audit.orders = 11, "oversold 1"),
            (|r| r.balance.sql.units = 11, "oversold 1"),
            (|r| r.balance.sql.paid = 9, "unsold 1"),
            (|r| r.balance.sql.buyers = 9, "from 9 different people"),
            (|r| r.balance.sql.bots = 1, "bots ordered 1"),
            (
                |r| r.browsing.as_mut().unwrap().balance.events = 99,
                "99 of 100 acknowledged",
            ),
        ];
        for (fault, expected) in faults {
            let mut report = report();
            fault(&mut report);
            assert!(!report.is_good(), "{expected}");
            let table = report.table();
            let failed: Vec<_> = table.lines().filter(|line| line.starts_with('✗')).collect();
            assert!(
                failed.iter().any(|line| line.contains(expected)),
                "{failed:?}"
            );
            assert_eq!(report.json()["good"], false);
        }
        let mut unpaid = report();
        unpaid.balance.sql.orders = 11;
        assert!(unpaid.table().contains("✗ 10 of 11 orders paid"));
    }

    #[test]
    fn edge_that_answers_no_or_all_requests_fails_the_report() {
        let mut report = report();
        report.has_edge = true;
        report.observed.people.words.insert("granted".to_owned(), 9);
        let good = AtEdge {
            own: 3,
            sent_on: 4,
            granted: 2,
        };
        report.observed.bots.at_edge = good;
        assert!(report.is_good(), "{}", report.table());
        let table = report.table();
        assert!(table.contains("7 answers through the edge: 3 of its own"));
        assert!(table.contains("✓ orders: 2 through the edge, 7 through Envoy"));
        assert_eq!(report.json()["edge"]["own"], 3);
        let faults = [
            AtEdge { own: 0, ..good },
            AtEdge { sent_on: 0, ..good },
            AtEdge { granted: 0, ..good },
            AtEdge { granted: 9, ..good },
        ];
        for fault in faults {
            report.observed.bots.at_edge = fault;
            assert!(!report.is_good(), "{fault:?}");
        }
    }

    #[test]
    fn report_table_is_aligned_and_plain() {
        let rows = [("granted", 5, 0), ("sold_out", 12_345, 67)];
        let rows = rows.map(|(word, people, bots)| Row {
            word: word.to_owned(),
            people,
            bots,
        });
        let mut text = String::new();
        write_rows(&mut text, "verdict", &rows).unwrap();
        let expected = "verdict                      people       bots\n  \
            granted                         5\n  \
            sold_out                    12345         67\n";
        assert_eq!(text, expected);
        let is_odd = |c: char| c.is_control() && c != '\n';
        assert!(!report().table().contains(is_odd));
    }
}
