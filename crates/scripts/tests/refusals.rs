//! Refusals of a real Redis, and what has run by then: see `weir_scripts::refusal`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::{Redis, Server};
use weir_base::resp::Value;
use weir_scripts::{RefusalKind, write_check};

/// Nothing is written before these.
const FIRST_WRITE: &[u8] = b"redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], '1') return 1";

/// The second write comes after the first.
const TWO_WRITES: &[u8] =
    b"redis.call('HSET', KEYS[1], 'a', '1') redis.call('SET', KEYS[2], '1') return 1";

/// Redis allows deletes when its memory is full.
const DELETES_FIRST: &[u8] = b"redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[2], '1') return 1";

fn eval(redis: &mut Redis, script: &[u8]) -> Value {
    redis.command(&[b"EVAL", script, b"2", b"a", b"b"])
}

/// The kind of a refusal, and whether it is definite.
fn refused(reply: Value) -> (RefusalKind, bool) {
    let Value::Error(error) = reply else {
        panic!("{reply:?} is no refusal");
    };
    let error = String::from_utf8(error).unwrap();
    let kind = RefusalKind::from_error(&error).unwrap_or_else(|| panic!("{error}"));
    (kind, kind.is_definite(&error))
}

fn set(redis: &mut Redis, setting: &[u8], value: &[u8]) {
    let done = redis.command(&[b"CONFIG", b"SET", setting, value]);
    assert_eq!(done, Value::Simple(b"OK".to_vec()));
}

/// Redis refuses plain writes, and scripts at their first write; it has written nothing, and answers reads.
fn assert_refuses_before_writes(redis: &mut Redis, kind: RefusalKind) {
    assert_eq!(refused(redis.command(&[b"SET", b"a", b"1"])), (kind, true));
    for script in [FIRST_WRITE, TWO_WRITES] {
        assert_eq!(refused(eval(redis, script)), (kind, true));
    }
    assert_eq!(refused(redis.run(&write_check::call("w"))), (kind, true));
    let flagged = b"#!lua\nreturn redis.call('SET', KEYS[1], '1')";
    assert_eq!(refused(eval(redis, flagged)), (kind, true));
    assert_eq!(redis.command(&[b"DBSIZE"]), Value::Integer(0));
    assert_eq!(
        eval(redis, b"return redis.call('DBSIZE')"),
        Value::Integer(0)
    );
}

#[test]
fn replica_refuses_before_anything_is_written() {
    let server = Server::start();
    let mut redis = server.connect();
    redis.command(&[b"REPLICAOF", b"127.0.0.1", b"1"]);
    assert_refuses_before_writes(&mut redis, RefusalKind::ReadOnly);
}

#[test]
fn full_redis_refuses_before_anything_is_written() {
    let server = Server::start();
    let mut redis = server.connect();
    set(&mut redis, b"maxmemory", b"1");
    assert_refuses_before_writes(&mut redis, RefusalKind::OutOfMemory);
    // A script that has written finishes.
    assert_eq!(eval(&mut redis, DELETES_FIRST), Value::Integer(1));
    assert_eq!(redis.command(&[b"EXISTS", b"b"]), Value::Integer(1));
}

#[test]
fn redis_without_replicas_refuses_before_any_write() {
    let server = Server::start();
    let mut redis = server.connect();
    set(&mut redis, b"min-replicas-to-write", b"1");
    assert_refuses_before_writes(&mut redis, RefusalKind::NoReplicas);
}

#[test]
fn redis_that_cannot_save_refuses_before_anything_is_written() {
    let server = Server::start();
    let mut redis = server.connect();
    set(&mut redis, b"appendonly", b"no");
    set(&mut redis, b"save", b"900 1");
    std::fs::remove_dir_all(server.dir()).unwrap();
    redis.command(&[b"BGSAVE"]);
    let limit = Instant::now() + Duration::from_secs(10);
    while !matches!(redis.command(&[b"PING"]), Value::Error(_)) {
        assert!(Instant::now() < limit, "it can save");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_refuses_before_writes(&mut redis, RefusalKind::CannotSave);
}

#[test]
fn missing_permission_in_a_script_may_fail_after_a_write() {
    let server = Server::start();
    let mut redis = server.connect();
    let admin = &mut server.connect();
    let mut allow = |rules: &[&[u8]]| {
        let user: [&[u8]; 6] = [b"ACL", b"SETUSER", b"u", b"reset", b"on", b">p"];
        let done = admin.command(&[&user, rules].concat());
        assert_eq!(done, Value::Simple(b"OK".to_vec()));
    };
    let no = RefusalKind::NoPermission;
    allow(&[b"~*", b"+@all", b"-eval"]);
    redis.command(&[b"AUTH", b"u", b"p"]);
    assert_eq!(refused(eval(&mut redis, TWO_WRITES)), (no, true));
    allow(&[b"~*", b"+@all", b"-set"]);
    redis.command(&[b"AUTH", b"u", b"p"]);
    assert_eq!(refused(eval(&mut redis, TWO_WRITES)), (no, false));
    assert_eq!(
        redis.command(&[b"HLEN", b"a"]),
        Value::Integer(1),
        "it was written"
    );
}

#[test]
fn login_refusals_are_classified_by_kind() {
    let server = Server::start();
    let mut redis = server.connect();
    let wrong = redis.command(&[b"AUTH", b"nobody", b"p"]);
    assert_eq!(refused(wrong).0, RefusalKind::WrongPassword);
    let unwanted = redis.command(&[b"AUTH", b"p"]);
    assert_eq!(refused(unwanted).0, RefusalKind::WrongPassword);
    set(&mut redis, b"requirepass", b"p");
    let late = server.connect().command(&[b"GET", b"a"]);
    assert_eq!(refused(late), (RefusalKind::NoPassword, true));
}

#[test]
fn cluster_with_an_unserved_slot_refuses_before_anything_runs() {
    let bus_port = weir_stack::ports::free().unwrap();
    let server = Server::start_with(|options| options.bus_port = Some(bus_port));
    let mut redis = server.connect();
    let down = (RefusalKind::ClusterDown, true);
    assert_eq!(refused(redis.command(&[b"SET", b"a", b"1"])), down);
    let script: [&[u8]; 4] = [b"EVAL", FIRST_WRITE, b"1", b"a"];
    assert_eq!(refused(redis.command(&script)), down);
    assert_eq!(refused(redis.run(&write_check::call("w"))), down);
}

/// A replica that loads its primary's data: 50 keys, a tenth of a second for each.
#[test]
fn loading_redis_refuses_before_anything_runs() {
    let (primary, server) = (Server::start(), Server::start());
    let (mut filling, mut redis) = (primary.connect(), server.connect());
    for key in 0..50 {
        let key = format!("key:{key}");
        filling.command(&[b"SET", key.as_bytes(), &[b'x'; 4_096]]);
    }
    set(&mut redis, b"key-load-delay", b"100000");
    set(
        &mut redis,
        b"loading-process-events-interval-bytes",
        b"1024",
    );
    let port = primary.port().to_string();
    redis.command(&[b"REPLICAOF", b"127.0.0.1", port.as_bytes()]);
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let kind = refused(eval(&mut redis, FIRST_WRITE));
        if kind.0 == RefusalKind::Loading {
            assert!(kind.1, "it is definite");
            break;
        }
        assert_eq!(kind.0, RefusalKind::ReadOnly, "before it loads");
        assert!(Instant::now() < limit, "it does not load");
        std::thread::sleep(Duration::from_millis(20));
    }
    let kind = refused(redis.run(&write_check::call("w")));
    assert_eq!(kind, (RefusalKind::Loading, true));
}

#[test]
fn blocked_redis_refuses_before_it_starts_a_command() {
    let server = Server::start();
    let (mut redis, mut other) = (server.connect(), server.connect());
    set(&mut redis, b"busy-reply-threshold", b"10");
    let blocked = std::thread::spawn(move || eval(&mut other, b"while true do end"));
    let limit = Instant::now() + Duration::from_secs(10);
    let reply = loop {
        match eval(&mut redis, FIRST_WRITE) {
            Value::Integer(_) => assert!(Instant::now() < limit, "it is not blocked"),
            error => break error,
        }
    };
    assert_eq!(refused(reply), (RefusalKind::Busy, true));
    redis.command(&[b"SCRIPT", b"KILL"]);
    assert!(matches!(blocked.join().unwrap(), Value::Error(_)));
}

/// A script that catches an error and returns it would make a refusal look as if it occurred before the script.
#[test]
fn scripts_declare_no_flags_and_catch_no_errors() {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut count = 0;
    for entry in std::fs::read_dir(crates).unwrap() {
        let Ok(scripts) = std::fs::read_dir(entry.unwrap().path().join("lua")) else {
            continue;
        };
        for script in scripts {
            let path = script.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for word in [
                "pcall",
                "#!lua",
                "error_reply",
                "err =",
                "redis.publish",
                "'PUBLISH'",
            ] {
                assert!(!text.contains(word), "{word} in {}", path.display());
            }
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}
