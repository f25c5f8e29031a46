//! C2 for a Redis Cluster: nodes, or connections to them, that go silent.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use weir_origin::redis::Redis;
use weir_origin::sales::ledger::Ledger;
use weir_sale::redis::keys::ShardKeys;
use weir_stack::fault::{Fault, FaultProxy};
use weir_stack::redis::{RedisServer, proxied, start_cluster};
use weir_stack::report::SilentReporter;
use weir_stack::tools;

use crate::support::id;

const SHARDS: u32 = 12;

/// A separate cluster, and its address.
struct Cluster {
    _dir: TempDir,
    nodes: Vec<RedisServer>,
    proxies: Vec<FaultProxy>,
    redis: Redis,
}

impl Cluster {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::Redis::find_or_get(&mut SilentReporter).unwrap();
        let nodes = start_cluster(&tool, dir.path()).await.unwrap();
        let proxies = proxied(&nodes).await.unwrap();
        let url = |proxy: &FaultProxy| format!("redis://{}", proxy.address());
        let urls: Vec<String> = proxies.iter().map(url).collect();
        let redis = Redis::new(&urls.join(","), "silent").unwrap();
        let cluster = Self {
            _dir: dir,
            nodes,
            proxies,
            redis,
        };
        cluster.until_all_answer().await;
        cluster
    }

    /// Waits until every node answers, and continues to.
    async fn until_all_answer(&self) {
        let limit = Instant::now() + Duration::from_secs(20);
        let mut in_turn = 0;
        while in_turn < 5 {
            in_turn = match self.redis.ping().await {
                Ok(()) => in_turn + 1,
                Err(error) => {
                    assert!(Instant::now() < limit, "{error}");
                    0
                }
            };
        }
    }

    /// The shards on this node, and those on other nodes.
    async fn shards_on(&self, node: u32) -> (Vec<u32>, Vec<u32>) {
        let mut connection = self.nodes[0].connection().await.unwrap();
        let (mut there, mut elsewhere) = (vec![], vec![]);
        for shard in 0..SHARDS {
            let key = ShardKeys::new("silent", &id("s"), shard).stock();
            let mut slot = redis::cmd("CLUSTER");
            slot.arg("KEYSLOT").arg(key);
            let slot: u32 = slot.query_async(&mut connection).await.unwrap();
            match slot * 3 / 16_384 == node {
                true => there.push(shard),
                false => elsewhere.push(shard),
            }
        }
        (there, elsewhere)
    }

    fn signal(&mut self, node: usize, signal: Signal) {
        let pid = self.nodes[node].process().pid().unwrap();
        let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

/// Connections to a node go silent but stay open. New connections work.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_to_a_node_are_replaced() {
    let cluster = Cluster::start().await;
    cluster.proxies[1].set(Fault::Freeze);
    cluster.until_all_answer().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_silent_nodes_are_replaced() {
    let cluster = Cluster::start().await;
    for proxy in &cluster.proxies {
        proxy.set(Fault::Freeze);
    }
    cluster.until_all_answer().await;
}

/// A new connection would wait for that node, too: the old one continues to serve the other nodes. On a busy machine a
/// call may still be late, because the deadline is half a second.
#[tokio::test(flavor = "multi_thread")]
async fn stalled_node_delays_only_its_own_shards() {
    let mut cluster = Cluster::start().await;
    let ledger = Ledger::new(cluster.redis.clone());
    let sale = id("s");
    let (stopped, others) = cluster.shards_on(1).await;
    assert!(!stopped.is_empty() && !others.is_empty());
    for shard in 0..SHARDS {
        ledger.audit(&sale, shard).await.unwrap();
    }
    cluster.signal(1, Signal::STOP);
    let (mut requested, mut late) = (0, 0);
    for _ in 0..6 {
        assert!(ledger.audit(&sale, stopped[0]).await.is_err());
        for &shard in &others {
            requested += 1;
            late += u32::from(ledger.audit(&sale, shard).await.is_err());
        }
    }
    assert!(
        late * 5 < requested,
        "{late} of {requested} calls wait, too"
    );
    cluster.signal(1, Signal::CONT);
    cluster.until_all_answer().await;
    ledger.audit(&sale, stopped[0]).await.unwrap();
}
