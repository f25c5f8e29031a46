//! Redis: sets its contents before a vector, and reads them afterwards. Its clock is stopped at a given time.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use weir_base::resp::{DecodeError, Value, decode, encode_command};
use weir_stack::ports;
use weir_stack::redis::{RedisOptions, RedisServer};
use weir_stack::report::SilentReporter;
use weir_stack::tools::{self, Clock};

use crate::text::{escape, unescape};
use crate::vector::{Changes, Content, Entry, RedisKeys};

/// Longer than any Redis command takes in these tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// An own Redis.
pub struct Store {
    server: RedisServer,
    connection: Connection,
    clock: Clock,
    _dir: TempDir,
}

impl Store {
    /// Starts it.
    ///
    /// # Errors
    /// Redis does not start.
    pub fn start(runtime: &Runtime) -> Result<Self> {
        let tool = tools::Redis::find_or_get(&mut SilentReporter)?;
        let dir = tempfile::tempdir()?;
        let clock = Clock::stopped(&dir.path().join("clock"), 1)?;
        let options = RedisOptions {
            durable: false,
            clock: Some(clock.clone()),
            ..RedisOptions::durable(ports::free()?, dir.path(), &dir.path().join("redis.log"))
        };
        let server = runtime.block_on(RedisServer::start_with(&tool, &options))?;
        Ok(Self {
            connection: Connection::open(server.port())?,
            server,
            clock,
            _dir: dir,
        })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// Its process, while it runs.
    pub fn pid(&mut self) -> Option<u32> {
        self.server.process().pid()
    }

    /// Sets its clock.
    ///
    /// # Errors
    /// The clock cannot be set.
    pub fn set_time(&self, at_ms: u64) -> Result<()> {
        self.clock.stand_at(at_ms.try_into()?)
    }

    /// Deletes everything except scripts.
    ///
    /// # Errors
    /// Redis refuses.
    pub fn clear(&mut self) -> Result<()> {
        self.ask(&[b"FLUSHALL"]).map(drop)
    }

    /// Stores keys.
    ///
    /// # Errors
    /// Redis refuses.
    pub fn load(&mut self, stored: &RedisKeys) -> Result<()> {
        stored
            .iter()
            .try_for_each(|(key, entry)| self.put(key, entry))
    }

    /// Applies changes.
    ///
    /// # Errors
    /// Redis refuses.
    pub fn change(&mut self, changes: &Changes) -> Result<()> {
        for (key, entry) in changes {
            self.ask(&[b"DEL", &unescape(key)?])?;
            if let Some(entry) = entry {
                self.put(key, entry)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, key: &str, entry: &Entry) -> Result<()> {
        let key = unescape(key)?;
        let mut commands: Vec<Vec<Vec<u8>>> = Vec::new();
        let mut add = |name: &str, words: &[&str]| -> Result<()> {
            let mut command = vec![name.into(), key.clone()];
            for word in words {
                command.push(unescape(word)?);
            }
            commands.push(command);
            Ok(())
        };
        match &entry.value {
            Content::String(value) => add("SET", &[value])?,
            Content::Hash(fields) => {
                fields
                    .iter()
                    .try_for_each(|(field, value)| add("HSET", &[field, value]))?;
            }
            Content::Set(members) => members
                .iter()
                .try_for_each(|member| add("SADD", &[member]))?,
            Content::Zset(members) => {
                members
                    .iter()
                    .try_for_each(|(member, score)| add("ZADD", &[score, member]))?;
            }
            Content::Stream(entries) => entries.iter().try_for_each(|(id, fields)| {
                let mut words = vec![id.as_str()];
                words.extend(fields.iter().map(String::as_str));
                add("XADD", &words)
            })?,
        }
        if let Some(at_ms) = entry.expires_at_ms {
            add("PEXPIREAT", &[&at_ms.to_string()])?;
        }
        for command in commands {
            let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            self.ask(&words)?;
        }
        Ok(())
    }

    /// All keys that begin with `prefix` and a colon, except reports of what engines run, which depend on the host.
    ///
    /// # Errors
    /// A key has a type that no vector uses.
    pub fn dump(&mut self, prefix: &str) -> Result<RedisKeys> {
        let Value::Array(keys) = self.ask(&[b"KEYS", format!("{prefix}:*").as_bytes()])? else {
            bail!("KEYS gives no list");
        };
        let keys = keys.into_iter().map(bytes).collect::<Result<Vec<_>>>()?;
        let reports = format!("{prefix}:gateways:");
        let compared = keys
            .into_iter()
            .filter(|key| !key.starts_with(reports.as_bytes()));
        let entries = compared.map(|key| Ok((escape(&key), self.entry(&key)?)));
        Ok(without_names(entries.collect::<Result<_>>()?))
    }

    fn entry(&mut self, key: &[u8]) -> Result<Entry> {
        let Value::Simple(kind) = self.ask(&[b"TYPE", key])? else {
            bail!("TYPE gives no status");
        };
        let value = match kind.as_slice() {
            b"string" => Content::String(escape(&bytes(self.ask(&[b"GET", key])?)?)),
            b"hash" => Content::Hash(pairs(self.ask(&[b"HGETALL", key])?)?),
            b"zset" => {
                let range = self.ask(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"])?;
                Content::Zset(pairs(range)?)
            }
            b"set" => {
                let mut members = texts(self.ask(&[b"SMEMBERS", key])?)?;
                members.sort();
                Content::Set(members)
            }
            b"stream" => Content::Stream(entries(self.ask(&[b"XRANGE", key, b"-", b"+"])?)?),
            other => bail!("{} is a {}", escape(key), escape(other)),
        };
        let Value::Integer(at_ms) = self.ask(&[b"PEXPIRETIME", key])? else {
            bail!("PEXPIRETIME gives no number");
        };
        Ok(Entry {
            value,
            expires_at_ms: u64::try_from(at_ms).ok(),
        })
    }

    /// Sends one command and returns the reply.
    ///
    /// # Errors
    /// There is no reply, or it is an error.
    pub fn ask(&mut self, words: &[&[u8]]) -> Result<Value> {
        let mut command = Vec::new();
        encode_command(&mut command, words.iter().copied());
        let reply = self.connection.exchange(&command)?;
        match decode(&reply) {
            Ok((Value::Error(error), _)) => bail!("{}: {}", escape(words[0]), escape(&error)),
            Ok((value, _)) => Ok(value),
            Err(error) => bail!("{error:?}"),
        }
    }

    /// Sends an engine's commands and returns the raw replies.
    ///
    /// # Errors
    /// Replies are missing.
    pub fn run(&mut self, commands: &[u8]) -> Result<Vec<u8>> {
        self.connection.exchange(commands)
    }
}

/// The part before a click's ID in the key of its record.
const CLICK: &str = ":click:";

/// Replaces the click IDs, which each gateway generates, with numbers in the order of their records.
fn without_names(stored: RedisKeys) -> RedisKeys {
    let (marks, mut others): (RedisKeys, RedisKeys) =
        stored.into_iter().partition(|(key, _)| key.contains(CLICK));
    let mut marks: Vec<(String, Entry)> = marks
        .into_iter()
        .filter(|(_, entry)| !is_given_back(entry))
        .filter_map(|(key, entry)| Some((key.split_once(CLICK)?.0.to_owned(), entry)))
        .collect();
    marks.sort_by_key(|(link, entry)| (link.clone(), format!("{entry:?}")));
    let numbered = marks.into_iter().enumerate();
    others
        .extend(numbered.map(|(number, (link, entry))| (format!("{link}{CLICK}#{number}"), entry)));
    others
}

/// Whether the record is of a returned click. A filter reports it to Redis asynchronously, so the record may not exist
/// yet.
fn is_given_back(mark: &Entry) -> bool {
    matches!(&mark.value, Content::String(value) if value == "back")
}

/// The differences between `before` and `after`.
pub fn changes(before: &RedisKeys, after: &RedisKeys) -> Changes {
    let removed = before.keys().filter(|key| !after.contains_key(*key));
    let changed = after
        .iter()
        .filter(|(key, entry)| before.get(*key) != Some(entry));
    removed
        .map(|key| (key.clone(), None))
        .chain(changed.map(|(key, entry)| (key.clone(), Some(entry.clone()))))
        .collect()
}

fn bytes(value: Value) -> Result<Vec<u8>> {
    match value {
        Value::Bulk(bytes) => Ok(bytes),
        other => bail!("{other:?} is no string"),
    }
}

fn texts(value: Value) -> Result<Vec<String>> {
    let Value::Array(values) = value else {
        bail!("{value:?} is no list");
    };
    values
        .into_iter()
        .map(|value| Ok(escape(&bytes(value)?)))
        .collect()
}

fn pairs<C: FromIterator<(String, String)>>(value: Value) -> Result<C> {
    let mut texts = texts(value)?.into_iter();
    Ok(std::iter::from_fn(|| Some((texts.next()?, texts.next()?))).collect())
}

fn entries(value: Value) -> Result<Vec<(String, Vec<String>)>> {
    let Value::Array(values) = value else {
        bail!("{value:?} is no list");
    };
    let entry = |value| match value {
        Value::Array(parts) => {
            let [id, fields] = <[Value; 2]>::try_from(parts).ok().context("no entry")?;
            Ok((escape(&bytes(id)?), texts(fields)?))
        }
        other => bail!("{other:?} is no entry"),
    };
    values.into_iter().map(entry).collect()
}

/// A plain connection to Redis.
pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    /// Opens a connection to 127.0.0.1.
    ///
    /// # Errors
    /// The port has no listener.
    pub fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            received: Vec::new(),
        })
    }

    /// Sends complete commands; returns one reply for each.
    ///
    /// # Errors
    /// Replies are missing.
    pub fn exchange(&mut self, commands: &[u8]) -> Result<Vec<u8>> {
        let (mut count, mut rest) = (0, commands);
        while !rest.is_empty() {
            let (_, used) =
                decode(rest).map_err(|error| anyhow::anyhow!("no command: {error:?}"))?;
            (count, rest) = (count + 1, &rest[used..]);
        }
        self.stream.write_all(commands)?;
        let mut replies = Vec::new();
        for _ in 0..count {
            replies.extend(self.reply()?);
        }
        Ok(replies)
    }

    /// Removes the timeout for replies.
    ///
    /// # Errors
    /// The system refuses.
    pub fn wait_for_ever(&self) -> Result<()> {
        Ok(self.stream.set_read_timeout(None)?)
    }

    /// The next raw reply.
    ///
    /// # Errors
    /// It does not arrive.
    pub fn reply(&mut self) -> Result<Vec<u8>> {
        loop {
            match decode(&self.received) {
                Ok((_, used)) => return Ok(self.received.drain(..used).collect()),
                Err(DecodeError::Incomplete) => {}
                Err(error) => bail!("not of Redis: {error:?}"),
            }
            let mut chunk = [0; 16 << 10];
            let count = self.stream.read(&mut chunk)?;
            ensure!(count > 0, "Redis has closed the connection");
            self.received.extend_from_slice(&chunk[..count]);
        }
    }
}
