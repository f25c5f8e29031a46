//! Two sites: two Redis, two origins and one database.

use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::{Value, json};
use sqlx::mysql::MySqlConnection;
use sqlx::{Connection, Row};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use weir_origin::clock::now_ms;
use weir_origin::config::{Command, Config};
use weir_origin::origin::open_database;
use weir_origin::sales::model::site::SiteName;
use weir_origin::sales::sites;
use weir_origin::sales::stock_balance::StockBalance;
use weir_origin::sales::store::{OrderOutcome, SiteOutcome, SiteRefusal};
use weir_sale::ledger::{ClaimReply, LendReply};
use weir_sale::redis::catalogue;
use weir_sale::sale::{Band, Sale};
use weir_sale::site::{FenceState, FenceStock};
use weir_stack::mariadb::MariaDbServer;
use weir_stack::redis::RedisServer;
use weir_stack::report::SilentReporter;

use crate::support::{Backing, World, backing, id, mysql_url, redis, sale_json, user};

/// Two sites, and what they share.
struct Sites {
    dir: TempDir,
    url: String,
    redis: [RedisServer; 2],
    worlds: [World; 2],
}

impl Sites {
    /// Two sites, `a` and `b`, and a sale of `total` units, which `a` has loaded.
    async fn with_sale(total: u64) -> Self {
        let sites = Self::new().await;
        sites.worlds[0].sale("s", total).await;
        sites
    }

    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = match backing() {
            Backing::SqliteAndSingle => format!("sqlite://{}/weir.db", dir.path().display()),
            Backing::MySqlAndCluster => mysql_url().await,
        };
        Self::on(dir, url).await
    }

    async fn on(dir: TempDir, url: String) -> Self {
        let dirs = ["a", "b"].map(|name| dir.path().join(name));
        for dir in &dirs {
            std::fs::create_dir_all(dir).unwrap();
        }
        let redis = [
            redis(&tempfile::tempdir_in(&dirs[0]).unwrap()).await,
            redis(&tempfile::tempdir_in(&dirs[1]).unwrap()).await,
        ];
        let a = World::at_site("a", &redis[0].url(), &url).await;
        let b = World::at_site("b", &redis[1].url(), &url).await;
        Self {
            dir,
            url,
            redis,
            worlds: [a, b],
        }
    }

    /// Runs the jobs of these sites in turn.
    async fn rounds(&self, of: &[usize], count: u32) {
        let mut reconcilers: Vec<_> = of
            .iter()
            .map(|&site| self.worlds[site].origin.sales().reconciler())
            .collect();
        for _ in 0..count {
            for (reconciler, &site) in reconcilers.iter_mut().zip(of) {
                let sales = self.worlds[site].origin.sales();
                reconciler.round().await.unwrap();
                sales.jobs().round().await.unwrap();
                sales.site_mover().unwrap().round().await.unwrap();
            }
        }
    }

    async fn stocks(&self) -> Vec<FenceStock> {
        let store = self.worlds[0].origin.sales().store();
        store.sites().stocks_of(&id("s")).await.unwrap()
    }

    async fn stock(&self, fence: u32) -> FenceStock {
        let stocks = self.stocks().await;
        *stocks.iter().find(|stock| stock.fence == fence).unwrap()
    }

    async fn balance(&self, site: usize) -> Option<StockBalance> {
        let sales = self.worlds[site].origin.sales();
        StockBalance::read(sales.store(), sales.ledger(), &id("s"))
            .await
            .unwrap()
    }

    /// Units in stock and claims of a site's Redis.
    async fn in_redis(&self, site: usize) -> (i64, u64) {
        let terms = self.balance(site).await.unwrap().terms.unwrap();
        (terms.stock, terms.held)
    }

    /// Checks that each unit of the sale is at one place: each of these sites has its allotment, and the allotments are
    /// the total.
    async fn check(&self, open: &[usize], total: i64) {
        let stocks = self.stocks().await;
        let allotted: i64 = stocks.iter().map(|stock| stock.units).sum();
        assert_eq!(allotted, total, "{stocks:?}");
        let ordered: i64 = stocks.iter().map(|stock| stock.ordered).sum();
        let mut elsewhere = 0;
        for &site in open {
            let balance = self.balance(site).await.unwrap();
            assert_eq!(balance.drift(), Some(0), "site {site}: {balance:?}");
            assert!(balance.shards_with_other_orders().is_empty(), "{balance:?}");
            let terms = balance.terms.unwrap();
            elsewhere += terms.stock + i64::try_from(terms.held + terms.moving).unwrap();
        }
        assert_eq!(elsewhere + ordered, total, "{stocks:?}");
        assert_eq!(self.worlds[0].remaining().await, total - ordered);
    }

    /// The units of all sites have arrived: nothing is under way.
    async fn settle(&self, of: &[usize]) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            self.rounds(of, 1).await;
            let open = "SELECT COUNT(*) FROM stock_changes WHERE done_at_ms IS NULL";
            let mut drifts = Vec::new();
            for &site in of {
                drifts.push(self.balance(site).await.and_then(|balance| balance.drift()));
            }
            let is_settled = drifts.iter().all(|drift| *drift == Some(0));
            if is_settled && self.worlds[0].number(open).await == 0 {
                return;
            }
            assert!(Instant::now() < deadline, "not settled: {drifts:?}");
        }
    }

    async fn fail(&self, name: &str) -> SiteOutcome {
        let store = self.worlds[1].origin.sales().store();
        store.sites().fail(&site(name), now_ms()).await.unwrap()
    }

    async fn drain(&self, name: &str) -> SiteOutcome {
        let store = self.worlds[1].origin.sales().store();
        store.sites().drain(&site(name)).await.unwrap()
    }

    async fn join(&self, name: &str) -> SiteOutcome {
        let store = self.worlds[1].origin.sales().store();
        store.sites().join(&site(name), now_ms()).await.unwrap()
    }

    async fn states(&self) -> Vec<(String, FenceState)> {
        let store = self.worlds[1].origin.sales().store();
        let fences = store.sites().fences().await.unwrap().into_iter();
        fences
            .map(|fence| (fence.site.to_string(), fence.state))
            .collect()
    }

    /// The sale as the gateways of a site know it.
    async fn published(&self, site: usize) -> Sale {
        let sales = self.worlds[site].origin.sales();
        sales.publisher().publish().await.unwrap();
        let json = sales.ledger().published().await.unwrap();
        catalogue::read(&json.unwrap()).unwrap().sales[0].clone()
    }

    /// Runs `weir-origin site` with these words.
    async fn command(&self, words: &[&str]) -> Result<String, String> {
        let words = ["weir-origin", "site"].iter().chain(words);
        let Some(Command::Site(command)) = Config::parse_from(words).command else {
            panic!("another command");
        };
        let database = open_database(&self.url).await.unwrap();
        let done = sites::run(&database, &command).await;
        done.map_err(|error| error.to_string())
    }
}

fn site(name: &str) -> SiteName {
    name.parse().unwrap()
}

/// Users of a sale, enough for each shard.
fn users(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n}")).collect()
}

#[tokio::test]
async fn second_site_gets_half_of_the_units_and_both_sell() {
    let sites = Sites::with_sale(40).await;
    sites.settle(&[0, 1]).await;
    sites.rounds(&[0, 1], 2).await;
    assert_eq!(
        (sites.stock(0).await.units, sites.stock(1).await.units),
        (20, 20)
    );
    let published = [sites.published(0).await, sites.published(1).await];
    assert_eq!(
        published.map(|sale| (sale.first_shard, sale.cold)),
        [(0, false), (64, false)]
    );
    for (fence, name) in [(0, "alice"), (1, "bob")] {
        let world = &sites.worlds[fence as usize];
        let ticket = world.claim_under(fence, "s", name).await.unwrap();
        assert_eq!(world.order(&ticket).await.status, 201);
    }
    sites.settle(&[0, 1]).await;
    sites.check(&[0, 1], 40).await;
    let ordered = sites.stocks().await;
    assert_eq!(
        ordered
            .iter()
            .map(|stock| stock.ordered)
            .collect::<Vec<_>>(),
        [1, 1]
    );
}

#[tokio::test]
async fn failed_sites_claims_never_become_orders_and_its_units_move() {
    let sites = Sites::with_sale(40).await;
    sites.settle(&[0, 1]).await;
    sites.rounds(&[0, 1], 2).await;
    let [a, b] = &sites.worlds;
    let ordered = a.claim_under(0, "s", "alice").await.unwrap();
    assert_eq!(a.order(&ordered).await.status, 201);
    let held = a.claim_under(0, "s", "bob").await.unwrap();
    assert!(matches!(sites.fail("a").await, SiteOutcome::Done(_)));
    // The gateways of the lost site are only cut off: they hold a signed claim.
    for world in [a, b] {
        let refused = world.order(&held).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (409, "claim_released")
        );
    }
    let again = a.order(&ordered).await;
    assert_eq!(again.status, 200, "it was an order before: {again:?}");
    sites.settle(&[1]).await;
    assert_eq!(
        (sites.stock(0).await.units, sites.stock(0).await.ordered),
        (1, 1)
    );
    assert_eq!(sites.in_redis(1).await, (39, 0));
    sites.check(&[1], 40).await;
    assert!(sites.balance(0).await.is_none(), "its Redis counts no more");
    assert!(
        sites.published(0).await.cold,
        "gateways there grant no claims"
    );
    assert!(matches!(sites.fail("a").await, SiteOutcome::Unchanged(_)));
    assert_eq!(
        sites.fail("b").await,
        SiteOutcome::Refused(SiteRefusal::Last)
    );
    assert_eq!(
        sites.fail("c").await,
        SiteOutcome::Refused(SiteRefusal::Unknown)
    );
}

/// The lost site has taken units from its shards, but SQL does not know that yet.
#[tokio::test]
async fn late_outcome_of_a_failed_sites_transfer_counts_nothing() {
    let sites = Sites::with_sale(40).await;
    let [a, b] = &sites.worlds;
    let (sales, other) = (a.origin.sales(), b.origin.sales());
    let begun = sales.store().sites();
    let sale = id("s");
    let begun = begun.begin_transfer(&sale, 0, 1, &[3, 3, 3, 3], now_ms());
    assert!(begun.await.unwrap());
    let open = sales.store().stock_changes().open_changes(9).await.unwrap();
    assert_eq!((open.len(), open[0].requested), (1, -12));
    assert!(
        other.changer().finish(&open[0]).await.unwrap().is_none(),
        "it is not of that site"
    );
    sites.fail("a").await;
    let late = sales.store().stock_changes();
    late.end_change(&open[0], -12, now_ms()).await.unwrap();
    sites.settle(&[1]).await;
    assert_eq!(
        (sites.stock(0).await.units, sites.stock(1).await.units),
        (0, 40)
    );
    assert_eq!(sites.in_redis(1).await, (40, 0));
    sites.check(&[1], 40).await;
}

/// SQL has moved the units to a site that fails before its shards have them.
#[tokio::test]
async fn units_on_the_way_to_a_failed_site_come_back() {
    let sites = Sites::with_sale(40).await;
    let sales = sites.worlds[0].origin.sales();
    let begun = sales.store().sites();
    let sale = id("s");
    let begun = begun.begin_transfer(&sale, 0, 1, &[3, 3, 3, 3], now_ms());
    assert!(begun.await.unwrap());
    sales.changer().finish_all().await.unwrap();
    assert_eq!(sites.stock(1).await.units, 12);
    let store = sales.store().sites();
    store.fail(&site("b"), now_ms()).await.unwrap();
    sites.settle(&[0]).await;
    assert_eq!(sites.in_redis(0).await, (40, 0));
    sites.check(&[0], 40).await;
}

#[tokio::test]
async fn drain_lets_holders_order_and_closes_the_site_when_it_is_empty() {
    let sites = Sites::with_sale(40).await;
    sites.settle(&[0, 1]).await;
    let a = &sites.worlds[0];
    let ticket = a.claim_under(0, "s", "alice").await.unwrap();
    assert!(matches!(sites.drain("a").await, SiteOutcome::Done(_)));
    sites.rounds(&[0, 1], 4).await;
    assert_eq!(
        sites.states().await[0].1,
        FenceState::Draining,
        "a claim is open"
    );
    assert_eq!(a.order(&ticket).await.status, 201);
    let deadline = Instant::now() + Duration::from_secs(20);
    while sites.states().await[0].1 != FenceState::Closed {
        assert!(Instant::now() < deadline, "{:?}", sites.stocks().await);
        sites.rounds(&[0, 1], 1).await;
    }
    sites.settle(&[1]).await;
    assert_eq!(
        (sites.stock(0).await.units, sites.in_redis(1).await),
        (1, (39, 0))
    );
    sites.check(&[1], 40).await;
    // An order of the closed site ends: its unit is sold by the other one, and Redis of the closed one does not get it.
    let path = format!("/orders/{}/cancel", ticket.claim_id());
    let cancelled = a.as_user("alice", "POST", &path).await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    sites.settle(&[1]).await;
    assert_eq!(sites.in_redis(1).await, (40, 0));
    assert_eq!(a.audit(&ticket).await.stock, Some(0));
    let unfollowed = "SELECT COUNT(*) FROM unfollowed_orders";
    assert_eq!(a.number(unfollowed).await, 0);
    sites.check(&[1], 40).await;
}

#[tokio::test]
async fn returned_site_gets_a_new_fence_and_units() {
    let sites = Sites::with_sale(40).await;
    sites.settle(&[0, 1]).await;
    let [a, _] = &sites.worlds;
    let old = a.claim_under(0, "s", "alice").await.unwrap();
    sites.fail("a").await;
    sites.settle(&[1]).await;
    // A restarted origin does not join: an operator has to say that the site is back.
    World::at_site("a", &sites.redis[0].url(), &sites.url).await;
    let all = |states: &[(&str, FenceState)]| -> Vec<(String, FenceState)> {
        states
            .iter()
            .map(|(name, state)| ((*name).to_owned(), *state))
            .collect()
    };
    use FenceState::{Closed, Live};
    assert_eq!(sites.states().await, all(&[("a", Closed), ("b", Live)]));
    assert!(matches!(sites.join("a").await, SiteOutcome::Done(_)));
    assert!(matches!(sites.join("a").await, SiteOutcome::Unchanged(_)));
    assert_eq!(
        sites.states().await,
        all(&[("a", Closed), ("b", Live), ("a", Live)])
    );
    sites.settle(&[0, 1]).await;
    sites.rounds(&[0, 1], 2).await;
    assert_eq!(
        (sites.stock(1).await.units, sites.stock(2).await.units),
        (20, 20)
    );
    assert_eq!(sites.published(0).await.first_shard, 128);
    let new = a.claim_under(2, "s", "alice").await.unwrap();
    assert_eq!(a.order(&old).await.code(), "claim_released");
    assert_eq!(a.order(&new).await.status, 201);
    sites.settle(&[0, 1]).await;
    sites.check(&[0, 1], 40).await;
}

/// The last units are at the other site: nobody answers `sold_out` before they are sold, and all are sold.
#[tokio::test]
async fn every_unit_is_sold_and_only_then_is_the_sale_sold_out() {
    let sites = Sites::with_sale(6).await;
    sites.settle(&[0, 1]).await;
    let mut sold = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    // All buyers are at site b.
    for name in users("user", 6) {
        let ticket = loop {
            match sites.worlds[1].claim_under(1, "s", &name).await {
                Ok(ticket) => break ticket,
                Err(refused) => {
                    assert!(matches!(refused, ClaimReply::Empty { .. }), "{refused:?}");
                    assert_ne!(sites.published(1).await.band, Band::None, "{sold} are sold");
                    assert!(Instant::now() < deadline, "{:?}", sites.stocks().await);
                    sites.rounds(&[0, 1], 1).await;
                    // The home shard may be empty while another one of the site has the unit.
                    sites.bring_to(1, &name).await;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        };
        assert_eq!(sites.worlds[1].order(&ticket).await.status, 201);
        sold += 1;
    }
    for site in 0..2 {
        assert_eq!(sites.published(site).await.band, Band::None);
    }
    sites.settle(&[0, 1]).await;
    sites.check(&[0, 1], 6).await;
}

impl Sites {
    /// Moves a unit to the home shard of a user from another shard of the site, like its gateways.
    async fn bring_to(&self, site: usize, name: &str) {
        let sales = self.worlds[site].origin.sales();
        let sale = sales.store().sale(&id("s")).await.unwrap().unwrap().sale;
        let shards = sales.ledger().audits(&sale).await.unwrap();
        let home = sale.home_shard(&user(name));
        let mut numbered = sale.shard_numbers().zip(&shards);
        let lender = numbered.find(|(number, shard)| *number != home && shard.stock > Some(0));
        let Some((from, _)) = lender else { return };
        let ledger = sales.ledger();
        if let LendReply::Lent(transfer) = ledger.lend(&sale.id, from, home, 1).await.unwrap() {
            let deposited = ledger.deposit(&sale.id, from, home, transfer);
            deposited.await.unwrap();
            let settled = ledger.settle_transfer(&sale.id, from, home, transfer.id);
            settled.await.unwrap();
        }
    }
}

/// A site that does nothing but run its jobs sells the units of a lost site within the time that operators expect.
#[tokio::test(flavor = "multi_thread")]
async fn surviving_site_sells_the_lost_units_within_three_seconds() {
    let mut sites = Sites::with_sale(40).await;
    sites.settle(&[0, 1]).await;
    sites.rounds(&[0, 1], 2).await;
    let stop = CancellationToken::new();
    let jobs = sites.worlds[1].origin.sales().spawn(&stop);
    sites.redis[0].kill();
    let failed = Instant::now();
    assert!(matches!(sites.fail("a").await, SiteOutcome::Done(_)));
    while sites.in_redis(1).await != (40, 0) {
        assert!(
            failed.elapsed() < Duration::from_secs(3),
            "{:?}",
            sites.stocks().await
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    sites.check(&[1], 40).await;
    stop.cancel();
    for job in jobs {
        job.await.unwrap();
    }
}

#[tokio::test]
async fn running_sale_of_one_site_becomes_the_first_sites() {
    let dir = tempfile::tempdir().unwrap();
    let url = match backing() {
        Backing::SqliteAndSingle => format!("sqlite://{}/weir.db", dir.path().display()),
        Backing::MySqlAndCluster => mysql_url().await,
    };
    let server = redis(&dir).await;
    let alone = World::alone(&server.url(), &url).await;
    alone.sale("s", 8).await;
    let ticket = alone.claim("s", "alice").await;
    assert_eq!(alone.order(&ticket).await.status, 201);
    let a = World::at_site("a", &server.url(), &url).await;
    let refused = sites::join_or_refuse(&open_database(&url).await.unwrap(), None).await;
    let refused = format!("{:#}", refused.unwrap_err());
    assert!(
        refused.contains("has the sites \"a\": set WEIR_SITE"),
        "{refused}"
    );
    let sales = a.origin.sales();
    sales.site_mover().unwrap().round().await.unwrap();
    let sale = id("s");
    let balance = StockBalance::read(sales.store(), sales.ledger(), &sale);
    let balance = balance.await.unwrap().unwrap();
    assert_eq!(
        (balance.drift(), balance.terms.unwrap().total),
        (Some(0), 8)
    );
    let ticket = a.claim_under(0, "s", "bob").await.unwrap();
    assert_eq!(a.order(&ticket).await.status, 201);
}

#[tokio::test]
async fn one_site_loads_a_sale_and_changes_its_stock() {
    let sites = Sites::new().await;
    let [a, b] = &sites.worlds;
    let created = b.admin("POST", "/sales", &sale_json("s", 10)).await;
    assert_eq!(created.status, 201, "{created:?}");
    let refused = b.admin("POST", "/sales/s/warm", &Value::Null).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (409, "other_site")
    );
    assert_eq!(
        a.admin("POST", "/sales/s/warm", &Value::Null).await.status,
        200
    );
    let again = b.admin("POST", "/sales/s/warm", &Value::Null).await;
    assert_eq!(again.status, 200, "it is loaded: {again:?}");
    let key = [("Idempotency-Key", "k-1")];
    let more = json!({ "units": 5 });
    let refused = b.admin_with("POST", "/sales/s/stock", &more, &key).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (409, "other_site")
    );
    let done = a.admin_with("POST", "/sales/s/stock", &more, &key).await;
    assert_eq!(
        (done.status.as_u16(), &done.body["units"]),
        (200, &json!(5))
    );
    sites.settle(&[0, 1]).await;
    sites.check(&[0, 1], 15).await;
    let listed = a.admin("GET", "/sales/s/stock", &Value::Null).await;
    assert_eq!(
        listed.body["changes"].as_array().unwrap().len(),
        1,
        "{listed:?}"
    );
}

/// Two sites would both load all units.
#[tokio::test]
async fn interrupted_load_continues_at_its_site_unless_that_is_closed() {
    use weir_origin::sales::store::LoadTurn::{Done, Elsewhere, Here};
    let sites = Sites::new().await;
    let [a, b] = &sites.worlds;
    let created = b.admin("POST", "/sales", &sale_json("s", 10)).await;
    assert_eq!(created.status, 201, "{created:?}");
    let turn = async |world: &World| {
        let store = world.origin.sales().store();
        store.sites().begin_load(&id("s")).await.unwrap()
    };
    assert_eq!((turn(b).await, turn(a).await), (Elsewhere, Here));
    sites.drain("a").await;
    assert_eq!(
        (turn(b).await, turn(a).await),
        (Elsewhere, Here),
        "it has begun"
    );
    sites.fail("a").await;
    let late = a.origin.sales().store().warming();
    assert!(!late.mark_warmed(&id("s"), now_ms()).await.unwrap());
    assert_eq!((turn(a).await, turn(b).await), (Elsewhere, Here));
    assert_eq!(
        b.admin("POST", "/sales/s/warm", &Value::Null).await.status,
        200
    );
    assert_eq!(turn(b).await, Done);
    sites.settle(&[1]).await;
    sites.check(&[1], 10).await;
}

#[tokio::test]
async fn commands_show_and_change_sites() {
    let sites = Sites::with_sale(40).await;
    sites.settle(&[0, 1]).await;
    sites.rounds(&[0, 1], 2).await;
    let list = sites.command(&["list"]).await.unwrap();
    let expected = "site a, fence 0, live\nsite b, fence 1, live\n\
        sale s: site a, fence 0, has 20 units, 20 of them not ordered\n\
        sale s: site b, fence 1, has 20 units, 20 of them not ordered\n";
    assert_eq!(list, expected);
    let drained = sites.command(&["drain", "b"]).await.unwrap();
    assert!(
        drained.starts_with("site b, fence 1, draining: "),
        "{drained}"
    );
    let failed = sites.command(&["fail", "b"]).await.unwrap();
    assert!(failed.starts_with("site b, fence 1, closed: "), "{failed}");
    let last = sites.command(&["fail", "a"]).await.unwrap_err();
    let expected = "cannot change site \"a\": no other site sells: first join another one with `weir-origin site join`";
    assert_eq!(last, expected);
    let joined = sites.command(&["join", "b"]).await.unwrap();
    assert!(joined.starts_with("site b, fence 2, live: "), "{joined}");
    assert!(Config::try_parse_from(["weir-origin", "site", "fail", "B!"]).is_err());
    assert!(Config::try_parse_from(["weir-origin", "--site", ""]).is_err());
    assert!(sites.dir.path().exists());
}

/// An order that has read the fence is committed before the fence is closed: SQL never has an order of a fence that was
/// closed before it.
#[tokio::test(flavor = "multi_thread")]
async fn closing_a_fence_waits_for_orders_that_have_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let url = mysql_url().await;
    let sites = Sites::on(dir, url.clone()).await;
    let [a, b] = &sites.worlds;
    a.sale("s", 8).await;
    let ticket = a.claim_under(0, "s", "alice").await.unwrap();
    // The order waits for the sale's stock, which it takes last.
    let mut blocker = MySqlConnection::connect(&url).await.unwrap();
    let lock = ["BEGIN", "UPDATE stock SET remaining = remaining"];
    for statement in lock {
        sqlx::raw_sql(statement)
            .execute(&mut blocker)
            .await
            .unwrap();
    }
    let store = a.origin.sales().store().clone();
    let placed = tokio::spawn(async move { store.claims().place(&ticket, now_ms()).await });
    tokio::time::sleep(Duration::from_millis(400)).await;
    let store = b.origin.sales().store().clone();
    let failed = tokio::spawn(async move { store.sites().fail(&site("a"), now_ms()).await });
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(!placed.is_finished() && !failed.is_finished());
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut blocker)
        .await
        .unwrap();
    let placed = placed.await.unwrap().unwrap();
    assert!(matches!(placed, OrderOutcome::New(_)), "{placed:?}");
    assert!(matches!(
        failed.await.unwrap().unwrap(),
        SiteOutcome::Done(_)
    ));
    sites.settle(&[1]).await;
    sites.check(&[1], 8).await;
}

/// An admitted request costs as many statements and Redis calls with two sites as without sites.
#[tokio::test]
async fn sites_cost_an_order_no_call() {
    let dir = tempfile::tempdir().unwrap();
    let tool = weir_stack::tools::MariaDb::find_or_get(&mut SilentReporter).unwrap();
    let log = dir.path().join("mariadb.log");
    let port = weir_stack::ports::free().unwrap();
    let server = MariaDbServer::start(&tool, port, dir.path(), &log)
        .await
        .unwrap();
    let mut sql = MySqlConnection::connect(&server.url("")).await.unwrap();
    for name in ["alone", "sited"] {
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::raw_sql(create).execute(&mut sql).await.unwrap();
    }
    let calls_of_order = async |world: &World, redis: &RedisServer, user: &str| {
        let ticket = world.claim_under(0, "s", user).await.unwrap();
        let mut counted = MySqlConnection::connect(&server.url("")).await.unwrap();
        let mut executed = async || {
            let query = "SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'";
            let row = sqlx::raw_sql(query).fetch_one(&mut counted).await.unwrap();
            row.get::<String, _>(1).parse::<i64>().unwrap()
        };
        let calls = async || -> i64 {
            let calls = redis.command_calls().await.unwrap();
            let calls = calls.iter().filter(|(name, _)| {
                !["info", "hello", "client"]
                    .iter()
                    .any(|own| name.starts_with(own))
            });
            calls.map(|(_, count)| i64::try_from(*count).unwrap()).sum()
        };
        let before = (executed().await, calls().await);
        assert_eq!(world.order(&ticket).await.status, 201);
        (executed().await - before.0, calls().await - before.1)
    };
    let alone_redis = redis(&tempfile::tempdir_in(dir.path()).unwrap()).await;
    let alone = World::alone(&alone_redis.url(), &server.url("alone")).await;
    alone.sale("s", 80).await;
    let sites = Sites::on(tempfile::tempdir().unwrap(), server.url("sited")).await;
    sites.worlds[0].sale("s", 80).await;
    let mut costs = Vec::new();
    // The first order of each shard inserts a row, and loads the scripts.
    for user in ["alice", "alice2", "bob", "carol", "dave", "erin"] {
        let alone = calls_of_order(&alone, &alone_redis, user).await;
        let sited = calls_of_order(&sites.worlds[0], &sites.redis[0], user).await;
        costs.push((alone, sited));
    }
    let ((statements, calls), _) = costs[5];
    assert!(statements > 5 && calls > 0, "{costs:?}");
    assert!(
        costs.iter().all(|(alone, sited)| alone == sited),
        "{costs:?}"
    );
}

#[tokio::test]
async fn redis_of_two_origins_without_sites_are_found() {
    let sites = Sites::new().await;
    let store = sites.worlds[0].origin.sales().store();
    let report = async |world: &World| {
        let reporter = world.origin.sales().redis_reporter();
        reporter.round().await.unwrap();
    };
    for world in &sites.worlds {
        report(world).await;
        report(world).await;
    }
    let by_site = async || store.sites().redis_by_site(now_ms()).await.unwrap();
    assert_eq!(by_site().await, [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    // A second origin of site b, by mistake on the Redis of nobody else.
    let dir = tempfile::tempdir().unwrap();
    let other = redis(&dir).await;
    let wrong = World::at_site("b", &other.url(), &sites.url).await;
    report(&wrong).await;
    assert_eq!(by_site().await, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    let later = store
        .sites()
        .redis_by_site(now_ms() + 61_000)
        .await
        .unwrap();
    assert!(later.is_empty(), "its origins are gone: {later:?}");
}
