//! `weir-origin rebuild-history`: rebuilds cold lists of browse history from the event archive.

use std::collections::HashMap;

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use weir_history::{DAY_MS, Owner, ViewedProduct};

use crate::clock::now_ms;
use crate::config::{Config, RebuildHistoryCommand};
use crate::events::archive::{ArchivedEvent, Folder};
use crate::history::History;
use crate::history::metrics::HistoryMetrics;
use crate::metrics::Metrics;
use crate::origin::open_database;
use crate::redis::Redis;
use crate::views::{VIEW, view};

/// Maximum number of views collected in memory before lists are written: about 200 MB.
const VIEWS_MAX: usize = 1_000_000;

/// Number of lists written concurrently.
const TOGETHER: usize = 8;

/// Views by owner.
#[derive(Debug, Default)]
struct ViewLists {
    lists: HashMap<Owner, Vec<ViewedProduct>>,
    count: usize,
}

impl ViewLists {
    /// Adds an event. Skips events that are not views, and views without an owner.
    fn take(&mut self, event: &ArchivedEvent) {
        let (customer, visitor) = (event.customer.as_deref(), event.visitor.as_deref());
        let read = view(event.at_ms, customer, visitor, &event.attributes);
        if let Ok(Some(view)) = read {
            let (sku, at_ms) = (view.sku, view.at_ms);
            let list = self.lists.entry(view.owner).or_default();
            list.push(ViewedProduct { sku, at_ms });
            self.count += 1;
        }
    }
}

/// Runs the command. It needs the database, Redis, the cold store and the archive, but no secrets.
///
/// # Errors
/// Names the store that does not answer. Lists already written remain.
pub(crate) async fn run(config: &Config, command: &RebuildHistoryCommand) -> Result<()> {
    let settings = config.history.settings()?;
    let settings = settings.context("--history must be set")?;
    let place = config.events.events_archive.as_deref();
    let folder = Folder::open(place.context("--events-archive must be set")?);
    let folder = folder.context("--events-archive")?;
    let database = open_database(&config.database_url)
        .await
        .context("--database-url")?;
    let redis = Redis::new(&config.redis_url, &config.key_prefix).context("--redis-url")?;
    let metrics = HistoryMetrics::register(&Metrics::default());
    let history = History::new(settings, database.clone(), redis, metrics);
    let rebuilt = rebuild(&history, &folder, command.days, now_ms()).await;
    database.close().await;
    let views = rebuilt?;
    println!(
        "{views} views of {} days written to the cold store",
        command.days
    );
    Ok(())
}

/// Reads views day by day. Returns the number of views.
async fn rebuild(history: &History, folder: &Folder, days: u64, now_ms: u64) -> Result<usize> {
    let today = now_ms / DAY_MS;
    let (mut collected, mut views) = (ViewLists::default(), 0);
    for day in (today + 1).saturating_sub(days)..=today {
        for file in folder.files(VIEW, day).await? {
            let events = folder.events(&file).await;
            for event in events.with_context(|| file.to_string())? {
                collected.take(&event);
            }
            if collected.count >= VIEWS_MAX {
                views += write(history, std::mem::take(&mut collected)).await?;
            }
        }
        eprintln!("read day {} of {days}", days - (today - day));
    }
    views += write(history, collected).await?;
    Ok(views)
}

async fn write(history: &History, collected: ViewLists) -> Result<usize> {
    let mut tasks = JoinSet::new();
    for (owner, views) in collected.lists {
        if tasks.len() >= TOGETHER
            && let Some(ended) = tasks.join_next().await
        {
            ended??;
        }
        let history = history.clone();
        tasks.spawn(async move { history.fold_with(&owner, &views).await });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(collected.count)
}
