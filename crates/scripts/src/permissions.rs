//! The commands that Weir needs, for users of Redis' access control lists.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::resp::Arguments;

use crate::reply::Value;
use crate::{Call, ReplyError, Script, write_check};

/// What gateways send, and what the scripts of both sides run.
pub const SHARED: [&str; 50] = [
    "decr",
    "del",
    "eval",
    "evalsha",
    "exists",
    "expire",
    "get",
    "getbit",
    "getrange",
    "hdel",
    "hexists",
    "hget",
    "hgetall",
    "hincrby",
    "hlen",
    "hmget",
    "hset",
    "incr",
    "incrby",
    "mget",
    "mset",
    "pexpire",
    "pexpireat",
    "pfadd",
    "pfcount",
    "ping",
    "pttl",
    "sadd",
    "scard",
    "set",
    "setbit",
    "setrange",
    "sismember",
    "smembers",
    "srem",
    "strlen",
    "time",
    "unlink",
    "xadd",
    "xrange",
    "xrevrange",
    "zadd",
    "zcard",
    "zcount",
    "zrange",
    "zrangebyscore",
    "zrem",
    "zremrangebyrank",
    "zremrangebyscore",
    "zscore",
];

/// What the origin sends besides.
pub const ORIGIN: [&str; 13] = [
    "config|get",
    "hscan",
    "info",
    "persist",
    "sscan",
    "xack",
    "xautoclaim",
    "xdel",
    "xgroup|create",
    "xgroup|delconsumer",
    "xinfo|consumers",
    "xlen",
    "xreadgroup",
];

/// `acl_check.lua`: which commands the user may not run.
pub static SCRIPT: Script = Script {
    name: "acl_check",
    source: include_str!("../lua/acl_check.lua"),
};

/// The call that asks about these commands, and about keys with this prefix.
pub fn call<'a>(prefix: &str, commands: impl IntoIterator<Item = &'a str>) -> Call {
    let mut args = Arguments::default();
    for command in commands {
        args.push(command.as_bytes());
    }
    Call {
        script: &SCRIPT,
        keys: [write_check::key(prefix)].into(),
        args,
    }
}

/// Reads the reply: the commands that the user may not run.
///
/// # Errors
/// When the reply is not one of the script's.
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

/// The rules of `ACL SETUSER` that allow these commands, on keys with this prefix and on no others.
pub fn rules<'a>(prefix: &str, commands: impl IntoIterator<Item = &'a str>) -> String {
    let mut rules = format!("resetkeys ~{prefix}:* resetchannels -@all");
    for command in commands {
        rules.push_str(" +");
        rules.push_str(command);
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_allow_keys_of_one_prefix_and_named_commands() {
        let rules = rules("weir", ["get", "config|get"]);
        assert_eq!(
            rules,
            "resetkeys ~weir:* resetchannels -@all +get +config|get"
        );
    }
}
