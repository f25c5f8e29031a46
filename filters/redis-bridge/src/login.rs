//! Logs in to Redis before anything else is sent.
//!
//! `AUTH` precedes a connection's first call in the same bytes, so it costs no round trip. Its reply is removed from
//! the returned bytes. Logs contain neither the password nor the command.

use std::rc::Rc;

use weir_base::resp::{Direction, Framer, encode_command};

/// Maximum length of a reply to `AUTH`, in bytes.
const REPLY_LEN_MAX: usize = 512;

/// The `AUTH` command as it goes over the wire.
pub fn command(username: Option<&str>, password: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match username {
        Some(name) => encode_command(&mut bytes, [b"AUTH", name.as_bytes(), password]),
        None => encode_command(&mut bytes, [b"AUTH", password]),
    }
    bytes
}

/// The state of one connection's login.
#[derive(Debug)]
pub enum Login {
    /// These bytes precede the first call.
    Due(Rc<[u8]>),
    /// The reply is arriving: its bytes so far.
    Asked(Framer, Vec<u8>),
    /// Redis has accepted the password, or there is none.
    Done,
}

impl Login {
    /// A new connection; `command` from [`command`], if Redis has a password.
    pub fn new(command: Option<Rc<[u8]>>) -> Self {
        command.map_or(Self::Done, Self::Due)
    }

    /// The bytes to send to Redis in place of `bytes`.
    pub fn outgoing(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let Self::Due(command) = self else {
            return bytes;
        };
        let both = [command, bytes.as_slice()].concat();
        *self = Self::Asked(Framer::new(Direction::Replies), Vec::new());
        both
    }

    /// The part of `bytes` from Redis after the login's reply.
    ///
    /// # Errors
    /// The reply of Redis instead of `OK`, without the `-` of an error. The bytes after it must be dropped. It is
    /// unknown whether the commands after `AUTH` ran: a Redis without a password runs them.
    pub fn incoming<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], String> {
        let Self::Asked(framer, reply) = self else {
            return Ok(bytes);
        };
        let progress = framer
            .advance(bytes, 1)
            .map_err(|error| error.to_string())?;
        let (its, rest) = bytes.split_at(progress.used.min(bytes.len()));
        reply.extend_from_slice(its);
        if progress.frames == 1 && reply.starts_with(b"+OK") {
            *self = Self::Done;
            return Ok(rest);
        }
        if progress.frames == 1 || reply.len() > REPLY_LEN_MAX {
            let displayed = reply.get(..REPLY_LEN_MAX).unwrap_or(reply);
            let displayed = displayed.strip_prefix(b"-").unwrap_or(displayed);
            let message = String::from_utf8_lossy(displayed).trim_end().to_owned();
            *self = Self::Done;
            return Err(message);
        }
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_login() -> Login {
        let mut login = Login::new(Some(command(None, b"s\r\n").into()));
        let sent = login.outgoing(b"first".to_vec());
        assert_eq!(sent, b"*2\r\n$4\r\nAUTH\r\n$3\r\ns\r\n\r\nfirst");
        assert_eq!(login.outgoing(b"second".to_vec()), b"second");
        login
    }

    #[test]
    fn login_reply_is_removed_at_any_split() {
        let replies = b"+OK\r\n:1\r\n+OK\r\n";
        for cut in 0..replies.len() {
            let (mut login, (head, tail)) = (new_login(), replies.split_at(cut));
            let mut rest = login.incoming(head).unwrap().to_vec();
            rest.extend_from_slice(login.incoming(tail).unwrap());
            assert_eq!(rest, b":1\r\n+OK\r\n", "{cut}");
        }
    }

    #[test]
    fn login_reply_other_than_ok_is_an_error_that_quotes_it() {
        let refused = "WRONGPASS invalid username-password pair or user is disabled.";
        let replies = format!("-{refused}\r\n:1\r\n");
        let error = new_login().incoming(replies.as_bytes()).map(<[u8]>::to_vec);
        assert_eq!(error, Err(refused.to_owned()));
        assert!(new_login().incoming(b":1\r\n").is_err());
        assert!(new_login().incoming(b"HTTP/1.1 400\r\n").is_err());
        let endless = [b"-".as_slice(), &[b'x'; 10_000]].concat();
        assert!(new_login().incoming(&endless).unwrap_err().len() <= REPLY_LEN_MAX);
    }

    #[test]
    fn user_login_sends_name_and_passwordless_redis_gets_no_auth() {
        let named = command(Some("weir"), b"p");
        assert_eq!(named, b"*3\r\n$4\r\nAUTH\r\n$4\r\nweir\r\n$1\r\np\r\n");
        let mut login = Login::new(None);
        assert_eq!(login.outgoing(b"x".to_vec()), b"x");
        assert_eq!(login.incoming(b"-ERR\r\n"), Ok(b"-ERR\r\n".as_slice()));
    }
}
