//! The access control rules in `docs/redis.md` contain exactly the required commands.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::Server;
use weir_base::resp::Value;
use weir_scripts::permissions::{self, ORIGIN, SHARED};

const DOCUMENTED: &str = include_str!("../../../docs/redis.md");

/// Commands that engines send, and that both sides need to run scripts.
const SENT: [&str; 8] = [
    "eval",
    "evalsha",
    "get",
    "getrange",
    "ping",
    "strlen",
    "xrange",
    "xrevrange",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lower-case words between `start` and `"` or `'`, in all files with this extension.
fn words(folder: &Path, ending: &str, start: &str, to: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            words(&path, ending, start, to);
        } else if path.extension().is_some_and(|its| its == ending) {
            let text = std::fs::read_to_string(&path).unwrap();
            let found = text.split(start).skip(1);
            to.extend(found.filter_map(|rest| {
                let (word, _) = rest.split_once(['"', '\''])?;
                Some(word.to_lowercase())
            }));
        }
    }
}

fn listed(commands: &[&str]) -> BTreeSet<String> {
    let names = commands.iter();
    names
        .map(|command| command.split(' ').next().unwrap().to_owned())
        .collect()
}

#[test]
fn acl_rules_list_every_command_of_scripts_and_origin() {
    let mut shared: BTreeSet<String> = SENT.map(ToOwned::to_owned).into();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path().join("lua");
        if folder.is_dir() {
            words(&folder, "lua", "redis.call('", &mut shared);
        }
    }
    // Only a script of the origin runs it.
    assert!(shared.remove("info"));
    assert_eq!(listed(&SHARED), shared);
    let mut origin = BTreeSet::new();
    for entry in std::fs::read_dir(root().join("origin")).unwrap() {
        let folder = entry.unwrap().path().join("src");
        if folder.is_dir() {
            words(&folder, "rs", "cmd(\"", &mut origin);
        }
    }
    // Only a replicated set needs it: see "Failover" in docs/redis.md.
    assert!(origin.remove("role"));
    let all = listed(&[SHARED.as_slice(), &ORIGIN].concat());
    let missing: Vec<_> = origin.difference(&all).cloned().collect();
    assert_eq!(missing, [""; 0]);
    let needless: Vec<_> = listed(&ORIGIN).difference(&origin).cloned().collect();
    assert_eq!(needless, [""; 0]);
}

#[test]
fn documentation_contains_the_current_acl_rules() {
    let gateway = permissions::rules("weir", SHARED);
    let origin = permissions::rules("weir", SHARED.into_iter().chain(ORIGIN));
    for (user, rules) in [("weir-gateway", gateway), ("weir-origin", origin)] {
        let line = format!("\nACL SETUSER {user} on >PASSWORD {rules}\n");
        assert!(DOCUMENTED.contains(&line), "{line}");
    }
}

/// Redis 7.0 crashes if it checks a command with too few arguments.
#[test]
fn each_command_has_the_arguments_that_redis_requires() {
    let server = Server::start();
    let mut redis = server.connect();
    for command in SHARED.into_iter().chain(ORIGIN) {
        let words = ["COMMAND", "GETKEYS"].into_iter().chain(command.split(' '));
        let words: Vec<&[u8]> = words.map(str::as_bytes).collect();
        let keys = redis.command(&words);
        match command.contains("KEY") {
            true => assert_eq!(
                keys,
                Value::Array(vec![Value::Bulk(b"KEY".to_vec())]),
                "{command}"
            ),
            false => assert!(matches!(keys, Value::Error(_)), "{command}"),
        }
    }
}

#[test]
fn missing_permissions_are_listed_and_nothing_runs() {
    let server = Server::start();
    let mut admin = server.connect();
    let all: Vec<&str> = SHARED.into_iter().chain(ORIGIN).collect();
    let mut missing = |rules: &str| {
        let rules = format!("ACL SETUSER u reset on >p {rules}");
        let rules: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
        assert_eq!(admin.command(&rules), Value::Simple(b"OK".to_vec()));
        // Setting a user again closes its connections.
        let mut redis = server.connect();
        redis.command(&[b"AUTH", b"u", b"p"]);
        let call = permissions::call("weir", all.iter().copied());
        permissions::parse(&redis.run(&call)).unwrap()
    };
    let rules = permissions::rules("weir", all.iter().copied());
    assert_eq!(missing(&rules), [""; 0]);
    assert_eq!(missing("~weir:* +@all"), [""; 0]);
    let fewer = format!("{rules} -hset -xgroup|create");
    assert_eq!(missing(&fewer), ["hset", "xgroup|create"]);
    assert_eq!(admin.command(&[b"DBSIZE"]), Value::Integer(0));
}
