//! One client connection: groups pipelined commands by destination, sends the groups concurrently, and replies in
//! order.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use weir_base::resp::{DecodeError, Value, decode};

use super::links::{Step, is_error, leads_to_object, lives_ms};
use super::shards::Shards;

/// Maximum bytes of buffered commands. A shard accepts 1 MiB per request.
const COMMANDS_LEN_MAX: usize = 8 << 20;

/// Maximum bytes of Redis' replies to one batch of commands.
const REPLIES_LEN_MAX: usize = 256 << 20;

const CHUNK: usize = 64 << 10;

/// Refused commands: with them, replies would not match commands one to one, or Redis would hold commands back.
const NOT_HERE: [&[u8]; 7] = [
    b"MULTI",
    b"WATCH",
    b"SUBSCRIBE",
    b"PSUBSCRIBE",
    b"SSUBSCRIBE",
    b"MONITOR",
    b"HELLO",
];

/// The same error as a Redis that only supports RESP2; clients then fall back to RESP2.
const NOT_HERE_REPLY: &[u8] =
    b"-NOPROTO the shard proxy supports only RESP2 and single commands\r\n";

/// Destination of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CommandRoute {
    Redis,
    Shard(String),
    /// A command on the named link, whose object takes part.
    Link(String, Step),
    /// The proxy refuses it.
    Here,
}

/// Commands with the same destination, in their order.
struct Group {
    route: CommandRoute,
    /// Their indexes in the batch.
    places: Vec<usize>,
    bytes: Vec<u8>,
}

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

    /// Serves the client until it disconnects, or until the result of a command is unknown.
    pub(super) async fn serve(mut self) -> Result<()> {
        self.client.set_nodelay(true)?;
        let mut received = Vec::new();
        loop {
            let (groups, used) = self.sorted(&received)?;
            received.drain(..used);
            if groups.is_empty() {
                ensure!(received.len() <= COMMANDS_LEN_MAX, "command too long");
                if !read_some(&mut self.client, &mut received).await? {
                    return Ok(());
                }
                continue;
            }
            let replies = self.run(groups).await?;
            self.client.write_all(&replies).await?;
        }
    }

    /// Groups the complete commands in these bytes by destination. Also returns how many bytes they take.
    fn sorted(&self, received: &[u8]) -> Result<(Vec<Group>, usize)> {
        let (mut groups, mut used, mut place) = (Vec::<Group>::new(), 0, 0);
        while let Some(rest) = received.get(used..)
            && let Some((command, length)) = whole(rest)?
        {
            let mode = self.command_route(&command)?;
            let bytes = rest.get(..length).unwrap_or_default();
            let is_of =
                |group: &&mut Group| group.route == mode && !matches!(mode, CommandRoute::Link(..));
            match groups.iter_mut().find(is_of) {
                Some(group) => {
                    group.places.push(place);
                    group.bytes.extend_from_slice(bytes);
                }
                None => groups.push(Group {
                    route: mode,
                    places: vec![place],
                    bytes: bytes.to_vec(),
                }),
            }
            used += length;
            place += 1;
        }
        Ok((groups, used))
    }

    fn command_route(&self, command: &Value) -> Result<CommandRoute> {
        let Value::Array(values) = command else {
            anyhow::bail!("invalid command");
        };
        let words: Option<Vec<&[u8]>> = values.iter().map(word).collect();
        let words = words.context("invalid command")?;
        let name = words
            .first()
            .context("invalid command")?
            .to_ascii_uppercase();
        if let Some((link, step)) = self.shards.of_link(&words) {
            return Ok(CommandRoute::Link(link.to_owned(), step));
        }
        Ok(match self.shards.shard_of(&words) {
            Some(shard) => CommandRoute::Shard(shard.to_owned()),
            None if NOT_HERE.contains(&&*name) => CommandRoute::Here,
            None => CommandRoute::Redis,
        })
    }

    /// Returns the replies in the order of the commands. Sends to objects before Redis; see [`super::links`].
    async fn run(&mut self, groups: Vec<Group>) -> Result<Vec<u8>> {
        let count = groups.iter().map(|group| group.places.len()).sum();
        let mut replies: Vec<Vec<u8>> = vec![Vec::new(); count];
        let (mut of_objects, mut of_redis, mut on_links) = (Vec::new(), Vec::new(), Vec::new());
        for group in groups {
            match &group.route {
                CommandRoute::Here => place(
                    &NOT_HERE_REPLY.repeat(group.places.len()),
                    &group.places,
                    &mut replies,
                )?,
                CommandRoute::Redis => of_redis.push(group),
                CommandRoute::Shard(object) => of_objects.push((object.clone(), group)),
                CommandRoute::Link(..) => on_links.push(RoutedLinkCommand::from_group(group)?),
            }
        }
        for on_link in &on_links {
            if on_link.step != Step::Look {
                merge(&mut of_objects, &on_link.link, &on_link.group());
            }
        }
        self.ask_objects(of_objects, &mut replies).await?;
        self.ask_redis(&of_redis, &on_links, &mut replies).await?;
        self.follow(&on_links, &mut replies).await?;
        Ok(replies.concat())
    }

    /// Sends commands to objects concurrently.
    async fn ask_objects(
        &self,
        requested: Vec<(String, Group)>,
        replies: &mut [Vec<u8>],
    ) -> Result<()> {
        let mut tasks = JoinSet::new();
        for (object, group) in requested {
            let shards = Arc::clone(&self.shards);
            tasks.spawn(async move {
                let count = group.places.len();
                let response = shards.run(&object, &group.bytes, count).await;
                (group.places, response)
            });
        }
        while let Some(response) = tasks.join_next().await {
            let (places, response) = response?;
            place(&response?, &places, replies)?;
        }
        Ok(())
    }

    /// Sends Redis its own commands and its share of the link commands.
    async fn ask_redis(
        &mut self,
        groups: &[Group],
        on_links: &[RoutedLinkCommand],
        replies: &mut [Vec<u8>],
    ) -> Result<()> {
        let (mut commands, mut count) = (Vec::new(), 0);
        for group in groups {
            commands.extend_from_slice(&group.bytes);
            count += group.places.len();
        }
        let parts: Vec<_> = on_links
            .iter()
            .filter_map(|on_link| on_link.of_redis(replies))
            .collect();
        for (_, bytes, more) in &parts {
            commands.extend_from_slice(bytes);
            count += more;
        }
        if count == 0 {
            return Ok(());
        }
        let response = self.redis.run(&commands, count).await?;
        let mut rest = response.as_slice();
        for group in groups {
            rest = placed(rest, &group.places, replies)?;
        }
        for (on_link, _, more) in parts {
            let mut own = vec![Vec::new(); more];
            let places: Vec<usize> = (0..more).collect();
            rest = placed(rest, &places, &mut own)?;
            let own = own.into_iter().next().unwrap_or_default();
            if let Some(reply) = replies.get_mut(on_link.place) {
                *reply = match &on_link.step {
                    Step::Both { joined, .. } => joined.choose(std::mem::take(reply), own),
                    Step::Look | Step::Object => own,
                };
            }
        }
        ensure!(rest.is_empty(), "more replies than commands");
        Ok(())
    }

    /// Sends commands to the objects that Redis' markers point to, and sets the expiry of the markers to that of the
    /// links.
    async fn follow(
        &mut self,
        on_links: &[RoutedLinkCommand],
        replies: &mut [Vec<u8>],
    ) -> Result<()> {
        let leads = |on_link: &&RoutedLinkCommand| {
            let reply = replies.get(on_link.place);
            on_link.step == Step::Look && reply.is_some_and(|reply| leads_to_object(reply))
        };
        let led: Vec<&RoutedLinkCommand> = on_links.iter().filter(leads).collect();
        let mut requests = Vec::new();
        for on_link in &led {
            merge(&mut requests, &on_link.link, &on_link.group());
        }
        self.ask_objects(requests, replies).await?;
        let (mut commands, mut count) = (Vec::new(), 0);
        for on_link in led {
            if let Some(left_ms) = replies.get(on_link.place).and_then(|reply| lives_ms(reply)) {
                let words = ["PEXPIRE", &on_link.link, &left_ms.to_string()];
                weir_base::resp::encode_command(&mut commands, words.map(str::as_bytes));
                count += 1;
            }
        }
        if count > 0 {
            self.redis.run(&commands, count).await?;
        }
        Ok(())
    }
}

/// A command on a link whose object takes part.
struct RoutedLinkCommand {
    place: usize,
    link: String,
    bytes: Vec<u8>,
    step: Step,
}

impl RoutedLinkCommand {
    fn from_group(group: Group) -> Result<Self> {
        let CommandRoute::Link(link, step) = group.route else {
            anyhow::bail!("it is on no link");
        };
        Ok(Self {
            place: *group.places.first().context("a command has a place")?,
            bytes: group.bytes,
            link,
            step,
        })
    }

    /// The original command, for the object.
    fn group(&self) -> Group {
        Group {
            route: CommandRoute::Shard(self.link.clone()),
            places: vec![self.place],
            bytes: self.bytes.clone(),
        }
    }

    /// The commands for Redis and their number; `None` if there are none, or the object returned an error.
    fn of_redis(&self, replies: &[Vec<u8>]) -> Option<(&Self, &[u8], usize)> {
        match &self.step {
            Step::Look => Some((self, &self.bytes, 1)),
            Step::Object => None,
            Step::Both {
                commands, count, ..
            } => {
                let reply = replies.get(self.place)?;
                (!is_error(reply)).then_some((self, commands, *count))
            }
        }
    }
}

/// Adds commands to the group for this object.
fn merge(requested: &mut Vec<(String, Group)>, object: &str, more: &Group) {
    match requested
        .iter_mut()
        .find(|(existing, _)| existing == object)
    {
        Some((_, group)) => {
            group.places.extend_from_slice(&more.places);
            group.bytes.extend_from_slice(&more.bytes);
        }
        None => requested.push((
            object.to_owned(),
            Group {
                route: more.route.clone(),
                places: more.places.clone(),
                bytes: more.bytes.clone(),
            },
        )),
    }
}

/// Assigns each reply to the index of its command.
fn place(response: &[u8], places: &[usize], replies: &mut [Vec<u8>]) -> Result<()> {
    let rest = placed(response, places, replies)?;
    ensure!(rest.is_empty(), "more replies than commands");
    Ok(())
}

/// Like [`place`], but returns the remaining bytes.
fn placed<'s>(response: &'s [u8], places: &[usize], replies: &mut [Vec<u8>]) -> Result<&'s [u8]> {
    let mut rest = response;
    for at in places {
        let (_, length) = whole(rest)?.context("missing reply")?;
        let (reply, after) = rest.split_at(length);
        if let Some(to) = replies.get_mut(*at) {
            *to = reply.to_vec();
        }
        rest = after;
    }
    Ok(rest)
}

fn word(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bulk(word) => Some(word),
        _ => None,
    }
}

/// Decodes the value at the start of these bytes, and returns it with its length; `None` if it is incomplete.
fn whole(bytes: &[u8]) -> Result<Option<(Value, usize)>> {
    match decode(bytes) {
        Ok(value) => Ok(Some(value)),
        Err(DecodeError::Incomplete) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns false at the end of the stream.
async fn read_some(stream: &mut TcpStream, to: &mut Vec<u8>) -> Result<bool> {
    to.reserve(CHUNK);
    Ok(stream.read_buf(to).await? > 0)
}

/// The Redis behind the proxy. Each client connection has its own connection to it, because `AUTH` is per connection.
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
        let mut framer = weir_base::resp::Framer::new(weir_base::resp::Direction::Replies);
        let (mut replies, mut read, mut frames) = (Vec::new(), 0, 0);
        while frames < count {
            ensure!(replies.len() <= REPLIES_LEN_MAX, "reply of Redis too long");
            ensure!(
                read_some(&mut stream, &mut replies).await?,
                "Redis closed the connection"
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
    fn replies_keep_command_positions_and_surplus_is_an_error() {
        let mut replies = vec![Vec::new(); 3];
        place(b"+A\r\n:1\r\n", &[2, 0], &mut replies).unwrap();
        assert_eq!(replies, [b":1\r\n".to_vec(), vec![], b"+A\r\n".to_vec()]);
        assert!(place(b"+A\r\n", &[0, 1], &mut replies).is_err());
        assert!(place(b"+A\r\n+B\r\n", &[0], &mut replies).is_err());
    }
}
