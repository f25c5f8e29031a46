//! Paths of the feeds. The origin answers only requests with a [stamp](crate::stamp), because the link feed lists every
//! link of a site and is not public.

use alloc::format;
use alloc::string::String;

/// The link feed. `?after=<cursor>` continues at a cursor (`weir_link::feed::Cursor`); without it, the feed starts at
/// the beginning.
pub const LINKS: &str = "/edge/v1/feed/links";

/// The domains of links.
pub const DOMAINS: &str = "/edge/v1/feed/domains";

/// The sold-out feed.
pub const SOLD_OUT: &str = "/edge/v1/feed/sold-out";

/// The `content-type` of a feed.
pub const CONTENT_TYPE: &str = "application/vnd.weir.feed";

/// The path of the page of links that follows `cursor`.
pub fn links_after(cursor: Option<&str>) -> String {
    match cursor {
        Some(cursor) => format!("{LINKS}?after={cursor}"),
        None => LINKS.into(),
    }
}

/// The Worker's path for commands to shards of sales in Durable Objects: `POST`, with a [stamp](crate::stamp).
pub const SHARD: &str = "/.weir/shard";

/// The path for commands to the shard with the key prefix `shard`. The stamp covers the path and, by the body's digest
/// in hex, the commands. The Worker accepts each `id` once.
pub fn shard_commands(shard: &str, id: &str, sha256: &str) -> String {
    // Keys contain no other character with a meaning in a query.
    let key = shard.replace('{', "%7B").replace('}', "%7D");
    format!("{SHARD}?key={key}&id={id}&sha256={sha256}")
}
