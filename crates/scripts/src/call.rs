//! A script, and one call of it.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sha1::{Digest, Sha1};
use weir_resp::encode_command;

/// A script: its name, for logs and metrics, and its Lua.
#[derive(Debug, PartialEq, Eq)]
pub struct Script {
    /// The name of its file without the ending.
    pub name: &'static str,
    /// The Lua text.
    pub source: &'static str,
}

/// One call of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What to run.
    pub script: &'static Script,
    /// KEYS: at least one, since redis_proxy routes by the first.
    pub keys: Vec<Vec<u8>>,
    /// ARGV.
    pub args: Vec<Vec<u8>>,
}

impl Script {
    /// The SHA-1 digest of the source in lower-case hex, by which EVALSHA names a script.
    pub fn sha1_hex(&self) -> String {
        hex::encode(Sha1::digest(self.source))
    }
}

impl Call {
    /// Appends `EVALSHA <sha1> …` to `out`.
    pub fn encode_evalsha(&self, sha1_hex: &str, out: &mut Vec<u8>) {
        self.encode(b"EVALSHA", sha1_hex.as_bytes(), out);
    }

    /// Appends `EVAL <source> …` to `out`: for when Redis does not know the script.
    pub fn encode_eval(&self, out: &mut Vec<u8>) {
        self.encode(b"EVAL", self.script.source.as_bytes(), out);
    }

    fn encode(&self, command: &[u8], script: &[u8], out: &mut Vec<u8>) {
        let key_count = self.keys.len().to_string();
        let head = [command, script, key_count.as_bytes()];
        let tail = self.keys.iter().chain(&self.args).map(Vec::as_slice);
        let all: Vec<&[u8]> = head.into_iter().chain(tail).collect();
        encode_command(out, all);
    }
}

/// A number as Redis takes it.
pub(crate) fn decimal(number: impl Into<u64>) -> Vec<u8> {
    number.into().to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    static PING: Script = Script {
        name: "ping",
        source: "return 'PONG'",
    };

    #[test]
    fn a_call_is_written_as_redis_reads_it() {
        let call = Call {
            script: &PING,
            keys: vec![b"k".to_vec()],
            args: vec![b"a".to_vec(), b"".to_vec()],
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
