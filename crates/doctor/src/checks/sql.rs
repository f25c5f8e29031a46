//! Checks that SQL keeps its commits, and whether it has lost some already.

use super::Subject;
use crate::diagnostic::Diagnostic;
use crate::facts::{PausedSale, SqlFacts};

/// With a shorter timeout, semi-synchronous replication becomes asynchronous while a replica is down.
const SEMI_SYNC_TIMEOUT_MS: u64 = 3_600_000;

/// Maximum orders that a finding names.
const ORDERS_MAX: usize = 10;

pub(super) fn check(subject: &Subject<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(sql) = subject.sql else { return };
    if let Some(why) = &sql.away {
        findings.push(Diagnostic::error(
            "sql-away",
            &sql.place,
            format!("it does not answer: {why}"),
            "start it, or correct WEIR_DATABASE_URL",
        ));
        return;
    }
    findings.extend(sql.paused.iter().map(paused));
    findings.extend(sql.redis_by_site.iter().filter_map(several_redis));
    findings.extend(flushes(sql));
    // Galera acknowledges a transaction only when every node has it.
    if sql.is_on("log_bin") && !sql.is_on("wsrep_on") {
        findings.extend(binary_log(sql));
        findings.extend(replication(sql));
    }
}

fn paused(sale: &PausedSale) -> Diagnostic {
    let PausedSale { id, lost } = sale;
    let named = lost.iter().take(ORDERS_MAX).map(String::as_str);
    let mut named: Vec<&str> = named.collect();
    if lost.len() > named.len() {
        named.push("…");
    }
    let orders = match named.is_empty() {
        true => String::new(),
        false => format!(": {}", named.join(", ")),
    };
    Diagnostic::error(
        "sql-lost-orders",
        format!("sale {id}"),
        format!(
            "it is paused: SQL has lost orders of this sale; Redis has {}{orders}",
            lost.len()
        ),
        format!("run weir-origin lost-orders {id}, then decide: docs/runbook.md#weirsalepaused"),
    )
}

/// Origins that share sales must share their Redis, unless each Redis is a site.
fn several_redis((site, count): &(String, u64)) -> Option<Diagnostic> {
    let origins = match site.as_str() {
        "" => "its origins without a site".to_owned(),
        site => format!("its origins of site \"{site}\""),
    };
    (*count > 1).then(|| {
        Diagnostic::error(
            "sql-several-redis",
            "SQL",
            format!("{origins} use {count} different Redis or key prefixes: each sells all units of a sale"),
            "give all of them the same WEIR_REDIS_URL and WEIR_KEY_PREFIX, or set WEIR_SITE to a different name at each site: docs/two-sites.md",
        )
    })
}

fn flushes(sql: &SqlFacts) -> Option<Diagnostic> {
    let value = sql.value("innodb_flush_log_at_trx_commit")?;
    (value != "1").then(|| {
        Diagnostic::error(
            "sql-flush",
            &sql.place,
            format!("innodb_flush_log_at_trx_commit is {value}: a crash loses orders that were answered with 201"),
            "set innodb_flush_log_at_trx_commit = 1",
        )
    })
}

fn binary_log(sql: &SqlFacts) -> Option<Diagnostic> {
    let value = sql.value("sync_binlog")?;
    (value != "1").then(|| {
        Diagnostic::error(
            "sql-binlog",
            &sql.place,
            format!(
                "sync_binlog is {value}: after a crash the replicas' orders can differ from the primary's"
            ),
            "set sync_binlog = 1",
        )
    })
}

fn replication(sql: &SqlFacts) -> Option<Diagnostic> {
    // MySQL has renamed them; MariaDB has not.
    let names = ["rpl_semi_sync_master", "rpl_semi_sync_source"];
    let name = names
        .into_iter()
        .find(|name| sql.is_on(&format!("{name}_enabled")));
    let warning = |problem: &str, fix: String| {
        Some(Diagnostic::warning(
            "sql-replication",
            &sql.place,
            problem,
            fix,
        ))
    };
    let Some(name) = name else {
        return warning(
            "it writes a binary log with asynchronous replication: a promoted replica can lack orders that were answered with 201",
            "use semi-synchronous replication with AFTER_SYNC, or Galera: docs/operations.md#databases-that-lose-no-order; ignore this without failover".into(),
        );
    };
    let of = |end: &str| format!("{name}_{end}");
    let wait_point = sql.value(&of("wait_point"));
    if wait_point.is_some_and(|point| !point.eq_ignore_ascii_case("AFTER_SYNC")) {
        return warning(
            "semi-synchronous replication waits after the commit: clients can see orders that a replica lacks",
            format!("set {} = AFTER_SYNC", of("wait_point")),
        );
    }
    let timeout_ms: u64 = sql.value(&of("timeout"))?.parse().ok()?;
    if timeout_ms < SEMI_SYNC_TIMEOUT_MS {
        return warning(
            "semi-synchronous replication becomes asynchronous when a replica does not answer in time",
            format!("set {} to {SEMI_SYNC_TIMEOUT_MS} or more", of("timeout")),
        );
    }
    None
}
