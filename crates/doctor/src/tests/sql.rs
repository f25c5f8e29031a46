//! Each finding about SQL alone.

use super::words;
use crate::facts::{PausedSale, SqlFacts};
use crate::{Diagnostic, Subject, examine};

/// A primary that loses nothing: MariaDB with semi-synchronous replication.
fn right() -> SqlFacts {
    let variables = [
        ("innodb_flush_log_at_trx_commit", "1"),
        ("log_bin", "ON"),
        ("sync_binlog", "1"),
        ("wsrep_on", "OFF"),
        ("rpl_semi_sync_master_enabled", "ON"),
        ("rpl_semi_sync_master_wait_point", "AFTER_SYNC"),
        ("rpl_semi_sync_master_timeout", "4294967295"),
    ];
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    SqlFacts {
        place: "SQL at db:3306".into(),
        variables: variables.map(owned).into(),
        ..SqlFacts::default()
    }
}

fn examined(sql: &SqlFacts) -> Vec<Diagnostic> {
    examine(&Subject {
        sql: Some(sql),
        ..Subject::default()
    })
}

fn with(changes: &[(&str, &str)]) -> Vec<&'static str> {
    let mut facts = right();
    for (name, value) in changes {
        let value = (*value).to_owned();
        facts.variables.insert((*name).to_owned(), value);
    }
    words(&examined(&facts))
}

#[test]
fn settings_that_may_lose_commits_are_found() {
    let semi_sync = |end: &str| format!("rpl_semi_sync_master_{end}");
    assert_eq!(with(&[]), [""; 0]);
    assert_eq!(
        with(&[("innodb_flush_log_at_trx_commit", "2")]),
        ["sql-flush"]
    );
    assert_eq!(with(&[("sync_binlog", "0")]), ["sql-binlog"]);
    for (end, value) in [
        ("enabled", "OFF"),
        ("wait_point", "AFTER_COMMIT"),
        ("timeout", "10000"),
    ] {
        let found = with(&[(&semi_sync(end), value)]);
        assert_eq!(found, ["sql-replication"], "{end}");
    }
    let off = semi_sync("enabled");
    // Without a binary log nothing is replicated. Galera replicates before it acknowledges.
    assert_eq!(
        with(&[(&off, "OFF"), ("log_bin", "OFF"), ("sync_binlog", "0")]),
        [""; 0]
    );
    assert_eq!(with(&[(&off, "OFF"), ("wsrep_on", "ON")]), [""; 0]);
    // MySQL's names.
    assert_eq!(
        with(&[(&off, "OFF"), ("rpl_semi_sync_source_enabled", "ON")]),
        [""; 0]
    );
    // SQLite has none of these settings.
    assert_eq!(words(&examined(&SqlFacts::default())), [""; 0]);
}

#[test]
fn paused_sales_are_found_with_their_lost_orders() {
    let lost = (0..12).map(|n| format!("s.0.{n}")).collect();
    let sale = PausedSale {
        id: "s".into(),
        lost,
    };
    let [finding] = <[Diagnostic; 1]>::try_from(examined(&SqlFacts {
        paused: vec![sale],
        ..right()
    }))
    .unwrap();
    assert_eq!(finding.check, "sql-lost-orders");
    let line = finding.to_string();
    assert!(line.starts_with("error: sale s: it is paused"), "{line}");
    assert!(line.contains("Redis has 12: s.0.0, s.0.1"), "{line}");
    assert!(line.contains("s.0.9, …;"), "{line}");
}

#[test]
fn origins_of_one_site_with_two_redis_are_an_error() {
    let with = |sites: &[(&str, u64)]| {
        let sites = sites
            .iter()
            .map(|(site, count)| ((*site).to_owned(), *count));
        examined(&SqlFacts {
            redis_by_site: sites.collect(),
            ..right()
        })
    };
    assert_eq!(words(&with(&[("a", 1), ("b", 1)])), [""; 0]);
    assert_eq!(words(&with(&[("", 1)])), [""; 0]);
    let [alone, sited] = <[Diagnostic; 2]>::try_from(with(&[("", 2), ("a", 3), ("b", 1)])).unwrap();
    assert_eq!(
        (alone.check, sited.check),
        ("sql-several-redis", "sql-several-redis")
    );
    let line = alone.to_string();
    assert!(
        line.contains("origins without a site use 2 different Redis"),
        "{line}"
    );
    assert!(sited.to_string().contains("of site \"a\" use 3"), "{sited}");
}

#[test]
fn unresponsive_sql_is_one_finding() {
    let facts = SqlFacts {
        away: Some("refused".into()),
        ..right()
    };
    assert_eq!(words(&examined(&facts)), ["sql-away"]);
}
