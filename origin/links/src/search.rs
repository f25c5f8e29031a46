//! Searches links, page by page, newest or most clicked first.
//!
//! SQL returns links in order and this module filters them, so all databases give the same result. A page examines at
//! most [`SCAN_MAX`] links, however few match. The next page continues there.

use weir_link::code::{Code, DomainId, LinkId};

use super::model::labels::LabelFilter;
use super::store::{ClicksPlace, LinkCursor, LinkStore, StoredLink};
use weir_origin_core::access::Caller;
use weir_origin_core::sql::SqlError;

/// Maximum number of links that a page examines.
pub const SCAN_MAX: usize = 5_000;

/// Links per statement, if not all that it reads may match.
const CHUNK: usize = 500;

/// Selects links.
#[derive(Clone, Debug, Default)]
pub struct LinkQuery {
    /// Text in the code, a URL, a label or the preview title; ASCII letters match in any case.
    pub text: Option<String>,
    /// Labels. SQL uses the first one.
    pub labels: Vec<LabelFilter>,
    /// A domain.
    pub domain: Option<String>,
    /// Text in one of the targets.
    pub target: Option<String>,
    /// Created at or after this time, in milliseconds since the Unix epoch.
    pub from_ms: u64,
    /// Created before this time; `None`: no limit.
    pub to_ms: Option<u64>,
    /// A key that is limited to some links: only links that it may see.
    pub narrow_key: Option<Caller>,
}

/// Position and order of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// By age, after this link; `None`: from the newest.
    Age(Option<LinkCursor>),
    /// By clicks, after this link; `None`: from the most clicked.
    Clicks(Option<ClicksPlace>),
    /// Ordered by clicks, after all clicked links: the unclicked ones by age.
    Unclicked(Option<LinkCursor>),
}

/// A page.
#[derive(Clone, Debug)]
pub struct Page {
    /// The links found.
    pub links: Vec<StoredLink>,
    /// Start of the next page; `None`: this is the last page.
    pub next: Option<Cursor>,
}

/// Finds at most `limit` links after `cursor`. More pages may follow even if fewer were found.
///
/// # Errors
/// If a SQL call fails.
pub async fn search(
    store: &LinkStore,
    query: &LinkQuery,
    mut cursor: Cursor,
    limit: usize,
) -> Result<Page, SqlError> {
    let mut links: Vec<StoredLink> = Vec::new();
    // The position after the last link taken.
    let mut behind_last = cursor.clone();
    let mut looked_at = 0;
    while looked_at < SCAN_MAX {
        let chunk = cursor.chunk(query, limit);
        let rows = cursor.read(store, query, chunk).await?;
        let is_last = rows.len() < chunk;
        looked_at += rows.len();
        for row in rows {
            if row.created_at_ms < query.from_ms && !matches!(cursor, Cursor::Clicks(_)) {
                // All following links are older.
                return Ok(Page { links, next: None });
            }
            cursor = cursor.behind(&row);
            if !cursor.passes(&row) || !query.is_met_by(&row) {
                continue;
            }
            if links.len() == limit {
                // One more match shows that there is another page.
                let next = Some(behind_last);
                return Ok(Page { links, next });
            }
            behind_last = cursor.clone();
            links.push(row);
        }
        if is_last {
            match cursor {
                Cursor::Clicks(_) => cursor = Cursor::Unclicked(None),
                _ => return Ok(Page { links, next: None }),
            }
        }
    }
    let next = Some(cursor);
    Ok(Page { links, next })
}

impl LinkQuery {
    /// Whether nothing is filtered, except perhaps by one label.
    fn is_plain(&self) -> bool {
        let texts = [&self.text, &self.domain, &self.target];
        texts.iter().all(|text| text.is_none())
            && (self.from_ms, self.to_ms) == (0, None)
            && self.narrow_key.is_none()
            && self.labels.len() <= 1
    }

    fn is_met_by(&self, link: &StoredLink) -> bool {
        let in_target = |part: &String| link.link.addresses().any(|one| contains(one, part));
        let is_in_time = link.created_at_ms >= self.from_ms
            && self.to_ms.is_none_or(|to_ms| link.created_at_ms < to_ms);
        let may_see = |key: &Caller| {
            key.may_domain(link.id.domain.as_str()) && key.may_tags(&link.labels.tags)
        };
        is_in_time
            && self.narrow_key.as_ref().is_none_or(may_see)
            && self
                .domain
                .as_ref()
                .is_none_or(|id| link.id.domain.as_str() == id)
            && self
                .labels
                .iter()
                .all(|label| label.is_met_by(&link.labels))
            && self.target.as_ref().is_none_or(in_target)
            && self
                .text
                .as_ref()
                .is_none_or(|text| contains_text(link, text))
    }
}

/// Whether a link contains `text` in a visible field.
fn contains_text(link: &StoredLink, text: &str) -> bool {
    let title = link
        .link
        .preview
        .as_ref()
        .map(|preview| preview.title.as_str());
    let mut texts = link
        .link
        .addresses()
        .chain(link.labels.texts())
        .chain(title);
    contains(link.id.code.as_str(), text) || texts.any(|one| contains(one, text))
}

fn contains(text: &str, part: &str) -> bool {
    part.is_empty()
        || text
            .as_bytes()
            .windows(part.len())
            .any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}

impl Cursor {
    /// Number of links per statement. If SQL alone can filter, one more than the page has.
    fn chunk(&self, query: &LinkQuery, limit: usize) -> usize {
        let is_found_by_sql = match self {
            Self::Age(_) => true,
            Self::Clicks(_) => query.labels.is_empty(),
            Self::Unclicked(_) => false,
        };
        if is_found_by_sql && query.is_plain() {
            limit + 1
        } else {
            CHUNK
        }
    }

    async fn read(
        &self,
        store: &LinkStore,
        query: &LinkQuery,
        chunk: usize,
    ) -> Result<Vec<StoredLink>, SqlError> {
        let to_ms = query.to_ms.unwrap_or(u64::MAX);
        // A page's cursor must not name a link outside the key's scope.
        let domains = query.narrow_key.as_ref().and_then(Caller::domains);
        match self {
            Self::Age(after) | Self::Unclicked(after) => {
                let key = query.labels.first().map(LabelFilter::key);
                let (key, after) = (key.as_deref(), after.as_ref());
                match domains {
                    Some(domains) => {
                        let list = store.list_within(&domains, key, to_ms, after, chunk);
                        list.await
                    }
                    None => store.list_before(key, to_ms, after, chunk).await,
                }
            }
            Self::Clicks(after) => {
                let (domains, after) = (domains.as_deref(), after.as_ref());
                store.list_by_clicks(domains, after, chunk).await
            }
        }
    }

    /// The position after this link, in the same order.
    fn behind(&self, link: &StoredLink) -> Self {
        let (id, created_at_ms) = (link.id.clone(), link.created_at_ms);
        match self {
            Self::Age(_) => Self::Age(Some(LinkCursor { created_at_ms, id })),
            Self::Unclicked(_) => Self::Unclicked(Some(LinkCursor { created_at_ms, id })),
            Self::Clicks(_) => Self::Clicks(Some(ClicksPlace {
                clicks: link.clicks,
                id,
            })),
        }
    }

    /// Whether a link belongs to this part of the order: clicked links come before the others.
    fn passes(&self, link: &StoredLink) -> bool {
        !matches!(self, Self::Unclicked(_)) || link.clicks == 0
    }

    /// The cursor in the API's format: a number, and the domain and code of the last link. Neither contains a dot.
    pub fn write(&self) -> String {
        let by = |kind: &str, number: u64, id: &LinkId| {
            format!("{kind}{number}.{}.{}", id.domain, id.code)
        };
        match self {
            Self::Age(Some(place)) => by("", place.created_at_ms, &place.id),
            Self::Clicks(Some(place)) => by("c", place.clicks, &place.id),
            Self::Unclicked(Some(place)) => by("u", place.created_at_ms, &place.id),
            Self::Age(None) => String::new(),
            Self::Clicks(None) => "c".into(),
            Self::Unclicked(None) => "u".into(),
        }
    }

    /// Parses the output of [`Cursor::write`].
    pub fn read_text(text: &str) -> Option<Self> {
        let (kind, rest) = match text.strip_prefix('c') {
            Some(rest) => ('c', rest),
            None => text
                .strip_prefix('u')
                .map_or((' ', text), |rest| ('u', rest)),
        };
        let place = if rest.is_empty() {
            None
        } else {
            Some(named(rest)?)
        };
        Some(match kind {
            'c' => Self::Clicks(place.map(|(clicks, id)| ClicksPlace { clicks, id })),
            'u' => {
                Self::Unclicked(place.map(|(created_at_ms, id)| LinkCursor { created_at_ms, id }))
            }
            _ => Self::Age(place.map(|(created_at_ms, id)| LinkCursor { created_at_ms, id })),
        })
    }
}

/// Parses a number followed by a link.
fn named(text: &str) -> Option<(u64, LinkId)> {
    let (number, name) = text.split_once('.')?;
    let (domain, code) = name.split_once('.')?;
    let domain = DomainId::new(domain).ok()?;
    let code = Code::new(code).ok()?;
    Some((number.parse().ok()?, LinkId { domain, code }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_round_trips() {
        for text in ["", "c", "u", "7.s.abc", "c7.s.abc", "u7.s.a-b_c"] {
            assert_eq!(Cursor::read_text(text).unwrap().write(), text);
        }
        for broken in [
            "7", "7.s", "x7.s.abc", "c7.s", "cu", "7.S!.abc", "-1.s.abc", "7.s.a b",
        ] {
            assert_eq!(Cursor::read_text(broken), None, "{broken}");
        }
    }
}
