//! A system's Redis, filled as an origin fills it: catalogue and stock of each shard.

use super::cores;
use super::request::{HOST, Kind, SALES, code, fitment};
use super::server::peer_file;
use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use std::path::Path;
use std::time::Duration;
use weir_base::id::SaleId;
use weir_fitment::redis::fit_put::NewerEntryPolicy;
use weir_fitment::redis::fit_vehicles::Head;
use weir_fitment::redis::fit_vehicles_put::MapPiece;
use weir_fitment::redis::keys::{FitmentKeys, VehicleMapKeys};
use weir_fitment::redis::{fit_put, fit_vehicles_put};
use weir_fitment::{Offset, Plan as FitmentPlan, SEGMENT_LEN, Shape, Sku, Spu};
use weir_link::code::LinkId;
use weir_link::record::Link;
use weir_link::redis::keys::{LinkKeys, link_domains};
use weir_sale::redis::keys::{self, ShardKeys};
use weir_sale::redis::{claim, release};
use weir_sale::sale::{Band, Catalogue, Degrade, Sale, SaleState};
use weir_scripts::Call;
use weir_scripts::keys::DEFAULT_PREFIX;
use weir_stack::ports;
use weir_stack::redis::{RedisOptions, RedisServer};
use weir_stack::tools;

/// The number of shards of a sale, in every system.
const SHARDS: u32 = 4;

/// Units per shard: more than all requests.
const STOCK: u64 = 1_000_000_000;

/// 1 January 2100.
const LATER_MS: u64 = 4_102_444_800_000;

/// The target of all links, as long as in the answer of bare Envoy.
const TARGET: &str = "https://target.example/page";

/// Links per pipeline.
const LINKS_A_STEP: u64 = 1_000;

/// A Redis without persistence.
pub(super) struct Store {
    server: RedisServer,
    connection: MultiplexedConnection,
    claim_sha: String,
    kind: Kind,
    pub(super) pid: u32,
}

impl Store {
    pub(super) async fn start(
        tool: &tools::Redis,
        core: usize,
        dir: &Path,
        kind: Kind,
    ) -> Result<Self> {
        let options = RedisOptions {
            durable: false,
            ..RedisOptions::durable(ports::free()?, &dir.join("redis"), &dir.join("redis.log"))
        };
        let mut server = RedisServer::start_with(tool, &options).await?;
        let pid = server.process().pid().context("Redis has ended")?;
        cores::pin(pid, core)?;
        let mut connection = server.connection().await?;
        connection.set_response_timeout(Duration::from_secs(60));
        let load = |source: &str| {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(source);
            load
        };
        let claim_sha = load(&peer_file("claim.lua")?)
            .query_async(&mut connection)
            .await?;
        // The gate loads the scripts itself; the filter behind Webdis and fair nginx do not.
        for script in [&claim::SCRIPT, &release::SCRIPT] {
            load(script.source).exec_async(&mut connection).await?;
        }
        let mut store = Self {
            server,
            connection,
            claim_sha,
            kind,
            pid,
        };
        store.rebalance().await?;
        store.fill_links().await?;
        store.fill_fitment().await?;
        Ok(store)
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    pub(super) fn port(&self) -> u16 {
        self.server.port()
    }

    /// The SHA-1 digest of the peers' script.
    pub(super) fn claim_sha(&self) -> &str {
        &self.claim_sha
    }

    /// Deletes all claims and refills the stock in one transaction, so that no poll finds a Redis without sales.
    pub(super) async fn rebalance(&mut self) -> Result<()> {
        if self.kind.links() > 0
            || matches!(
                self.kind,
                Kind::MakeLink | Kind::Fitment | Kind::Join | Kind::Position
            )
        {
            return Ok(());
        }
        let mut all = redis::pipe();
        all.atomic().cmd("FLUSHALL").arg("ASYNC");
        let catalogue = serde_json::to_string(&catalogue()?)?;
        all.set(keys::catalogue(DEFAULT_PREFIX), catalogue);
        for sale in SALES {
            let id = SaleId::new(sale).ok().context("a sale's name")?;
            let stock = if sale == "gone" { 0 } else { STOCK };
            for shard in 0..SHARDS {
                let keys = ShardKeys::new(DEFAULT_PREFIX, &id, shard);
                all.set(keys.stock(), stock);
                // Without an epoch, a gateway reports the shard lost at each poll, and queries Redis again.
                all.set(keys.epoch(), 1);
                all.set(keys.sums(), NO_SUMS);
            }
        }
        all.exec_async(&mut self.connection)
            .await
            .context("cannot fill Redis")
    }

    /// Writes the links once: as Weir's records, and as plain targets for others.
    async fn fill_links(&mut self) -> Result<()> {
        let set = |all: &mut redis::Pipeline, key: Vec<u8>, value: &[u8]| {
            all.set(key, value).ignore();
        };
        let record = Link::to(TARGET).encode();
        let mut all = redis::pipe();
        let domains = format!(r#"{{"version":1,"domains":[{{"id":"b","hosts":["{HOST}"]}}]}}"#);
        set(&mut all, link_domains(DEFAULT_PREFIX), domains.as_bytes());
        for n in 0..self.kind.links() {
            let code = code(n).context("a link's code")?;
            let id: LinkId = format!("b/{}", code.as_str())
                .parse()
                .ok()
                .context("a link")?;
            set(
                &mut all,
                LinkKeys::new(DEFAULT_PREFIX, &id).record(),
                &record,
            );
            let plain = format!("link:{}", code.as_str());
            set(&mut all, plain.into_bytes(), TARGET.as_bytes());
            if n % LINKS_A_STEP == 0 {
                all.exec_async(&mut self.connection)
                    .await
                    .context("cannot fill Redis")?;
                all.clear();
            }
        }
        all.exec_async(&mut self.connection)
            .await
            .context("cannot fill Redis")
    }

    /// Writes the vehicles and the SKUs that fit them.
    async fn fill_fitment(&mut self) -> Result<()> {
        if self.kind != Kind::Fitment {
            return Ok(());
        }
        let map = VehicleMapKeys::new(DEFAULT_PREFIX);
        let vehicles: Vec<_> = (0..fitment::VEHICLES)
            .map(|index| fitment::vehicle(index).parse().ok())
            .collect();
        let segment = SEGMENT_LEN as usize;
        for (number, vehicles) in (0..).zip(vehicles.chunks(segment)) {
            let before = number * SEGMENT_LEN;
            let head = Head {
                generation: 1,
                count: before + vehicles.len() as u32,
                stamp: 1,
            };
            let chunk = MapPiece { before, vehicles };
            self.run(&fit_vehicles_put::call(&map, 1, chunk, Some(head)))
                .await?;
        }
        for product in 0..fitment::PRODUCTS {
            let spu = Spu::new(format!("P{product}")).ok().context("a product")?;
            let keys = FitmentKeys::new(DEFAULT_PREFIX, &spu);
            for number in fitment::skus(product) {
                let offsets: Vec<_> = fitment::offsets(number).filter_map(Offset::new).collect();
                let shape = Shape::from_offsets(FitmentPlan::Directory, &offsets, 0);
                let sku = Sku::new(number.to_string()).ok().context("a SKU")?;
                self.run(&fit_put::call(
                    &keys,
                    &sku,
                    1,
                    NewerEntryPolicy::Stays,
                    &shape,
                ))
                .await?;
            }
        }
        // The gateway loads it itself; nginx calls it by its digest.
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD")
            .arg(weir_fitment::redis::fit_query::SCRIPT.source);
        load.exec_async(&mut self.connection)
            .await
            .context("cannot load the script")
    }

    async fn run(&mut self, call: &Call) -> Result<()> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(call.script.source).arg(call.keys.len());
        for word in call.words() {
            eval.arg(word);
        }
        eval.exec_async(&mut self.connection)
            .await
            .context("cannot fill Redis")
    }

    /// Script calls so far: gateways' requests without their polls.
    pub(super) async fn script_calls(&self) -> Result<u64> {
        let calls = self.server.command_calls().await?;
        let count = |name: &str| calls.get(name).copied().unwrap_or(0);
        Ok(count("evalsha") + count("eval"))
    }
}

/// The sums of an unused shard: see `shard.lua`.
const NO_SUMS: &str = "1 0 0 0 0 0";

fn catalogue() -> Result<Catalogue> {
    let sales: Result<Vec<Sale>> = SALES.into_iter().map(sale).collect();
    Ok(Catalogue {
        version: 1,
        sales: sales?,
        ..Catalogue::default()
    })
}

fn sale(name: &str) -> Result<Sale> {
    let starts_at_ms = if name == "later" { LATER_MS } else { 1 };
    Ok(Sale {
        id: SaleId::new(name).ok().context("a sale's name")?,
        starts_at_ms,
        ends_at_ms: LATER_MS + 1,
        shards: SHARDS,
        first_shard: 0,
        user_cap: 1,
        state: SaleState::Open,
        reservation: false,
        token: name == "tokened",
        challenge: None,
        degrade: Degrade::default(),
        sku: None,
        cold: false,
        band: if name == "gone" {
            Band::None
        } else {
            Band::High
        },
        paused: false,
    })
}
