//! The columns of each export format.
//!
//! Column names are compared case-insensitively by their ASCII letters and digits: `Long URL`, `long_url` and `longUrl`
//! are equal.

use clap::ValueEnum;
use serde::Deserialize;

/// Format of an export file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LinkFileFormat)]
pub enum Format {
    /// CSV from Weir: `GET /links.csv`
    Csv,
    /// NDJSON from Weir: `GET /links.ndjson`
    Ndjson,
    /// CSV from Bitly's "Export"
    Bitly,
    /// CSV from Shlink's web client, or for its `short-url:import`
    Shlink,
    /// CSV from Dub's "Export links"
    Dub,
    /// The YOURLS table `yourls_url`, or CSV of the plugin Import Export
    Yourls,
}

/// Alternative names of each column; the first existing one is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    /// The target URL.
    pub target: &'static [&'static str],
    /// The short URL or its path.
    pub short: &'static [&'static str],
    /// Its code alone.
    pub code: &'static [&'static str],
    /// An additional short URL with the same target.
    pub custom: &'static [&'static str],
    /// The host of the short URL.
    pub host: &'static [&'static str],
    /// Tags, with separators between them.
    pub tags: &'static [&'static str],
    /// A title or comment for the team.
    pub title: &'static [&'static str],
    /// A longer comment.
    pub note: &'static [&'static str],
    /// The folder.
    pub folder: &'static [&'static str],
    /// The id in another system.
    pub external_id: &'static [&'static str],
    /// The expiry time.
    pub ends: &'static [&'static str],
}

const BITLY: Columns = Columns {
    target: &["destinationurl", "longurl", "originalurl"],
    short: &["link", "bitlink", "shortlink", "shorturl"],
    code: &[],
    custom: &["customlink", "custombitlink", "custombitlinks"],
    host: &[],
    tags: &["tags"],
    title: &["title"],
    note: &["note", "notes"],
    folder: &["campaign", "campaigns"],
    external_id: &[],
    ends: &["expirationat", "expirationdate"],
};

const SHLINK: Columns = Columns {
    target: &["longurl"],
    short: &["shorturl"],
    code: &["shortcode"],
    custom: &[],
    host: &["domain"],
    tags: &["tags"],
    title: &["title"],
    note: &[],
    folder: &[],
    external_id: &[],
    ends: &["validuntil"],
};

const DUB: Columns = Columns {
    target: &["destinationurl", "url"],
    short: &["shortlink", "link"],
    code: &["key"],
    custom: &[],
    host: &["domain"],
    tags: &["tags"],
    title: &["title"],
    note: &["comments"],
    folder: &["folder", "foldername"],
    external_id: &["externalid"],
    ends: &["expiresat"],
};

const YOURLS: Columns = Columns {
    target: &["url", "target"],
    short: &["source", "shorturl"],
    code: &["keyword"],
    custom: &[],
    host: &[],
    tags: &[],
    title: &["title"],
    note: &[],
    folder: &[],
    external_id: &[],
    ends: &[],
};

impl Format {
    /// Whether it is an export of Weir.
    pub const fn is_own(self) -> bool {
        self.columns().is_none()
    }

    /// Its label in the API and on the command line.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
            Self::Bitly => "bitly",
            Self::Shlink => "shlink",
            Self::Dub => "dub",
            Self::Yourls => "yourls",
        }
    }

    /// The columns of another shortener's export; `None` for Weir's formats.
    pub(super) const fn columns(self) -> Option<Columns> {
        match self {
            Self::Csv | Self::Ndjson => None,
            Self::Bitly => Some(BITLY),
            Self::Shlink => Some(SHLINK),
            Self::Dub => Some(DUB),
            Self::Yourls => Some(YOURLS),
        }
    }
}

/// Normalizes a column name for comparison.
pub(super) fn plain(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Splits a short link into host and code: `https://s.example/abc`, `s.example/abc`, `/abc/` or `abc`.
pub(super) fn split(short: &str) -> (Option<&str>, &str) {
    let rest = short.split_once("://").map_or(short, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    match rest.split_once('/') {
        Some((host, path)) => {
            let host = Some(host).filter(|host| !host.is_empty());
            (host, path.trim_matches('/'))
        }
        None => (None, rest),
    }
}

/// Splits the tags in a cell: a JSON list, or texts separated by `|`, `;` or `,`.
pub(super) fn tags(cell: &str) -> Vec<String> {
    let cell = cell.trim();
    if let Ok(tags) = serde_json::from_str(cell) {
        return tags;
    }
    let separators: &[char] = match cell.contains('|') {
        // Shlink tags may contain any other character.
        true => &['|'],
        false => &[',', ';'],
    };
    let mut tags: Vec<String> = Vec::new();
    for tag in cell.split(separators).map(str::trim) {
        if !tag.is_empty() && !tags.iter().any(|existing| existing == tag) {
            tags.push(tag.to_owned());
        }
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_link_has_a_host_and_a_code() {
        let cases = [
            ("https://s.example/abc", Some("s.example"), "abc"),
            ("http://s.example:8080/a-b/", Some("s.example:8080"), "a-b"),
            ("bit.ly/3xYz1aB", Some("bit.ly"), "3xYz1aB"),
            ("https://s.example/a/b?x=1#y", Some("s.example"), "a/b"),
            ("/kw/", None, "kw"),
            ("kw", None, "kw"),
            ("", None, ""),
        ];
        for (short, host, code) in cases {
            assert_eq!(split(short), (host, code), "{short}");
        }
    }

    #[test]
    fn tags_are_parsed_in_each_export_format() {
        assert_eq!(tags(r#"["a, b","c"]"#), ["a, b", "c"]);
        assert_eq!(tags("blog|to, do"), ["blog", "to, do"]);
        assert_eq!(tags("a, b;a,,"), ["a", "b"]);
        assert!(tags("").is_empty());
        assert!(tags("[]").is_empty());
    }

    #[test]
    fn column_names_are_normalized() {
        for name in ["Long URL", "long_url", "longUrl", "\"LONG-URL\""] {
            assert_eq!(plain(name), "longurl");
        }
    }
}
