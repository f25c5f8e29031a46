//! A script, and one call of it.

use alloc::string::String;
use alloc::vec::Vec;

use sha1::{Digest, Sha1};
use weir_base::resp::{Arguments, encode_parts};

/// A script: its name, for logs and metrics, and its Lua source.
#[derive(Debug, PartialEq, Eq)]
pub struct Script {
    /// The file name without the extension.
    pub name: &'static str,
    /// The Lua text.
    pub source: &'static str,
}

/// One call of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The script.
    pub script: &'static Script,
    /// KEYS: at least one, because redis_proxy routes by the first.
    pub keys: Arguments,
    /// ARGV.
    pub args: Arguments,
}

impl Script {
    /// The SHA-1 digest of the source in lower-case hexadecimal, for EVALSHA.
    pub fn sha1_hex(&self) -> String {
        hex::encode(Sha1::digest(self.source))
    }
}

impl Call {
    /// KEYS, and then ARGV.
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().chain(self.args.iter())
    }

    /// Appends `EVALSHA <sha1> …` to `out`.
    pub fn encode_evalsha(&self, sha1_hex: &str, out: &mut Vec<u8>) {
        self.encode(b"EVALSHA", sha1_hex.as_bytes(), out);
    }

    /// Appends `EVAL <source> …` to `out`, for a Redis that has not loaded the script.
    pub fn encode_eval(&self, out: &mut Vec<u8>) {
        self.encode(b"EVAL", self.script.source.as_bytes(), out);
    }

    fn encode(&self, command: &[u8], script: &[u8], out: &mut Vec<u8>) {
        let mut head = Arguments::from([command, script]);
        head.push_decimal(self.keys.len() as u64);
        encode_parts(out, &[&head, &self.keys, &self.args]);
    }
}

/// A number in the decimal format of Redis.
pub fn decimal(number: impl Into<u64>) -> Vec<u8> {
    itoa::Buffer::new().format(number.into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    static PING: Script = Script {
        name: "ping",
        source: "return 'PONG'",
    };

    #[test]
    fn call_is_encoded_in_the_redis_protocol() {
        let call = Call {
            script: &PING,
            keys: [b"k"].into(),
            args: [b"a".as_slice(), b""].into(),
        };
        let mut out = Vec::new();
        call.encode_eval(&mut out);
        assert_eq!(
            out,
            b"*6\r\n$4\r\nEVAL\r\n$13\r\nreturn 'PONG'\r\n$1\r\n1\r\n$1\r\nk\r\n$1\r\na\r\n$0\r\n\r\n"
        );
        out.clear();
        call.encode_evalsha(&PING.sha1_hex(), &mut out);
        assert!(out.starts_with(b"*6\r\n$7\r\nEVALSHA\r\n$40\r\n"));
    }
}
