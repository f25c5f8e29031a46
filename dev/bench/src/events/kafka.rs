//! The log on Kafka, compared with nginx with Lua and its Kafka client, lua-resty-kafka. Both wait until all replicas
//! have an event.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;
use weir_load::Pace;
use weir_stack::kafka::KafkaCluster;
use weir_stack::process::Process;
use weir_stack::report::Console;
use weir_stack::tools::{Kafka, Options, Peer};
use weir_stack::{DataDir, http, ports, workspace};

use super::traffic::{self, TrafficFigures};
use super::{Arguments, ROUNDS, Shop, median};

const READY_LIMIT: Duration = Duration::from_secs(60);

/// The topic for nginx, with as many partitions as Weir's.
const PEER_TOPIC: &str = "peer-events";

#[derive(Debug, Serialize)]
pub(super) struct KafkaFigures {
    batches: Vec<KafkaComparison>,
}

#[derive(Debug, Serialize)]
struct KafkaComparison {
    batch: u64,
    weir: Vec<TrafficFigures>,
    nginx: Vec<TrafficFigures>,
    /// Weir ÷ nginx: the ratio of the turns' medians.
    ratio: f64,
}

pub(super) async fn measure(arguments: &Arguments, tools: &Options) -> Result<KafkaFigures> {
    let nginx = Peer::nginx_with_kafka(arguments.removals(), &mut Console)?;
    let kafka = Kafka::for_old_clients(&mut Console)?;
    let data = DataDir::open(None)?;
    let cluster = KafkaCluster::start(&kafka, &data.path.join("kafka")).await?;
    // An origin creates the topic like its own.
    drop(open(tools, &cluster, PEER_TOPIC).await?);
    let shop = open(tools, &cluster, "weir-events").await?;
    let peer = Nginx::start(&nginx, &cluster, &data.path).await?;
    let mut batches = Vec::new();
    for batch in [1, 20] {
        batches.push(compare(arguments, batch, &shop, &peer)?);
    }
    Ok(KafkaFigures { batches })
}

async fn open(tools: &Options, cluster: &KafkaCluster, topic: &str) -> Result<Shop> {
    let url = format!("kafka://{}/{topic}", cluster.servers());
    let shop = Shop::open(tools, topic, |builder| builder.events_on_kafka(&url)).await?;
    shop.pause(&["store", "history"]).await?;
    first_event(&shop).await?;
    Ok(shop)
}

/// The first event creates the topic, which takes brokers a while.
async fn first_event(shop: &Shop) -> Result<()> {
    let url = format!("{}/events", shop.gateway);
    let headers = [
        ("content-type", "application/json"),
        ("x-weir-write-key", shop.stack.event_key.as_str()),
    ];
    let event =
        r#"[{"id": "first", "type": "view", "customer": "nobody", "attributes": {"sku": "1"}}]"#;
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let answer = http::send(http::Method::POST, &url, &headers, event).await;
        if answer.as_ref().is_ok_and(|answer| answer.status == 202) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "no event is accepted: {answer:?}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn compare(
    arguments: &Arguments,
    batch: u64,
    shop: &Shop,
    peer: &Nginx,
) -> Result<KafkaComparison> {
    let key = &shop.stack.event_key;
    let turn = |server| traffic::send(server, key, batch, Pace::Closed, arguments.turn());
    let (mut weir, mut nginx) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        weir.push(turn(shop.server()?)?);
        nginx.push(turn(peer.address)?);
    }
    let rate = |turns: &[TrafficFigures]| median(turns.iter().map(|turn| turn.events_per_s));
    let ratio = rate(&weir) / rate(&nginx);
    println!(
        "batches of {batch} on Kafka: {:.0} events/s, nginx with Lua {:.0}: {ratio:.2}",
        rate(&weir),
        rate(&nginx)
    );
    Ok(KafkaComparison {
        batch,
        weir,
        nginx,
        ratio,
    })
}

struct Nginx {
    address: SocketAddr,
    _process: Process,
}

impl Nginx {
    async fn start(nginx: &Peer, cluster: &KafkaCluster, data: &Path) -> Result<Self> {
        let (port, dir) = (ports::free()?, data.join("nginx"));
        std::fs::create_dir(&dir)?;
        let peers = workspace::root().join("bench/peers");
        let config = std::fs::read_to_string(peers.join("nginx-events.conf"))?
            .replace("127.0.0.1:10000", &format!("127.0.0.1:{port}"))
            .replace("@BROKERS@", &cluster.servers())
            .replace("@TOPIC@", PEER_TOPIC)
            .replace("@PEERS@", &peers.display().to_string());
        let file: PathBuf = dir.join("nginx.conf");
        std::fs::write(&file, config)?;
        let (path, prefix) = (nginx.path.clone(), dir.clone());
        let make = move || {
            let mut command = Command::new(&path);
            command.arg("-p").arg(&prefix).arg("-c").arg(&file);
            command
        };
        let mut process = Process::start("nginx", &dir.join("nginx.log"), make)?;
        let health = format!("http://127.0.0.1:{port}/health");
        process
            .wait_ready(READY_LIMIT, || http::is_ok(&health))
            .await?;
        Ok(Self {
            address: ([127, 0, 0, 1], port).into(),
            _process: process,
        })
    }
}
