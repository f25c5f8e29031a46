//! `cargo xtask bench warm`: many open sales, one of them with very many reservations.

mod report;

use super::gateway::Memory;
use super::keyspace::{self, Keyspace, ListedUsers};
use super::reservations::{self, user};
use anyhow::{Context, Result, ensure};
use report::Report;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use weir_base::id::SaleId;
use weir_sale::redis::keys::ShardKeys;
use weir_sale::sale::{SALES_MAX, SHARDS_MAX};
use weir_stack::Stack;
use weir_stack::http::{self, Method};
use weir_stack::report::{Console, Reporter};
use weir_stack::sale::{sale_json, verdict};
use weir_stack::tools::Options;
use weir_tasks::up::{self, Stop, UnnamedPorts};

/// Units per sale: more than the buyers.
const STOCK: u64 = 1_000;

/// Users of each kind who try to buy from the large sale.
const BUYERS: u32 = 10;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// Number of users with a reservation for the large sale
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    users: u32,

    /// Blocked users, per thousand
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=500))]
    blocked_per_mille: u32,

    /// Number of open sales, including the large one
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=SALES_MAX as i64))]
    sales: u32,

    /// Number of shards of the large sale's stock and user lists in Redis
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=i64::from(SHARDS_MAX)))]
    shards: u32,

    /// Also write all numbers to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    #[command(flatten)]
    up: up::Arguments,
}

pub(super) fn run(arguments: &Arguments, tools: Options) -> Result<ExitCode> {
    let builder = up::prepare(&arguments.up, tools, UnnamedPorts::Free)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut stop = Stop::new()?;
        let measured = async {
            let mut stack = up::start(builder).await?;
            measure(&mut stack, arguments.plan(), &mut Console).await
        };
        let report = tokio::select! {
            report = measured => report?,
            () = stop.wait_for_signal() => return Ok(ExitCode::FAILURE),
        };
        println!("{}", report.table());
        if let Some(file) = &arguments.report {
            write_report(&report, file)?;
        }
        Ok(match report.is_good() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    })
}

fn write_report(report: &Report, file: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(&report.json())?;
    std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
}

impl Arguments {
    fn plan(&self) -> Plan {
        Plan {
            users: self.users,
            blocked: (u64::from(self.users) * u64::from(self.blocked_per_mille) / 1_000) as u32,
            sales: self.sales,
            shards: self.shards,
            workers: self.up.workers(),
        }
    }
}

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    users: u32,
    /// The number of blocked users; they are the first ones.
    blocked: u32,
    sales: u32,
    shards: u32,
    workers: u32,
}

/// The gateway's memory at each stage.
#[derive(Debug, Clone, Copy)]
struct Stages {
    no_sale: Memory,
    all_but_the_large_sale: Memory,
    all_sales: Memory,
    after_purchases: Memory,
}

async fn measure(stack: &mut Stack, plan: Plan, say: &mut dyn Reporter) -> Result<Report> {
    let mut redis = stack.redis.access.connect().await?;
    let (run, now_ms) = run_name()?;
    let no_sale = Memory::read(stack).await?;

    let others: Vec<String> = (1..plan.sales).map(|n| format!("{run}-{n}")).collect();
    say.line("sales", &format!("opening {}…", others.len()));
    for sale in &others {
        stack.make_sale(sale, STOCK, 1).await?;
    }
    if let Some(last) = others.last() {
        // The catalogue is published whole: a worker that has the last sale has all.
        stack.wait_until_known(last).await?;
    }
    let all_but_the_large_sale = Memory::read(stack).await?;

    say.line("reservations", &format!("{} into SQL…", plan.users));
    let large = format!("{run}-large");
    let mut sale = sale_json(&large, STOCK, plan.shards)?;
    sale["reservation"] = json!({ "from_ms": now_ms - 1, "until_ms": now_ms });
    stack.create_sale(&sale).await?;
    let started = Instant::now();
    let (database, users) = (stack.database_path(), plan.users);
    reservations::write(database, &large, users, plan.blocked, now_ms).await?;
    let sql = started.elapsed();

    let redis_before = keyspace::used(&mut redis).await?;
    say.line("warm-up", "…");
    let started = Instant::now();
    stack.warm_sale(&large).await?;
    let warm_up = started.elapsed();
    let redis_after = keyspace::used(&mut redis).await?;
    stack.wait_until_known(&large).await?;
    let all_sales = Memory::read(stack).await?;

    say.line("purchases", "…");
    let verdicts = buy(stack, plan, &large, &others).await?;
    let after_purchases = Memory::read(stack).await?;
    say.line("redis", "measuring key sizes…");
    let keyspace = Keyspace::scan(&mut redis, &stack.key_prefix).await?;
    let listed = ListedUsers::count(&mut redis, &shards_of(stack, &large, plan.shards)?).await?;
    stack.check_children()?;
    Ok(Report {
        plan,
        sql,
        warm_up,
        redis_before,
        redis_after,
        keyspace,
        listed,
        gateway: Stages {
            no_sale,
            all_but_the_large_sale,
            all_sales,
            after_purchases,
        },
        verdicts,
    })
}

/// A unique name per run, so that a kept --data folder supports several runs, and the start time.
fn run_name() -> Result<(String, u64)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let now_ms = u64::try_from(now.as_millis())?;
    Ok((format!("bench-{now_ms}"), now_ms))
}

fn shards_of(stack: &Stack, sale: &str, shards: u32) -> Result<Vec<ShardKeys>> {
    let id = SaleId::new(sale).ok().context("not the name of a sale")?;
    let keys = |shard| ShardKeys::new(&stack.key_prefix, &id, shard);
    Ok((0..shards).map(keys).collect())
}

/// Answers by kind of buyer and the gate's verdict.
type Verdicts = BTreeMap<Buyer, BTreeMap<String, u64>>;

/// Kinds of buyers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Buyer {
    /// Reserved for the large sale.
    Reserved,
    /// Reserved for the large sale, and blocked.
    Blocked,
    /// Without a reservation for the large sale.
    Stranger,
    /// Buys from another sale.
    Elsewhere,
}

impl Buyer {
    const ALL: [Self; 4] = [
        Self::Reserved,
        Self::Blocked,
        Self::Stranger,
        Self::Elsewhere,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Blocked => "blocked",
            Self::Stranger => "strangers",
            Self::Elsewhere => "other sales",
        }
    }

    /// The expected verdict of the gate.
    fn verdict(self) -> &'static str {
        match self {
            Self::Reserved | Self::Elsewhere => "granted",
            Self::Blocked => "blocked",
            Self::Stranger => "not_reserved",
        }
    }

    /// The number of buyers of this kind.
    fn count(self, plan: &Plan) -> u32 {
        match self {
            Self::Reserved => BUYERS.min(plan.users - plan.blocked),
            Self::Blocked => BUYERS.min(plan.blocked),
            Self::Stranger => BUYERS,
            Self::Elsewhere => plan.sales - 1,
        }
    }

    /// The name of the `n`th buyer, evenly spread over all users.
    fn name(self, n: u32, plan: &Plan) -> String {
        let spread = |all: u32| u64::from(all) * u64::from(n) / u64::from(self.count(plan));
        match self {
            Self::Reserved => user(plan.blocked + spread(plan.users - plan.blocked) as u32),
            Self::Blocked => user(spread(plan.blocked) as u32),
            Self::Stranger => user(plan.users + n),
            Self::Elsewhere => user(n),
        }
    }
}

async fn buy(stack: &Stack, plan: Plan, large: &str, others: &[String]) -> Result<Verdicts> {
    let mut verdicts = Verdicts::new();
    for buyer in Buyer::ALL {
        let observed = verdicts.entry(buyer).or_default();
        for n in 0..buyer.count(&plan) {
            let sale = match buyer {
                Buyer::Elsewhere => others.get(n as usize).context("a sale")?,
                _ => large,
            };
            let user = buyer.name(n, &plan);
            let headers = [("x-user-id", user.as_str())];
            let answer = http::send(Method::POST, &stack.buy_url(sale), &headers, "").await?;
            let verdict = verdict(&answer).to_owned();
            ensure!(
                verdict != "granted" || answer.status == 201,
                "the origin answered {} to a granted claim: {}",
                answer.status,
                answer.text()
            );
            *observed.entry(verdict).or_default() += 1;
        }
    }
    Ok(verdicts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_stack::report::SilentReporter;

    #[tokio::test]
    async fn users_are_stored_in_small_values_and_get_their_answers() {
        let plan = Plan {
            users: 5_000,
            blocked: 50,
            sales: 3,
            shards: 2,
            workers: 1,
        };
        let builder = Stack::builder().workers(plan.workers);
        let mut stack = builder.start().await.unwrap();
        let report = measure(&mut stack, plan, &mut SilentReporter)
            .await
            .unwrap();
        assert!(report.is_good(), "{}", report.table());
        let listed = ListedUsers {
            reserved: 5_000,
            blocked: 50,
        };
        assert_eq!(report.listed, listed);
        // 5,000 users in 2 · 256 sets: about ten in each, so no value approaches the size of a full list.
        let (all, largest) = (report.keyspace.bytes, &report.keyspace.largest);
        assert!(largest.bytes * 20 < all, "{largest:?} of {all}");
        assert!(report.redis_after > report.redis_before);
    }
}
