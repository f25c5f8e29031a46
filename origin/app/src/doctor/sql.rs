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
    if let Err(error) = read(config, &mut facts, file.is_none()).await {
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

async fn read(config: &Config, facts: &mut SqlFacts, has_variables: bool) -> anyhow::Result<()> {
    // Opens without migrations, because the check changes nothing.
    let database = Database::open(&config.database_url, &[]).await?;
    if has_variables {
        facts.variables = variables(&database).await?;
    }
    #[cfg(feature = "sales")]
    {
        facts.paused = paused(config, &database).await?;
        let store = crate::sales::store::SaleStore::new(database.clone());
        // A database that no origin has opened yet has no such table.
        let seen = store.sites().redis_by_site(crate::clock::now_ms()).await;
        facts.redis_by_site = seen.unwrap_or_default();
    }
    database.close().await;
    Ok(())
}

async fn variables(database: &Database) -> anyhow::Result<BTreeMap<String, String>> {
    let rows = database.all(sql(SELECT_VARIABLES)).await?;
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

    let store = SaleStore::new(database.clone()).at_site(config.sales.site.clone());
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
