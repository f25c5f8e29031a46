//! One connection to the proxy: what comes at once is sorted by where it goes, sent there side by side, and answered in its order.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use weir_resp::{DecodeError, Value, decode};

use super::shards::Shards;

/// The most bytes of commands that may wait here: a shard takes 1 MiB at once.
const COMMANDS_LEN_MAX: usize = 8 << 20;

/// The most bytes of replies of Redis to what has come at once.
const REPLIES_LEN_MAX: usize = 256 << 20;

const CHUNK: usize = 64 << 10;

/// After these the replies would no longer be one a command, or commands would be held back.
const NOT_HERE: [&[u8]; 7] = [
    b"MULTI",
    b"WATCH",
    b"SUBSCRIBE",
    b"PSUBSCRIBE",
    b"SSUBSCRIBE",
    b"MONITOR",
    b"HELLO",
];

/// As a Redis that speaks RESP2 alone says: clients fall back to that.
const NOT_HERE_REPLY: &[u8] =
    b"-NOPROTO the shard proxy speaks RESP2, and nothing but single commands\r\n";

/// Where a command goes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    Redis,
    Shard(String),
    /// The proxy refuses it.
    Here,
}

/// Commands that go one way, in their order.
struct Group {
    way: Way,
    /// Which they are of those that came at once.
    places: Vec<usize>,
    bytes: Vec<u8>,
}

/// A connection.
pub(super) struct Session {
    client: TcpStream,
    redis: Redis,
    shards: Arc<Shards>,
}

impl Session {
    pub(super) fn new(client: TcpStream, redis: String, shards: Arc<Shards>) -> Self {
        Self {
            client,
            redis: Redis {
                address: redis,
                stream: None,
            },
            shards,
        }
    }

    /// Until the client goes, or it is not known what has become of a command.
    pub(super) async fn serve(mut self) -> Result<()> {
        self.client.set_nodelay(true)?;
        let mut received = Vec::new();
        loop {
            let (groups, used) = self.sorted(&received)?;
            received.drain(..used);
            if groups.is_empty() {
                ensure!(received.len() <= COMMANDS_LEN_MAX, "a command is too long");
                if !read_some(&mut self.client, &mut received).await? {
                    return Ok(());
                }
                continue;
            }
            let replies = self.run(groups).await?;
            self.client.write_all(&replies).await?;
        }
    }

    /// The whole commands in these bytes, by where they go, and how many bytes they are.
    fn sorted(&self, received: &[u8]) -> Result<(Vec<Group>, usize)> {
        let (mut groups, mut used, mut place) = (Vec::<Group>::new(), 0, 0);
        while let Some(rest) = received.get(used..)
            && let Some((command, length)) = whole(rest)?
        {
            let way = self.way(&command)?;
            let bytes = rest.get(..length).unwrap_or_default();
            match groups.iter_mut().find(|group| group.way == way) {
                Some(group) => {
                    group.places.push(place);
                    group.bytes.extend_from_slice(bytes);
                }
                None => groups.push(Group {
                    way,
                    places: vec![place],
                    bytes: bytes.to_vec(),
                }),
            }
            used += length;
            place += 1;
        }
        Ok((groups, used))
    }

    fn way(&self, command: &Value) -> Result<Way> {
        let Value::Array(values) = command else {
            anyhow::bail!("no command");
        };
        let words: Option<Vec<&[u8]>> = values.iter().map(word).collect();
        let words = words.context("no command")?;
        let name = words.first().context("no command")?.to_ascii_uppercase();
        Ok(match self.shards.of(&words) {
            Some(shard) => Way::Shard(shard.to_owned()),
            None if NOT_HERE.contains(&&*name) => Way::Here,
            None => Way::Redis,
        })
    }

    /// The replies, in the order of the commands.
    async fn run(&mut self, groups: Vec<Group>) -> Result<Vec<u8>> {
        let count = groups.iter().map(|group| group.places.len()).sum();
        let mut replies: Vec<Vec<u8>> = vec![Vec::new(); count];
        let mut asked = JoinSet::new();
        let mut of_redis = None;
        for group in groups {
            match group.way {
                Way::Here => place(
                    NOT_HERE_REPLY.repeat(group.places.len()),
                    &group.places,
                    &mut replies,
                )?,
                Way::Redis => of_redis = Some(group),
                Way::Shard(shard) => {
                    let shards = Arc::clone(&self.shards);
                    asked.spawn(async move {
                        let count = group.places.len();
                        let said = shards.run(&shard, group.bytes, count).await;
                        (group.places, said)
                    });
                }
            }
        }
        if let Some(group) = of_redis {
            let said = self.redis.run(&group.bytes, group.places.len()).await?;
            place(said, &group.places, &mut replies)?;
        }
        while let Some(said) = asked.join_next().await {
            let (places, said) = said?;
            place(said?, &places, &mut replies)?;
        }
        Ok(replies.concat())
    }
}

/// Each of these replies to the place of its command.
fn place(said: Vec<u8>, places: &[usize], replies: &mut [Vec<u8>]) -> Result<()> {
    let mut rest = said.as_slice();
    for at in places {
        let (_, length) = whole(rest)?.context("a reply is missing")?;
        let (reply, after) = rest.split_at(length);
        if let Some(to) = replies.get_mut(*at) {
            *to = reply.to_vec();
        }
        rest = after;
    }
    ensure!(rest.is_empty(), "there are more replies than commands");
    Ok(())
}

fn word(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bulk(word) => Some(word),
        _ => None,
    }
}

/// The value at the beginning of these bytes, and its length, if it is whole.
fn whole(bytes: &[u8]) -> Result<Option<(Value, usize)>> {
    match decode(bytes) {
        Ok(value) => Ok(Some(value)),
        Err(DecodeError::Incomplete) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// False at the end.
async fn read_some(stream: &mut TcpStream, to: &mut Vec<u8>) -> Result<bool> {
    to.reserve(CHUNK);
    Ok(stream.read_buf(to).await? > 0)
}

/// The Redis behind the proxy, which each connection reaches by one of its own: whoever has shown a password has shown it there.
struct Redis {
    address: String,
    stream: Option<TcpStream>,
}

impl Redis {
    async fn run(&mut self, commands: &[u8], count: usize) -> Result<Vec<u8>> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(&self.address).await?;
                stream.set_nodelay(true)?;
                stream
            }
        };
        stream.write_all(commands).await?;
        let mut framer = weir_resp::Framer::new(weir_resp::Direction::Replies);
        let (mut replies, mut read, mut frames) = (Vec::new(), 0, 0);
        while frames < count {
            ensure!(replies.len() <= REPLIES_LEN_MAX, "Redis says too much");
            ensure!(
                read_some(&mut stream, &mut replies).await?,
                "Redis has gone"
            );
            let more = replies.get(read..).unwrap_or_default();
            let progress = framer.advance(more, count - frames)?;
            (read, frames) = (read + progress.used, frames + progress.frames);
        }
        self.stream = Some(stream);
        Ok(replies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_go_where_their_commands_stood_and_none_is_left_over() {
        let mut replies = vec![Vec::new(); 3];
        place(b"+A\r\n:1\r\n".to_vec(), &[2, 0], &mut replies).unwrap();
        assert_eq!(replies, [b":1\r\n".to_vec(), vec![], b"+A\r\n".to_vec()]);
        assert!(place(b"+A\r\n".to_vec(), &[0, 1], &mut replies).is_err());
        assert!(place(b"+A\r\n+B\r\n".to_vec(), &[0], &mut replies).is_err());
    }
}
