//! Commands to objects: parsed from Redis commands, and sent as JSON.

use weir_base::id::{SaleId, UserId};
use weir_base::resp::encode_command;
use weir_edge::shard::command::Group;
use weir_edge::shard::{ObjectCommands, ShardCommand, UnexpectedCommand};
use weir_sale::idempotency::{AttemptTag, IdempotencyKey};
use weir_sale::ledger::{
    Audit, Checks, ClaimTerms, Deduction, OrderEntry, ReleaseKind, StockChange, Transfer,
};
use weir_sale::redis::keys::ShardKeys;
use weir_sale::redis::warm;
use weir_scripts::Call;

const SHARD: &[u8] = b"weir:{s:0}";

fn keys(shard: u32) -> ShardKeys {
    ShardKeys::new("weir", &SaleId::new("s").unwrap(), shard)
}

fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

fn group(attempt: Option<AttemptTag>) -> Group {
    let terms = ClaimTerms {
        ttl_ms: 600_000,
        user_cap: 2,
        quantity: 1,
        checks: Checks {
            blocked: true,
            reserved: false,
            drain: attempt.is_some(),
        },
    };
    let users = vec![(user("alice"), attempt), (user("b\"o\\b"), None)];
    Group { terms, users }
}

/// One call of each script.
fn script_calls() -> Vec<ShardCommand> {
    let tag = IdempotencyKey::read(b"key-1").unwrap().tag();
    let (user, generation) = (user("alice"), u64::MAX >> 1);
    let orders = [Deduction::AtOrder, Deduction::AtPayment].map(|deduction| OrderEntry {
        generation,
        units: 3,
        deduction,
    });
    let kinds = [
        ReleaseKind::Delivery(7),
        ReleaseKind::Decided,
        ReleaseKind::Void,
    ];
    let releases = kinds.map(|kind| (user.clone(), generation, kind));
    let transfer = Transfer { id: 9, units: 4 };
    let audit = Audit {
        epoch: -1,
        sequence: 5,
        version: 6,
        ..Audit::default()
    };
    let sums = Audit {
        version: 1,
        open: 2,
        held: 3,
        bought: 4,
        deferred: 5,
        checksum: 6,
        ..Audit::default()
    };
    let change = StockChange {
        number: 2,
        units: -3,
    };
    let (token, token_text) = (Some("t-1".into()), String::from("t-1"));
    vec![
        ShardCommand::Claim(vec![group(Some(tag)), group(None)]),
        ShardCommand::Probe(2),
        ShardCommand::Release(releases.to_vec()),
        ShardCommand::Settle {
            user: user.clone(),
            generation,
            deduction: Deduction::AtPayment,
        },
        ShardCommand::Charge {
            user: user.clone(),
            generation,
        },
        ShardCommand::Cancel {
            user: user.clone(),
            generation,
        },
        ShardCommand::Lend {
            to_shard: 1,
            wanted: 5,
        },
        ShardCommand::Deposit {
            from_shard: 1,
            transfer,
        },
        ShardCommand::SettleTransfer { to_shard: 1, id: 9 },
        ShardCommand::Audit,
        ShardCommand::Overdue {
            grace_ms: 30_000,
            limit: 100,
        },
        ShardCommand::Recount(sums),
        ShardCommand::Restock {
            units: -2,
            seen: audit,
        },
        ShardCommand::StockChange(change),
        ShardCommand::Correct {
            user: user.clone(),
            seen: vec![],
            known: orders.to_vec(),
        },
        ShardCommand::Warm {
            units: 5,
            token: None,
        },
        ShardCommand::Warm { units: 5, token },
        ShardCommand::Wipe {
            token: token_text.clone(),
            lease_ms: 1_000,
        },
        ShardCommand::Restore {
            token: token_text,
            users: vec![(user, orders.to_vec())],
        },
    ]
}

fn encoded(call: &Call) -> Vec<u8> {
    let mut bytes = Vec::new();
    call.encode_evalsha(&call.script.sha1_hex(), &mut bytes);
    call.encode_eval(&mut bytes);
    bytes
}

#[test]
fn script_call_parses_as_its_original_command() {
    for command in script_calls() {
        let call = command.to_redis(&keys(0)).unwrap();
        // By digest and by source.
        let both = ObjectCommands::Shard(vec![command.clone(), command]);
        let read = ObjectCommands::from_redis(&encoded(&call), SHARD);
        assert_eq!(read, Ok(both));
    }
}

#[test]
fn commands_survive_json() {
    let commands = ObjectCommands::Shard(script_calls());
    let json = commands.to_json();
    assert_eq!(ObjectCommands::from_json(json.as_bytes()), Ok(commands));
    let of_other_version = br#"{"Shard":[{"Haggle":1}]}"#;
    for json in [&b"nonsense"[..], b"", of_other_version] {
        assert_eq!(ObjectCommands::from_json(json), Err(UnexpectedCommand));
    }
}

#[test]
fn unknown_commands_and_foreign_keys_are_refused() {
    let flush: &[&[u8]] = &[b"FLUSHALL"];
    let good: &[&[u8]] = &[b"GET", b"weir:{s:0}:epoch"];
    let bad: [&[&[u8]]; 9] = [
        flush,
        &[b"GET", b"weir:{s:1}:epoch"],
        &[b"GET", b"weir:{s:0}:stock"],
        &[b"UNLINK", b"weir:{s:0}:stock", b"weir:{s:1}:sums"],
        &[b"DEL", b"weir:{s:0}:stock"],
        &[b"SREM", b"weir:{s:0}:reserved:1", b"alice"],
        &[b"SADD", b"weir:{s:0}:blocked:1", b"not a name"],
        &[b"EVAL", b"return 1", b"1", b"weir:{s:0}:stock"],
        &[b"EVALSHA", b"da39", b"1", b"weir:{s:0}:stock"],
    ];
    let read = |all: &[&[&[u8]]]| {
        let mut commands = Vec::new();
        for words in all {
            encode_command(&mut commands, words.iter().copied());
        }
        ObjectCommands::from_redis(&commands, SHARD)
    };
    assert_eq!(
        read(&[good]),
        Ok(ObjectCommands::Shard(vec![ShardCommand::Epoch]))
    );
    for words in bad {
        // No command of a batch runs if one is refused.
        assert_eq!(read(&[good, words]), Err(UnexpectedCommand), "{words:?}");
    }
    let of_other_shard = encoded(&warm::call(&keys(1), 50, None));
    assert_eq!(
        ObjectCommands::from_redis(&of_other_shard, SHARD),
        Err(UnexpectedCommand)
    );
    let mut of_both = ShardCommand::Probe(1).to_redis(&keys(0)).unwrap();
    of_both.keys.push(&keys(1).stock());
    assert_eq!(
        ObjectCommands::from_redis(&encoded(&of_both), SHARD),
        Err(UnexpectedCommand)
    );
    assert_eq!(
        ObjectCommands::from_redis(b"nonsense", SHARD),
        Err(UnexpectedCommand)
    );
}

#[test]
fn plain_commands_of_the_origin_are_read() {
    let read = |words: &[&[u8]]| ShardCommand::from_redis(words, SHARD).unwrap();
    let tag = AttemptTag::from_hex("00000000000000ff").unwrap();
    let alice = || user("alice");
    let cases: [(&[&[u8]], ShardCommand); 12] = [
        (&[b"EXISTS", b"weir:{s:0}:stock"], ShardCommand::IsWarm),
        (&[b"TIME"], ShardCommand::Time),
        (
            &[b"SADD", b"weir:{s:0}:reserved:1", b"alice"],
            ShardCommand::Reserve(vec![alice()]),
        ),
        (
            &[b"SADD", b"weir:{s:0}:blocked:1", b"alice"],
            ShardCommand::Block(vec![alice()]),
        ),
        (
            &[b"SREM", b"weir:{s:0}:blocked:1", b"alice"],
            ShardCommand::Unblock(vec![alice()]),
        ),
        (
            &[
                b"SET",
                b"weir:{s:0}:attempt:a:b:00000000000000ff",
                b"7",
                b"PX",
                b"9",
            ],
            ShardCommand::Attempt {
                user: user("a:b"),
                tag,
                generation: 7,
            },
        ),
        (
            &[b"HGET", b"weir:{s:0}:bought:3", b"alice"],
            ShardCommand::OrdersOf(alice()),
        ),
        (
            &[b"HSCAN", b"weir:{s:0}:bought:3", b"0"],
            ShardCommand::Settled { bucket: 3 },
        ),
        (
            &[b"HSCAN", b"weir:{s:0}:claims", b"0"],
            ShardCommand::Claims,
        ),
        (
            &[b"ZADD", b"weir:{s:0}:pending", b"NX", b"5", b"alice"],
            ShardCommand::Deadline {
                user: alice(),
                deadline_ms: 5,
            },
        ),
        (
            &[b"ZCOUNT", b"weir:{s:0}:pending", b"-inf", b"5"],
            ShardCommand::DueCount { due_ms: 5 },
        ),
        (
            &[b"UNLINK", b"weir:{s:0}:stock", b"weir:{s:0}:sums"],
            ShardCommand::Unlink {
                keys: 2,
                has_stock: true,
            },
        ),
    ];
    for (words, command) in cases {
        assert_eq!(command.to_redis(&keys(0)), None);
        assert_eq!(read(words), command);
    }
}
