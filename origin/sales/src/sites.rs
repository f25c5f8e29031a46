//! `weir-origin site`: shows, fails, drains and joins sites. It works on SQL alone, so it needs no running origin.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use weir_origin_core::clock::now_ms;
use weir_origin_core::sql::Database;
use weir_sale::site::{FenceState, FenceStock};

use crate::model::site::SiteName;
use crate::store::{SaleStore, SiteOutcome, StoredFence};

/// Show and change the sites that sell from several Redis
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Pass --database-url before `site`, or set WEIR_DATABASE_URL. docs/two-sites.md explains each command."
)]
pub struct SiteCommand {
    /// What to do
    #[command(subcommand)]
    action: SiteAction,
}

/// What to do with a site.
#[derive(Clone, Debug, Subcommand)]
enum SiteAction {
    /// Show all sites, and the units that each has of each sale
    List,
    /// Close a lost site: none of its claims becomes an order any more, and another site sells its units
    Fail {
        /// Name of the site
        name: SiteName,
    },
    /// Move all units of a site to others; buyers with a claim can still order
    Drain {
        /// Name of the site
        name: SiteName,
    },
    /// Let a new or returned site sell; its shards start empty
    Join {
        /// Name of the site
        name: SiteName,
    },
}

/// Runs the command. Returns the text to print.
///
/// # Errors
/// When SQL does not answer, or the command is refused.
pub async fn run(database: &Database, command: &SiteCommand) -> Result<String> {
    let store = SaleStore::new(database.clone());
    let sites = store.sites();
    let (name, outcome, effect) = match &command.action {
        SiteAction::List => return list(&store).await,
        SiteAction::Fail { name } => (
            name,
            sites.fail(name, now_ms()).await?,
            "none of its claims becomes an order any more, and another site sells its units",
        ),
        SiteAction::Drain { name } => (
            name,
            sites.drain(name).await?,
            "its units move to other sites; it is closed when none is left",
        ),
        SiteAction::Join { name } => (
            name,
            sites.join(name, now_ms()).await?,
            "it sells as soon as other sites give it units",
        ),
    };
    match outcome {
        SiteOutcome::Done(fence) => Ok(format!("{}: {effect}\n", summary(&fence))),
        SiteOutcome::Unchanged(fence) => Ok(format!("{}: nothing to do\n", summary(&fence))),
        SiteOutcome::Refused(refusal) => bail!("cannot change site \"{name}\": {refusal}"),
    }
}

/// Joins the site of an origin at its first start.
///
/// # Errors
/// When SQL does not answer, or sales are sold from sites and the origin has none.
pub async fn join_or_refuse(database: &Database, site: Option<&SiteName>) -> Result<()> {
    let store = SaleStore::new(database.clone());
    if let Some(site) = site {
        return Ok(store.sites().join_new(site, now_ms()).await?);
    }
    let fences = store.sites().fences().await?;
    if fences.is_empty() {
        return Ok(());
    }
    let mut names: Vec<&str> = fences.iter().map(|fence| fence.site.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    bail!(
        "cannot sell without a site: this database has the sites \"{}\": set WEIR_SITE to the site of this origin's Redis",
        names.join("\", \"")
    )
}

async fn list(store: &SaleStore) -> Result<String> {
    let fences = store.sites().fences().await?;
    let mut text = String::new();
    if fences.is_empty() {
        text.push_str("no site has joined: all origins sell from one Redis\n");
    }
    for fence in &fences {
        writeln!(text, "{}", summary(fence))?;
    }
    for (sale, stocks) in store.sites().stocks(0).await? {
        for stock in stocks.iter().filter(|stock| stock.units != 0) {
            writeln!(text, "sale {sale}: {}", units(stock, &fences))?;
        }
    }
    Ok(text)
}

fn summary(fence: &StoredFence) -> String {
    let state = match fence.state {
        FenceState::Live => "live",
        FenceState::Draining => "draining",
        FenceState::Closed => "closed",
    };
    format!("site {}, fence {}, {state}", fence.site, fence.number)
}

fn units(stock: &FenceStock, fences: &[StoredFence]) -> String {
    let mut fences = fences.iter();
    let fence = fences.find(|fence| fence.number == stock.fence);
    let site = fence.map_or("?", |fence| fence.site.as_str());
    format!(
        "site {site}, fence {}, has {} units, {} of them not ordered",
        stock.fence,
        stock.units,
        stock.unsold()
    )
}
