//! A scripted Redis: the commands of a call, and values for its replies.

use crate::resp;

/// A command from a filter to Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespCommand(pub(crate) Vec<Vec<u8>>);

impl RespCommand {
    /// The command's name in upper case: `GET`.
    pub fn name(&self) -> String {
        let name = self.0.first().map(|name| String::from_utf8_lossy(name));
        name.unwrap_or_default().to_ascii_uppercase()
    }

    /// The arguments after the name: `[key]` of a `GET`.
    pub fn arguments(&self) -> &[Vec<u8>] {
        self.0.get(1..).unwrap_or_default()
    }

    /// The argument at `index`, from 0, as text with replacement characters for invalid UTF-8; empty if it is missing.
    pub fn text(&self, index: usize) -> String {
        let argument = self.arguments().get(index);
        argument.map_or_else(String::new, |bytes| {
            String::from_utf8_lossy(bytes).into_owned()
        })
    }
}

/// A RESP2 value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RespValue {
    /// A status such as `OK`, without line breaks.
    Status(String),
    /// An error such as `ERR no such key`, without line breaks.
    Error(String),
    /// A number.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// No value: the reply of `GET` for a missing key.
    Null,
    /// A list.
    Array(Vec<Self>),
}

impl RespValue {
    /// The status `OK`.
    pub fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    /// A string of any bytes.
    pub fn bulk(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(bytes.into())
    }

    /// An error: its code first, as in `BUSY Redis is busy running a script`.
    pub fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    /// Appends the value in the Redis protocol.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut line = |kind: char, text: &str| out.extend(format!("{kind}{text}\r\n").bytes());
        match self {
            Self::Status(text) => line('+', text),
            Self::Error(text) => line('-', text),
            Self::Integer(number) => line(':', &number.to_string()),
            Self::Null => line('$', "-1"),
            Self::Bulk(bytes) => {
                line('$', &bytes.len().to_string());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Array(values) => {
                line('*', &values.len().to_string());
                values.iter().for_each(|value| value.encode(out));
            }
        }
    }
}

/// The commands in a body; `None` if it contains anything else.
pub(crate) fn commands(body: &[u8]) -> Option<Vec<RespCommand>> {
    let commands = resp::commands(body).ok()?;
    Some(commands.into_iter().map(RespCommand).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_with_any_bytes_are_parsed() {
        let body = b"*2\r\n$3\r\nget\r\n$3\r\n\xff\r\n\r\n*1\r\n$4\r\nPING\r\n";
        let commands = commands(body).unwrap();
        assert_eq!(commands.len(), 2);
        assert_eq!(commands[0].name(), "GET");
        assert_eq!(commands[0].arguments(), [b"\xff\r\n".to_vec()]);
        assert_eq!(commands[0].text(0), "\u{fffd}\r\n");
        assert_eq!(
            (commands[1].name().as_str(), commands[1].text(0).as_str()),
            ("PING", "")
        );
    }

    #[test]
    fn invalid_command_bytes_are_rejected() {
        for body in [
            &b"GET x\r\n"[..],
            b"+OK\r\n",
            b"*0\r\n",
            b"*1\r\n:1\r\n",
            b"*1\r\n$-1\r\n",
            b"*2\r\n$3\r\nGET\r\n",
            b"*1\r\n$4\r\nPING\r\nx",
        ] {
            assert_eq!(
                commands(body),
                None,
                "{:?}",
                body.escape_ascii().to_string()
            );
        }
        assert_eq!(commands(b""), Some(vec![]));
    }

    #[test]
    fn values_are_encoded_as_redis_encodes_them() {
        let value = RespValue::Array(vec![
            RespValue::ok(),
            RespValue::error("ERR no"),
            RespValue::Integer(-3),
            RespValue::bulk("a\r\n"),
            RespValue::Null,
            RespValue::Array(vec![]),
        ]);
        let mut out = Vec::new();
        value.encode(&mut out);
        assert_eq!(
            out,
            b"*6\r\n+OK\r\n-ERR no\r\n:-3\r\n$3\r\na\r\n\r\n$-1\r\n*0\r\n"
        );
        assert_eq!(resp::count(&out), Ok(1));
    }
}
