//! The built filter against the real Lua on a real Redis, with a virtual clock and two workers.

use std::time::Duration;

use super::support::{CATALOGUE, CONFIG, Gate};
use tokio::runtime::Runtime;
use weir_base::id::SaleId;
use weir_host_test::{Reply, Stream, Upstream};
use weir_sale::redis::keys::{ShardKeys, catalogue};
use weir_sale::redis::warm;
use weir_scripts::Call;
use weir_stack::redis::RedisServer;
use weir_stack::report::SilentReporter;
use weir_stack::{ports, tools};

const UNITS_A_SHARD: u64 = 50;

struct Shop {
    gate: Gate,
    runtime: Runtime,
    server: RedisServer,
    _dir: tempfile::TempDir,
}

impl Shop {
    /// A gate that has the sale `open`, with two warm shards.
    fn open() -> Self {
        let runtime = Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::Redis::find_or_get(&mut SilentReporter).unwrap();
        let log = dir.path().join("redis.log");
        let started = RedisServer::start(&tool, ports::free().unwrap(), dir.path(), &log);
        let server = runtime.block_on(started).unwrap();
        let address = format!("127.0.0.1:{}", server.port());
        let gate = Gate::builder(CONFIG, |host| {
            host.cluster("weir_redis", Upstream::resp(address))
        });
        let shop = Self {
            gate,
            runtime,
            server,
            _dir: dir,
        };
        shop.command(::redis::cmd("SET").arg(catalogue("weir")).arg(CATALOGUE));
        for shard in 0..2 {
            shop.run(&warm::call(&keys(shard), UNITS_A_SHARD, None));
        }
        shop.gate.host.malformed_request(0);
        shop.gate.host.advance(Duration::from_millis(100));
        shop.gate.host.run_until_idle();
        shop
    }

    fn command(&self, command: &mut ::redis::Cmd) -> ::redis::Value {
        self.runtime.block_on(async {
            let mut connection = self.server.connection().await.unwrap();
            command.query_async(&mut connection).await.unwrap()
        })
    }

    fn run(&self, call: &Call) {
        let mut command = ::redis::cmd("EVAL");
        command.arg(call.script.source).arg(call.keys.len());
        for argument in call.words() {
            command.arg(argument);
        }
        self.command(&mut command);
    }

    fn stock(&self) -> u64 {
        let of = |shard| match self.command(::redis::cmd("GET").arg(keys(shard).stock())) {
            ::redis::Value::BulkString(digits) => {
                String::from_utf8(digits).unwrap().parse::<u64>().unwrap()
            }
            other => panic!("{other:?}"),
        };
        of(0) + of(1)
    }

    fn buy_on(&self, worker: usize, user: usize) -> Stream {
        let user = format!("user-{user}");
        let request = self
            .gate
            .host
            .request(worker)
            .method("POST")
            .path("/sales/open/orders");
        request.header("x-user-id", user).send()
    }
}

fn keys(shard: u32) -> ShardKeys {
    ShardKeys::new("weir", &SaleId::new("open").unwrap(), shard)
}

#[test]
fn two_workers_never_oversell_the_stock() {
    let shop = Shop::open();
    let buyers: Vec<Stream> = (0..400).map(|n| shop.buy_on(n % 2, n)).collect();
    shop.gate.host.run_until_idle();
    let granted = buyers.iter().filter(|buyer| buyer.is_continued()).count() as u64;
    let sold_out = buyers
        .iter()
        .filter(|buyer| buyer.status() == Some(409))
        .count();
    assert_eq!((granted, sold_out), (2 * UNITS_A_SHARD, 300));
    assert_eq!(shop.stock(), 0);
}

#[test]
fn disconnected_buyers_release_claims_and_others_keep_them() {
    let shop = Shop::open();
    let buyers: Vec<Stream> = (0..60).map(|n| shop.buy_on(0, n)).collect();
    // The wake-up sends the batch; its replies are in flight.
    shop.gate.host.turn();
    buyers.iter().take(20).for_each(Stream::disconnect);
    shop.gate.host.run_until_idle();
    assert!(buyers[20..].iter().all(Stream::is_continued));
    assert_eq!(shop.stock(), 2 * UNITS_A_SHARD - 40);
}

#[test]
fn scripts_missing_in_redis_are_loaded_again() {
    let shop = Shop::open();
    let first = shop.buy_on(0, 1);
    shop.gate.host.run_until_idle();
    shop.command(::redis::cmd("SCRIPT").arg("FLUSH"));
    let second = shop.buy_on(0, 2);
    shop.gate.host.run_until_idle();
    assert!(first.is_continued() && second.is_continued());
}

#[test]
fn retry_after_a_lost_reply_gets_the_same_claim() {
    let shop = Shop::open();
    let address = format!("127.0.0.1:{}", shop.server.port());
    let first = shop.buy_on(0, 1);
    shop.gate.host.run_until_idle();
    let claim = |stream: &Stream| {
        stream
            .upstream_request()
            .headers
            .get("x-weir-claim")
            .unwrap()
            .to_vec()
    };
    // The next call does not arrive and gets no reply.
    shop.gate
        .host
        .set_cluster("weir_redis", Upstream::scripted(|_call| Reply::Fail));
    let lost = shop.buy_on(0, 1);
    shop.gate.host.run_until_idle();
    assert_eq!(lost.status(), Some(503));
    shop.gate
        .host
        .set_cluster("weir_redis", Upstream::resp(address));
    let again = shop.buy_on(1, 1);
    shop.gate.host.run_until_idle();
    assert_eq!(claim(&again), claim(&first));
    assert_eq!(shop.stock(), 2 * UNITS_A_SHARD - 1);
}

/// Sets the units of `open` on a shard.
fn set_stock(shop: &Shop, shard: u32, units: u64) {
    shop.command(::redis::cmd("SET").arg(keys(shard).stock()).arg(units));
}

#[test]
fn buyers_at_an_empty_shard_get_units_of_the_other_shard() {
    for full in [0, 1] {
        let shop = Shop::open();
        set_stock(&shop, full, 10);
        set_stock(&shop, 1 - full, 0);
        let buyers: Vec<Stream> = (0..40).map(|n| shop.buy_on(n % 2, n)).collect();
        shop.gate.host.run_until_idle();
        let granted = buyers.iter().filter(|buyer| buyer.is_continued()).count();
        let moving = buyers.iter().filter(|b| b.status() == Some(503)).count();
        let sold_out = buyers.iter().filter(|b| b.status() == Some(409)).count();
        assert_eq!((granted, granted + moving + sold_out), (10, 40));
        assert_eq!(shop.stock(), 0);
        assert_eq!(transfers(&shop), 0, "each transfer was settled");
        assert!(shop.gate.requests("all_reserved") == moving as u64);
    }
}

#[test]
fn single_buyer_never_sees_sold_out_while_a_unit_remains() {
    let shop = Shop::open();
    set_stock(&shop, 0, 1);
    set_stock(&shop, 1, 0);
    // Their home shard is either of the two.
    let buyers: Vec<Stream> = (0..12)
        .map(|n| {
            let buyer = shop.buy_on(0, n);
            shop.gate.host.run_until_idle();
            if n == 0 {
                assert!(
                    buyer.is_continued(),
                    "user-0 gets the last unit wherever it is"
                );
            }
            buyer
        })
        .collect();
    assert!(buyers[1..].iter().all(|buyer| buyer.status() == Some(409)));
}

#[test]
fn units_in_transfer_from_a_crashed_gateway_are_not_sold_out() {
    let shop = Shop::open();
    set_stock(&shop, 0, 1);
    set_stock(&shop, 1, 0);
    // A gateway lent from 0 to 1 and crashed before the deposit.
    shop.run(&weir_sale::redis::lend::call(&keys(0), 1, 1));
    let verdicts: Vec<Stream> = (0..12)
        .map(|n| {
            let buyer = shop.buy_on(0, n);
            shop.gate.host.run_until_idle();
            buyer
        })
        .collect();
    // A user with home shard 1 finds the transfer; earlier users with home shard 0 must retry.
    let first = verdicts.iter().position(Stream::is_continued).unwrap();
    let verdict = |buyer: &Stream| {
        let reply = buyer.reply().unwrap();
        reply.header("x-weir-verdict").unwrap().to_owned()
    };
    assert!(
        verdicts[..first]
            .iter()
            .all(|b| verdict(b) == "all_reserved")
    );
    assert!(
        verdicts[first + 1..]
            .iter()
            .all(|b| verdict(b) == "sold_out")
    );
    assert_eq!(transfers(&shop), 0);
}

fn transfers(shop: &Shop) -> usize {
    let of = |shard| match shop.command(::redis::cmd("HLEN").arg(keys(shard).transfers())) {
        ::redis::Value::Int(count) => count as usize,
        other => panic!("{other:?}"),
    };
    of(0) + of(1)
}
