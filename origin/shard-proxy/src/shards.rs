//! HTTP client for shards in edge objects.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use hyper::body::Bytes;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use weir_base::feed::routes::shard_commands;
use weir_base::headers::{EDGE, EDGE_SIGNATURE};
use weir_base::key::KeyRing;
use weir_base::stamp::Stamp;
use weir_edge::shard::ObjectCommands;
use weir_sale::redis::keys::ShardKeys;

use super::links::{Step, on_link};
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::client::HttpClient;

/// Request timeout; longer than origin and gateways wait for a reply.
const LIMIT: Duration = Duration::from_secs(2);

/// Maximum bytes of replies. A page of a shard's claims contains all of them.
const REPLIES_LEN_MAX: usize = 64 << 20;

/// Client of the edge with the shards.
pub(super) struct Shards {
    client: HttpClient,
    keys: KeyRing,
    name: String,
    key_prefix: String,
    random: SystemRandom,
}

impl Shards {
    pub(super) fn new(client: HttpClient, keys: KeyRing, name: &str, key_prefix: &str) -> Self {
        Self {
            client,
            keys,
            name: name.to_owned(),
            key_prefix: key_prefix.to_owned(),
            random: SystemRandom::new(),
        }
    }

    /// The shard that a command addresses; `None` if it addresses none.
    pub(super) fn shard_of<'w>(&self, words: &[&'w [u8]]) -> Option<&'w str> {
        ShardKeys::of_command(&self.key_prefix, words)
    }

    /// The link that a command addresses, if the link's object takes part.
    pub(super) fn of_link<'w>(&self, words: &[&'w [u8]]) -> Option<(&'w str, Step)> {
        on_link(&self.key_prefix, words)
    }

    /// Runs `count` RESP commands on a shard or a link, and returns their replies. If none of them ran, each reply is
    /// an error that says so.
    ///
    /// # Errors
    /// When it is unknown whether the commands ran.
    pub(super) async fn run(&self, shard: &str, commands: &[u8], count: usize) -> Result<Vec<u8>> {
        let Ok(commands) = ObjectCommands::from_redis(commands, shard.as_bytes()) else {
            return Ok(refused("invalid command", shard, count));
        };
        let commands = commands.to_json();
        let sha256 = hex::encode(digest(&SHA256, commands.as_bytes()));
        let path = shard_commands(shard, &self.id()?, &sha256);
        let stamp = Stamp {
            at_ms: now_ms(),
            edge: &self.name,
            client: "",
            method: "POST",
            path: &path,
        };
        let signed = stamp.sign(&self.keys);
        let header = |name, value: &str| -> Result<_> {
            Ok((HeaderName::from_static(name), HeaderValue::from_str(value)?))
        };
        let headers = [
            header(EDGE, &signed.value)?,
            header(EDGE_SIGNATURE, &signed.signature)?,
        ];
        let body = Bytes::from(commands);
        let client = &self.client;
        let answer = client.send(Method::POST, &path, &headers, body, REPLIES_LEN_MAX);
        let answer = tokio::time::timeout(LIMIT, answer).await;
        let (status, replies) = answer.context("timeout waiting for the edge")??;
        match status {
            StatusCode::OK => Ok(replies.to_vec()),
            // The edge refused the request before it ran anything. Report it like a missing Redis permission.
            StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN => {
                Ok(refused(&status.to_string(), shard, count))
            }
            status => bail!("the edge answered {status} for {shard}"),
        }
    }

    /// A random request id. The edge runs a request id once, so a replayed request has no effect.
    fn id(&self) -> Result<String> {
        let mut bytes = [0; 16];
        let filled = self.random.fill(&mut bytes);
        ensure!(
            filled.is_ok(),
            "no random numbers from the operating system"
        );
        Ok(hex::encode(bytes))
    }
}

/// Returns `count` error replies: nothing ran.
fn refused(why: &str, shard: &str, count: usize) -> Vec<u8> {
    let error = format!("-NOPERM the edge refused it: {why} of {shard}\r\n");
    error.repeat(count).into_bytes()
}
