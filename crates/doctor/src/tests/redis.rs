//! Each mistake in Redis alone.

use serde_json::json;

use super::{SECRET, edit_settings, environment, found, named, origin, redis, shipped, words};
use crate::facts::{
    GatewayEnvironment, Login, OriginFacts, RedisFacts, RefusedQuery, RefusedWrite, TlsFacts,
};
use crate::{Envoy, Severity, Subject, examine, redis_logins, redis_tls};

fn with(edit: impl FnOnce(&mut RedisFacts)) -> Vec<&'static str> {
    let mut facts = redis();
    edit(&mut facts);
    words(&found(
        shipped("weir.yaml"),
        &origin(),
        &facts,
        &environment(),
    ))
}

#[test]
fn redis_itself() {
    assert_eq!(
        with(|redis| redis.away = Some("refused".into())),
        ["redis-away"]
    );
    let lru = |redis: &mut RedisFacts| redis.maxmemory_policy = Some("allkeys-lru".into());
    assert_eq!(with(lru), ["redis-evicts"]);
    // Without a maxmemory nothing is evicted.
    assert_eq!(
        with(|redis| {
            lru(redis);
            redis.maxmemory = Some(0);
        }),
        [""; 0]
    );
    assert_eq!(
        with(|redis| redis.zset_max_listpack_entries = Some(128)),
        ["redis-listpack"]
    );
    assert_eq!(with(|redis| redis.clock_ahead_ms = Some(2_000)), ["clock"]);
    assert_eq!(with(|redis| redis.clock_ahead_ms = Some(-2_000)), ["clock"]);
    // The query took longer than the difference.
    assert_eq!(
        with(|redis| {
            redis.clock_ahead_ms = Some(2_000);
            redis.clock_uncertain_ms = 1_600;
        }),
        [""; 0]
    );
    assert_eq!(with(|redis| redis.is_cluster = Some(true)), ["topology"]);
    // Hosted servers do not report these settings.
    assert_eq!(with(|redis| *redis = RedisFacts::default()), [""; 0]);
}

fn refused(error: &str, is_permission: bool) -> Option<RefusedWrite> {
    Some(RefusedWrite {
        error: error.into(),
        is_permission,
        remedy: "do something",
    })
}

#[test]
fn refused_write_is_one_finding_by_its_cause() {
    let readonly = |redis: &mut RedisFacts| {
        redis.is_replica = Some(true);
        redis.refused = refused("READONLY no", false);
    };
    assert_eq!(with(readonly), ["redis-refuses"]);
    let full = |redis: &mut RedisFacts| {
        redis.used_memory = redis.maxmemory;
        redis.refused = refused("OOM no", false);
    };
    assert_eq!(with(full), ["redis-refuses"]);
    let key = |redis: &mut RedisFacts| redis.refused = refused("NOPERM a key", true);
    assert_eq!(with(key), ["redis-refuses"]);
    let commands = |redis: &mut RedisFacts| {
        redis.refused = refused("NOPERM evalsha", true);
        redis.forbidden = vec!["evalsha".into(), "hset".into()];
    };
    assert_eq!(with(commands), ["redis-acl"]);
}

#[test]
fn imminent_redis_failure_is_reported() {
    let replica = |redis: &mut RedisFacts| redis.is_replica = Some(true);
    assert_eq!(with(replica), ["redis-replica"]);
    let used = |percent: u64| {
        with(|redis| redis.used_memory = redis.maxmemory.map(|max| max / 100 * percent + 99))
    };
    assert_eq!((used(89), used(90)), (vec![], vec!["redis-full"]));
}

#[test]
fn redis_query_that_is_refused_is_a_warning() {
    let refused_queries = |redis: &mut RedisFacts| {
        redis.maxmemory = None;
        redis.refused_queries = vec![RefusedQuery {
            command: "INFO memory",
            checks: "eviction and memory were",
            error: "NOPERM no".into(),
        }];
    };
    assert_eq!(with(refused_queries), ["redis-check-refused"]);
}

#[test]
fn short_listpack_limit_is_a_finding_only_with_history() {
    let mut facts = redis();
    facts.zset_max_listpack_entries = Some(128);
    let facts = [facts];
    let words = |has_history: bool| {
        let origin = OriginFacts {
            has_history,
            ..OriginFacts::default()
        };
        let subject = Subject {
            origin: Some(&origin),
            redis: &facts,
            ..Subject::default()
        };
        words(&examine(&subject))
    };
    assert_eq!(words(true), ["redis-listpack"]);
    assert_eq!(words(false), [""; 0]);
}

#[test]
fn certificate_without_the_expected_name_is_a_finding() {
    let mut tree = shipped("weir.yaml");
    let tls = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": { "validation_context": {
                "trusted_ca": { "filename": "/ca.pem" },
                "match_typed_subject_alt_names": [{ "san_type": "DNS", "matcher": { "exact": "r.example" } }],
            } },
        },
    });
    named(&mut tree, "weir_redis_upstream")["transport_socket"] = tls;
    let envoy = Envoy::from_tree(tree).unwrap();
    let [target] = <[_; 1]>::try_from(redis_tls(&envoy)).unwrap();
    assert_eq!(
        (&*target.address, &*target.ca_file),
        ("127.0.0.1:6379", "/ca.pem")
    );
    assert_eq!(target.names, ["r.example"]);
    let checks = |problem: Option<&str>| {
        let tls = [TlsFacts {
            target: target.clone(),
            problem: problem.map(Into::into),
        }];
        words(&examine(&Subject {
            tls: &tls,
            ..Subject::default()
        }))
    };
    assert_eq!(checks(Some("not valid for the name")), ["redis-tls"]);
    assert_eq!(checks(None), [""; 0]);
}

#[test]
fn bridge_logins_are_resolved_from_gateway_variables() {
    let mut tree = shipped("weir.yaml");
    assert_eq!(
        redis_logins(&Envoy::from_tree(tree.clone()).unwrap(), &environment()),
        []
    );
    edit_settings(&mut tree, "weir.redis_bridge", |json| {
        json["auth"] = json!({ "username": "gate", "password": { "env": "WEIR_REDIS_PASSWORD" } });
    });
    let envoy = Envoy::from_tree(tree).unwrap();
    let login = Login {
        username: Some("gate".into()),
        password: SECRET.into(),
    };
    assert!(!format!("{login:?}").contains(SECRET));
    assert_eq!(redis_logins(&envoy, &environment()), [login]);
    assert_eq!(redis_logins(&envoy, &GatewayEnvironment::default()), []);
}

#[test]
fn errors_come_before_warnings() {
    let mut facts = redis();
    facts.zset_max_listpack_entries = Some(128);
    facts.clock_ahead_ms = Some(9_999);
    let findings = found(shipped("weir.yaml"), &origin(), &facts, &environment());
    assert_eq!(words(&findings), ["clock", "redis-listpack"]);
    assert_eq!(findings[0].severity, Severity::Error);
    assert!(
        findings[0]
            .to_string()
            .starts_with("error: Redis at 127.0.0.1:6379: its clock is 9999 ms ahead")
    );
}
