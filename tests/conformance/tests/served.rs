//! `edge/fastly` in Viceroy and `edge/cloudflare` in workerd: forbidden actions, and behaviour during failures of
//! origin and gateway. Needs the feature `wasi`. The clock is the machine's; client and configuration come from the
//! platform.
#![cfg(feature = "wasi")]

use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use weir_base::headers::{CLAIM, CLAIM_SIGNATURE, EDGE, EDGE_SIGNATURE, USER};
use weir_base::stamp::Stamp;
use weir_conformance::hosts::served::client::{Ask, ClientResponse, send};
use weir_conformance::hosts::served::world::World;
use weir_conformance::hosts::served::{CLOUDFLARE, FASTLY};
use weir_conformance::hosts::wasi::feeds::keys;
use weir_conformance::shop::{self, HOST};
use weir_conformance::vector::Headers;
use weir_sale::feed::FRESH_MS;
use weir_stack::edge::{self, Build, Server};

/// The maximum size on a platform's free plan.
const GZIPPED_MAX: usize = 1 << 20;

fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since_epoch.as_millis()).unwrap()
}

/// A platform with an edge, and the origin and gateway around it.
struct Platform {
    server: Server,
    world: World,
}

/// Calls `of` for each platform on this machine. Missing ones are printed past the test's captured output, because they
/// were not tested.
fn each(of: impl Fn(&str, Platform)) {
    for name in [FASTLY, CLOUDFLARE] {
        match start(name) {
            Ok(platform) => of(name, platform),
            Err(error) => {
                let text = format!("\n{name} was not tested: {error:#}\n");
                std::io::stderr().write_all(text.as_bytes()).unwrap();
            }
        }
    }
}

fn start(name: &str) -> anyhow::Result<Platform> {
    // A build failure is an error, not a missing runtime.
    match name {
        FASTLY => drop(edge::viceroy()?),
        _ => drop(edge::workerd()?),
    }
    let world = World::start()?;
    let mut config = shop::config();
    config["limits"] = json!({ "rules": [{
        "name": "coarse", "store": "local", "key": [{ "header": "x-limited" }],
        "algorithm": "fixed_window", "limit": { "rate": 3, "per": "1h" },
        "match": { "path": { "prefix": "/limited" } },
    }] });
    if name == CLOUDFLARE {
        config["exact_limits"] = json!({ "rules": [{
            "name": "exact", "store": "local", "key": [{ "header": "x-limited" }],
            "algorithm": "fixed_window", "limit": { "rate": 3, "per": "1h" },
            "match": { "path": { "prefix": "/exact" } },
        }] });
    }
    let variables = shop::variables_at(&config, world.address);
    let server = match name {
        FASTLY => edge::fastly(Build::Conformance, world.address, &variables),
        _ => edge::cloudflare(Build::Conformance, &variables),
    };
    let server = server.unwrap();
    world.traffic().gateway = Some((201, vec![], "{}".to_owned()));
    Ok(Platform { server, world })
}

impl Platform {
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> ClientResponse {
        let header = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
        let ask = Ask {
            head: [method, path, HOST].map(|text| text.as_bytes().to_vec()),
            headers: headers.iter().map(header).collect(),
            body: vec![],
        };
        send(self.server.address, &ask).unwrap()
    }

    /// Publishes all feeds as of now.
    fn publish(&self, version: u64, band: &str, target: &str) {
        self.world.traffic().feeds = shop::feeds(version, band, target, now_ms()).unwrap();
    }

    /// Publishes repeatedly until the edge's answers satisfy `is_so`: the platform determines when it reads feeds.
    fn until(&self, version: u64, band: &str, target: &str, is_so: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(60) {
            self.publish(version, band, target);
            if is_so(self) {
                return;
            }
            sleep(Duration::from_millis(200));
        }
        panic!("it has not heard of it; {}", self.server.log());
    }

    fn received(&self) -> Vec<Headers> {
        std::mem::take(&mut self.world.traffic().seen)
    }
}

fn find<'a>(headers: &'a Headers, name: &str) -> Vec<&'a str> {
    let named = headers.iter().filter(|(existing, _)| existing == name);
    named.map(|(_, value)| value.as_str()).collect()
}

fn is_to(platform: &Platform, target: &str) -> bool {
    platform.ask("GET", "/abc", &[]).header("location") == [target]
}

#[test]
fn edges_claim_nothing_count_no_clicks_and_trust_no_client() {
    each(|name, platform| {
        platform.until(1, "high", "https://1.example/", |platform| {
            is_to(platform, "https://1.example/")
        });
        platform.received();
        let forged = [
            ("x-user-id", "mallory"),
            (CLAIM, "v1;s;0;1;1;1;mallory"),
            (CLAIM_SIGNATURE, "k1;00"),
            (USER, "v1;1;mallory"),
            (EDGE, "v1;0;test-1;;POST;/"),
            (EDGE_SIGNATURE, "e1;00"),
        ];
        // Each order request and each click on a link with a click limit goes to the gateway.
        for (method, path) in [("POST", "/sales/s/orders"), ("GET", "/max")].repeat(10) {
            assert_eq!(platform.ask(method, path, &forged).status, 201, "{name}");
            let received = platform.received();
            assert_eq!(received.len(), 1, "{name}");
            for only in [CLAIM, CLAIM_SIGNATURE, USER] {
                assert!(find(&received[0], only).is_empty(), "{name}: {received:?}");
            }
            let (stamps, signatures) =
                (find(&received[0], EDGE), find(&received[0], EDGE_SIGNATURE));
            assert_eq!(
                (stamps.len(), signatures.len()),
                (1, 1),
                "{name}: {received:?}"
            );
            let requested = (method, path);
            let stamp = Stamp::verify(
                &keys().unwrap(),
                stamps[0],
                signatures[0],
                requested,
                now_ms(),
            );
            assert_eq!(stamp.unwrap().edge, "test-1", "{name}");
        }
    });
}

#[test]
fn edges_refuse_by_list_follow_edits_and_work_without_origin() {
    each(|name, platform| {
        let buy = |platform: &Platform| {
            let user = [("x-user-id", "alice")];
            platform.ask("POST", "/sales/s/orders", &user).status
        };
        platform.until(1, "none", "https://1.example/", |platform| {
            buy(platform) == 409 && is_to(platform, "https://1.example/")
        });
        // Units have returned, and the link has a new target.
        platform.until(2, "high", "https://2.example/", |platform| {
            buy(platform) == 201 && is_to(platform, "https://2.example/")
        });
        // The origin is silent: the feed of sales expires, and the edge forwards every buyer. Then the gateway is
        // silent, too.
        platform.until(3, "none", "https://3.example/", |platform| {
            buy(platform) == 409
        });
        platform.world.traffic().feeds.clear();
        sleep(Duration::from_millis(FRESH_MS + 1_500));
        assert_eq!(buy(&platform), 201, "{name}");
        platform.world.traffic().gateway = None;
        let actual = platform.ask("POST", "/sales/s/orders", &[("x-user-id", "alice")]);
        assert_eq!(
            (actual.status, actual.header("retry-after")),
            (503, vec!["1"]),
            "{name}"
        );
    });
}

/// Sequential requests are counted exactly. Concurrent ones may be missed, but never too many pass.
#[test]
fn coarse_limits_hold() {
    each(|name, platform| {
        platform.publish(1, "high", "https://1.example/");
        let statuses = |key: &str| -> Vec<u16> {
            let headers = [("x-limited", key)];
            let ask = |_| platform.ask("GET", "/limited", &headers).status;
            (0..6).map(ask).collect()
        };
        assert_eq!(statuses("a"), [201, 201, 201, 429, 429, 429], "{name}");
        assert_eq!(statuses("b"), [201, 201, 201, 429, 429, 429], "{name}");
    });
}

/// Exact for all isolates, for concurrent requests, and after a crash of workerd.
#[test]
fn exact_limits_are_exact() {
    let Ok(mut platform) = start(CLOUDFLARE) else {
        return;
    };
    platform.publish(1, "high", "https://1.example/");
    let ask = |platform: &Platform, key: &str| {
        platform.ask("GET", "/exact", &[("x-limited", key)]).status
    };
    let passed = |platform: &Platform, key: &str, count: usize| {
        std::thread::scope(|scope| {
            let asks: Vec<_> = (0..count)
                .map(|_| scope.spawn(|| ask(platform, key)))
                .collect();
            let statuses = asks.into_iter().map(|ask| ask.join().unwrap());
            statuses
                .inspect(|status| assert!([201, 429].contains(status), "{status}"))
                .filter(|status| *status == 201)
                .count()
        })
    };
    assert_eq!(passed(&platform, "a", 20), 3);
    assert_eq!(passed(&platform, "b", 2), 2);
    platform.server.crash().unwrap();
    assert_eq!(passed(&platform, "a", 5), 0);
    assert_eq!(passed(&platform, "b", 5), 1);
    let actual = platform.ask("GET", "/exact", &[("x-limited", "a")]);
    assert_eq!(actual.header("ratelimit").len(), 1, "{actual:?}");
}

/// The conformance builds have a few lines more than the shipped ones.
#[test]
fn bundles_fit() {
    let mut bundles = vec![
        edge::worker_files(Build::Conformance).unwrap(),
        vec![edge::wasi_component().unwrap()],
    ];
    if edge::viceroy().is_ok() {
        let module = edge::fastly_module(Build::Conformance).unwrap();
        assert!(edge::pack(&module).unwrap().exists());
        bundles.push(vec![module]);
    }
    for files in bundles {
        let bytes = edge::gzipped(&files).unwrap();
        println!("{bytes} bytes gzipped: {files:?}");
        assert!(bytes <= GZIPPED_MAX, "{files:?}: {bytes}");
    }
}
