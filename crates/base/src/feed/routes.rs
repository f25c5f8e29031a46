//! Where feeds are. The origin answers there to those who show a [stamp](crate::stamp): the feed of links is a list of all that
//! a site has shortened, and no business of the public.

use alloc::format;
use alloc::string::String;

/// The link feed: `?after=<cursor>` for what comes behind a cursor (`weir_link::feed::Cursor`), nothing for the beginning.
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

/// Where the Worker takes commands to shards of sales that stand in its objects: `POST`, with a [stamp](crate::stamp).
pub const SHARD: &str = "/.weir/shard";

/// The path of commands to the shard whose keys begin with `shard`. The stamp covers it, and with the digest of the body, in hex,
/// what the commands are; `id` counts once.
pub fn shard_commands(shard: &str, id: &str, sha256: &str) -> String {
    // A key has no other character that means something in a query.
    let key = shard.replace('{', "%7B").replace('}', "%7D");
    format!("{SHARD}?key={key}&id={id}&sha256={sha256}")
}
