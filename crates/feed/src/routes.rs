//! Where feeds are. The origin answers there to those who show a [stamp](crate::stamp): the feed of links is a list of all that
//! a site has shortened, and no business of the public.

use alloc::format;
use alloc::string::String;

/// The link feed: `?after=<cursor>` for what comes behind a [cursor](crate::links::Cursor), nothing for the beginning.
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
