//! Reads facts about SQL: its settings, and which sales are paused.

use std::collections::BTreeMap;
use std::path::Path;

use weir_doctor::facts::SqlFacts;

use crate::config::Config;
use crate::sql::{Database, sql};

const SELECT_VARIABLES: &str = "
    SHOW GLOBAL VARIABLES WHERE Variable_name IN (
        'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'wsrep_on',
        'rpl_semi_sync_master_enabled', 'rpl_semi_sync_master_wait_point', 'rpl_semi_sync_master_timeout',
        'rpl_semi_sync_source_enabled', 'rpl_semi_sync_source_wait_point', 'rpl_semi_sync_source_timeout')";

/// The settings of its own session, and the number of connected standbys.
const SELECT_SETTINGS: &str = r#"
    SELECT name AS "Variable_name", setting AS "Value" FROM pg_settings
    WHERE name IN ('fsync', 'synchronous_commit', 'synchronous_standby_names')
    UNION ALL
    SELECT 'standbys', CAST(COUNT(*) AS TEXT) FROM pg_stat_replication"#;

/// Reads facts about the origin's database; `None` if it is a SQLite file that does not exist yet. A database that does not
/// answer is a fact, not an error.
pub(super) async fn ask(config: &Config) -> Option<SqlFacts> {
    let url = &config.database_url;
    let file = url.strip_prefix("sqlite:");
    if file.is_some_and(|file| !is_there(file)) {
        return None;
    }
    let mut facts = SqlFacts {
        place: "SQL".into(),
        ..SqlFacts::default()
    };
    let variables = match url.split(':').next() {
        Some("sqlite") => None,
        Some("postgres" | "postgresql") => Some(SELECT_SETTINGS),
        _ => Some(SELECT_VARIABLES),
    };
    if let Err(error) = read(config, &mut facts, variables).await {
        facts.away = Some(format!("{error:#}"));
    }
    Some(facts)
}

/// Whether the file in a SQLite URL, without its scheme, exists. Opening it would create it.
fn is_there(url: &str) -> bool {
    let path = url.strip_prefix("//").unwrap_or(url);
    let path = path.split('?').next().unwrap_or(path);
    Path::new(path).is_file()
}

async fn read(
    config: &Config,
    facts: &mut SqlFacts,
    select: Option<&'static str>,
) -> anyhow::Result<()> {
    // Opens without migrations, because the check changes nothing.
    let database = Database::open(&config.database_url, &[]).await?;
    if let Some(select) = select {
        facts.variables = variables(&database, select).await?;
    }
    #[cfg(feature = "sales")]
    {
        facts.paused = paused(config, &database).await?;
    }
    database.close().await;
    Ok(())
}

async fn variables(
    database: &Database,
    select: &'static str,
) -> anyhow::Result<BTreeMap<String, String>> {
    let rows = database.all(sql(select)).await?;
    let pairs = rows
        .iter()
        .map(|row| Ok((row.text("Variable_name")?, row.text("Value")?)));
    pairs.collect()
}

/// The paused sales, each with its lost orders from Redis.
#[cfg(feature = "sales")]
async fn paused(
    config: &Config,
    database: &Database,
) -> anyhow::Result<Vec<weir_doctor::facts::PausedSale>> {
    use crate::redis::Redis;
    use crate::sales::ledger::Ledger;
    use crate::sales::store::SaleStore;
    use crate::sales::verify::Verifier;

    let store = SaleStore::new(database.clone());
    // A database that no origin has opened yet has no such tables.
    let Ok(ids) = store.pauses().paused().await else {
        return Ok(vec![]);
    };
    let redis = Redis::new(&config.redis_url, &config.key_prefix)?;
    let verifier = Verifier::new(store.clone(), Ledger::new(redis));
    let mut paused = Vec::new();
    for id in ids {
        let Some(stored) = store.sale(&id).await? else {
            continue;
        };
        // The sale is paused even if Redis does not answer.
        let lost = verifier.lost_orders(&stored.sale).await;
        let lost = lost.unwrap_or_default().into_iter().map(|order| order.id);
        paused.push(weir_doctor::facts::PausedSale {
            id: id.to_string(),
            lost: lost.collect(),
        });
    }
    Ok(paused)
}
