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
    findings.extend(flushes(sql));
    findings.extend(standbys(sql));
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

fn flushes(sql: &SqlFacts) -> impl Iterator<Item = Diagnostic> {
    // One setting of MySQL and two settings of PostgreSQL, with safe values.
    let settings: [(&str, &str, &[&str]); 3] = [
        ("innodb_flush_log_at_trx_commit", "1", &[]),
        ("fsync", "on", &[]),
        (
            "synchronous_commit",
            "on",
            &["local", "remote_write", "remote_apply"],
        ),
    ];
    settings.into_iter().filter_map(|(name, safe, others)| {
        let value = sql.value(name)?;
        (value != safe && !others.contains(&value)).then(|| {
            Diagnostic::error(
                "sql-flush",
                &sql.place,
                format!("{name} is {value}: a crash loses orders that were answered with 201"),
                format!("set {name} = {safe}"),
            )
        })
    })
}

/// PostgreSQL's replication. A primary without a connected standby needs none.
fn standbys(sql: &SqlFacts) -> Option<Diagnostic> {
    let is_waiting = sql.value("synchronous_commit")? != "local";
    let is_synchronous = is_waiting && !sql.value("synchronous_standby_names")?.is_empty();
    (sql.value("standbys")? != "0" && !is_synchronous).then(|| {
        Diagnostic::warning(
            "sql-replication",
            &sql.place,
            "its replication is asynchronous: a promoted standby can lack orders that were answered with 201",
            "set synchronous_standby_names, and synchronous_commit = on; ignore this without failover",
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
