//! The commands that Weir needs, for users in Redis' access control lists.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::resp::Arguments;

use crate::reply::Value;
use crate::{Call, ReplyError, Script, write_check};

/// Commands that gateways send, and that the scripts of both sides run: each with arguments, and `KEY` for a key.
///
/// The arguments are required: Redis 7.0 crashes if `redis.acl_check_cmd` gets fewer of them than the command takes.
pub const SHARED: [&str; 50] = [
    "decr KEY",
    "del KEY",
    "eval x 1 KEY",
    "evalsha x 1 KEY",
    "exists KEY",
    "expire KEY 1",
    "get KEY",
    "getbit KEY 0",
    "getrange KEY 0 0",
    "hdel KEY f",
    "hexists KEY f",
    "hget KEY f",
    "hgetall KEY",
    "hincrby KEY f 1",
    "hlen KEY",
    "hmget KEY f",
    "hset KEY f v",
    "incr KEY",
    "incrby KEY 1",
    "mget KEY",
    "mset KEY v",
    "pexpire KEY 1",
    "pexpireat KEY 1",
    "pfadd KEY e",
    "pfcount KEY",
    "ping",
    "pttl KEY",
    "sadd KEY m",
    "scard KEY",
    "set KEY v",
    "setbit KEY 0 1",
    "setrange KEY 0 v",
    "sismember KEY m",
    "smembers KEY",
    "srem KEY m",
    "strlen KEY",
    "time",
    "unlink KEY",
    "xadd KEY * f v",
    "xrange KEY - +",
    "xrevrange KEY + -",
    "zadd KEY 1 m",
    "zcard KEY",
    "zcount KEY 0 1",
    "zrange KEY 0 1",
    "zrangebyscore KEY 0 1",
    "zrem KEY m",
    "zremrangebyrank KEY 0 1",
    "zremrangebyscore KEY 0 1",
    "zscore KEY m",
];

/// Additional commands that the origin sends.
pub const ORIGIN: [&str; 13] = [
    "config get maxmemory",
    "hscan KEY 0",
    "info",
    "persist KEY",
    "sscan KEY 0",
    "xack KEY g 1-1",
    "xautoclaim KEY g c 0 0",
    "xdel KEY 1-1",
    "xgroup create KEY g 0",
    "xgroup delconsumer KEY g c",
    "xinfo consumers KEY g",
    "xlen KEY",
    "xreadgroup GROUP g c STREAMS KEY 0",
];

/// Commands with subcommands.
const CONTAINERS: [&str; 3] = ["config", "xgroup", "xinfo"];

/// The command's name in ACL rules, such as `get` or `config|get`.
pub fn name(command: &str) -> String {
    let mut words = command.split(' ');
    let first = words.next().unwrap_or_default();
    match words.next() {
        Some(second) if CONTAINERS.contains(&first) => format!("{first}|{second}"),
        _ => first.into(),
    }
}

/// `acl_check.lua`: returns the commands that the user may not run.
pub static SCRIPT: Script = Script {
    name: "acl_check",
    source: include_str!("../lua/acl_check.lua"),
};

/// The call that checks these commands on keys with this prefix.
pub fn call<'a>(prefix: &str, commands: impl IntoIterator<Item = &'a str>) -> Call {
    let mut args = Arguments::default();
    for command in commands {
        args.push(name(command).as_bytes());
        args.push(command.as_bytes());
    }
    Call {
        script: &SCRIPT,
        keys: [write_check::key(prefix)].into(),
        args,
    }
}

/// Parses the reply: the commands that the user may not run.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<Vec<String>, ReplyError> {
    let other = || ReplyError {
        script: SCRIPT.name,
    };
    let Value::Array(commands) = value else {
        return Err(other());
    };
    let text = |value: &Value| match value {
        Value::Bulk(name) => Ok(String::from_utf8_lossy(name).into_owned()),
        _ => Err(other()),
    };
    commands.iter().map(text).collect()
}

/// The `ACL SETUSER` rules that allow these commands, only on keys with this prefix.
pub fn rules<'a>(prefix: &str, commands: impl IntoIterator<Item = &'a str>) -> String {
    let mut rules = format!("resetkeys ~{prefix}:* resetchannels -@all");
    for command in commands {
        rules.push_str(" +");
        rules.push_str(&name(command));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_allow_keys_of_one_prefix_and_named_commands() {
        let rules = rules("weir", ["get KEY", "config get x"]);
        assert_eq!(
            rules,
            "resetkeys ~weir:* resetchannels -@all +get +config|get"
        );
    }
}
