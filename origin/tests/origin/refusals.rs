//! A Redis that refuses commands: the origin's reports about it.

use redis::aio::MultiplexedConnection;
use weir_stack::redis::{RedisServer, connect};

use crate::support::{self, World};

async fn set_up() -> (World, MultiplexedConnection, RedisServer, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let server = support::redis(&dir).await;
    let world = World::on(&server.url()).await;
    let redis = connect(&server.url()).await.unwrap();
    (world, redis, server, dir)
}

async fn run(redis: &mut MultiplexedConnection, command: &str) {
    let mut words = command.split(' ');
    let mut sent = redis::cmd(words.next().unwrap());
    sent.arg(words.collect::<Vec<_>>());
    let answer: redis::Value = sent.query_async(redis).await.unwrap();
    assert_eq!(answer, redis::Value::Okay, "{command}");
}

/// The status and body of `/readyz`.
async fn ready(world: &World) -> (u16, String) {
    let answer = world.admin_as("GET", "/readyz", "", None).await;
    (answer.status.as_u16(), answer.body.to_string())
}

async fn counted(world: &World, reason: &str) -> u64 {
    let metrics = world.admin_as("GET", "/metrics", "", None).await;
    let text = metrics.body.as_str().unwrap().to_owned();
    let name = format!("weir_origin_redis_refused_total{{reason=\"{reason}\"}} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&name));
    count
        .unwrap_or_else(|| panic!("{name} is not in\n{text}"))
        .parse()
        .unwrap()
}

#[tokio::test]
async fn refused_write_makes_origin_not_ready_with_cause_and_remedy() {
    for (begin, end, reason, word, remedy) in [
        (
            "REPLICAOF 127.0.0.1 1",
            "REPLICAOF NO ONE",
            "readonly",
            "READONLY",
            "use the address of the primary",
        ),
        (
            "CONFIG SET maxmemory 1",
            "CONFIG SET maxmemory 0",
            "oom",
            "OOM",
            "raise maxmemory",
        ),
        (
            "ACL SETUSER default -evalsha",
            "ACL SETUSER default +evalsha",
            "noperm",
            "NOPERM",
            "docs/redis.md",
        ),
    ] {
        let (world, mut redis, _server, _dir) = set_up().await;
        assert_eq!(ready(&world).await.0, 200);
        assert_eq!(counted(&world, reason).await, 0);
        run(&mut redis, begin).await;
        let (status, body) = ready(&world).await;
        assert_eq!(status, 503, "{body}");
        for part in ["Redis refuses writes", word, remedy] {
            assert!(body.contains(part), "{part} is not in {body}");
        }
        assert!(counted(&world, reason).await > 0);
        run(&mut redis, end).await;
        // For a minute it reports what was refused.
        let (status, body) = ready(&world).await;
        assert_eq!(status, 200, "{body}");
        assert!(body.contains(&format!("\"redis\":\"{reason}\"")), "{body}");
    }
}

#[tokio::test]
async fn refusal_of_another_command_is_reported_and_stays_ready() {
    let (world, mut redis, _server, _dir) = set_up().await;
    run(&mut redis, "ACL SETUSER default -hgetall").await;
    let handle = weir_origin::redis::Redis::new(&world.redis_url, &world.prefix).unwrap();
    let handle = handle.with_refusals(world.origin.redis_refusals().clone());
    let error = handle
        .send(redis::cmd("HGETALL").arg("key"))
        .await
        .unwrap_err();
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.kind.label(), "noperm");
    assert!(refusal.is_definite());
    let expected = (
        200,
        r#"{"redis":"noperm","sales":"ok","status":"ok"}"#.to_owned(),
    );
    assert_eq!(ready(&world).await, expected);
}

#[tokio::test]
async fn refusal_within_a_script_is_definite_only_before_its_writes() {
    use weir_base::resp::Arguments;
    use weir_scripts::{Call, Script};
    static TWO_WRITES: Script = Script {
        name: "two_writes",
        source: "redis.call('HSET', KEYS[1], 'a', '1') redis.call('SET', KEYS[2], '1') return 1",
    };
    let (world, mut redis, _server, _dir) = set_up().await;
    let handle = weir_origin::redis::Redis::new(&world.redis_url, "w").unwrap();
    let call = Call {
        script: &TWO_WRITES,
        keys: ["a", "b"].map(str::as_bytes).into(),
        args: Arguments::default(),
    };
    let refusal = async || handle.run(&call).await.unwrap_err().refusal().unwrap();
    run(&mut redis, "CONFIG SET maxmemory 1").await;
    assert!(refusal().await.is_definite());
    run(&mut redis, "CONFIG SET maxmemory 0").await;
    run(&mut redis, "ACL SETUSER default -set").await;
    let late = refusal().await;
    assert_eq!(late.kind.label(), "noperm");
    assert!(!late.is_definite(), "{late}");
}

#[tokio::test]
async fn url_with_a_database_is_refused_before_it_is_used() {
    let new = |url: &str| weir_origin::redis::Redis::new(url, "w").map(drop);
    let refused = |url: &str| new(url).unwrap_err().to_string();
    assert!(refused("redis://h:6379/1").starts_with("cannot use Redis database 1"));
    assert!(refused("redis://h:1,redis://h:2/3").contains("database 3"));
    for bad in [
        "http://h:6379",
        "redis-sentinel://h:26379",
        "replicated:h:6379",
        "127.0.0.1:6379",
    ] {
        assert!(
            refused(bad).contains("redis://[USER:PASSWORD@]HOST"),
            "{bad}"
        );
    }
    for good in [
        "redis://h:6379",
        "redis://u:p@h:6379/0",
        "redis://h:1,redis://h:2",
        "replicated:redis://h:1,redis://h:2,redis://h:3",
    ] {
        assert_eq!(new(good), Ok(()), "{good}");
    }
}
