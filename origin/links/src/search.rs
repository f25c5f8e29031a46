//! Finds links by what they say: page by page, those that were made last or clicked most first.
//!
//! SQL gives links in their order, and what is wanted is decided here, so that every database finds the same. A page looks at
//! [`SCAN_MAX`] links at most, however few of them are wanted: where it has ended the next one goes on.

use weir_link::code::{Code, DomainId, LinkId};

use super::store::{ClicksPlace, LinkCursor, LinkStore, StoredLink};
use weir_origin_core::access::Caller;
use weir_origin_core::sql::SqlError;

/// The most links that one page looks at.
pub const SCAN_MAX: usize = 5_000;

/// Links of one statement, if not all that it reads are wanted.
const CHUNK: usize = 500;

/// Which links.
#[derive(Clone, Debug, Default)]
pub struct LinkQuery {
    /// With this in their code, an address, a tag or the title of their preview; in any case of ASCII letters.
    pub text: Option<String>,
    /// With this tag.
    pub tag: Option<String>,
    /// Under this domain.
    pub domain: Option<String>,
    /// With this in one of their targets.
    pub target: Option<String>,
    /// Made at this time or later, in milliseconds since the Unix epoch.
    pub from_ms: u64,
    /// Made before this time; `None`: whenever.
    pub to_ms: Option<u64>,
    /// That may be seen by this key, which is only about some links.
    pub narrow_key: Option<Caller>,
}

/// How far a search has come, and in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// By age, behind this link; `None`: from the last one on.
    Age(Option<LinkCursor>),
    /// By clicks, behind this link; `None`: from the most clicked one on.
    Clicks(Option<ClicksPlace>),
    /// By clicks, behind all that were clicked: the others by age.
    Unclicked(Option<LinkCursor>),
}

/// A page.
#[derive(Clone, Debug)]
pub struct Page {
    /// What was found.
    pub links: Vec<StoredLink>,
    /// Where the next page begins; `None`: there is none.
    pub next: Option<Cursor>,
}

/// At most `limit` links that are wanted, behind `cursor`. There may be more although fewer were found.
///
/// # Errors
/// When SQL does not answer.
pub async fn search(
    store: &LinkStore,
    wanted: &LinkQuery,
    mut cursor: Cursor,
    limit: usize,
) -> Result<Page, SqlError> {
    let mut links: Vec<StoredLink> = Vec::new();
    // Behind the last link that was taken.
    let mut behind_last = cursor.clone();
    let mut looked_at = 0;
    while looked_at < SCAN_MAX {
        let chunk = cursor.chunk(wanted, limit);
        let rows = cursor.read(store, wanted, chunk).await?;
        let is_last = rows.len() < chunk;
        looked_at += rows.len();
        for row in rows {
            if row.created_at_ms < wanted.from_ms && !matches!(cursor, Cursor::Clicks(_)) {
                // All that follow are older.
                return Ok(Page { links, next: None });
            }
            cursor = cursor.behind(&row);
            if !cursor.passes(&row) || !wanted.is_met_by(&row) {
                continue;
            }
            if links.len() == limit {
                // One more tells that there is another page.
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
    /// Whether nothing is asked for, but perhaps a tag.
    fn is_plain(&self) -> bool {
        let texts = [&self.text, &self.domain, &self.target];
        texts.iter().all(|text| text.is_none())
            && (self.from_ms, self.to_ms) == (0, None)
            && self.narrow_key.is_none()
    }

    fn is_met_by(&self, link: &StoredLink) -> bool {
        let has_tag = |tag: &String| link.tags.contains(tag);
        let in_target = |part: &String| link.link.addresses().any(|one| contains(one, part));
        let is_in_time = link.created_at_ms >= self.from_ms
            && self.to_ms.is_none_or(|to_ms| link.created_at_ms < to_ms);
        let may_see =
            |key: &Caller| key.may_domain(link.id.domain.as_str()) && key.may_tags(&link.tags);
        is_in_time
            && self.narrow_key.as_ref().is_none_or(may_see)
            && self
                .domain
                .as_ref()
                .is_none_or(|id| link.id.domain.as_str() == id)
            && self.tag.as_ref().is_none_or(has_tag)
            && self.target.as_ref().is_none_or(in_target)
            && self
                .text
                .as_ref()
                .is_none_or(|text| contains_text(link, text))
    }
}

/// Whether a link has `text` somewhere that people read.
fn contains_text(link: &StoredLink, text: &str) -> bool {
    let title = link
        .link
        .preview
        .as_ref()
        .map(|preview| preview.title.as_str());
    let tags = link.tags.iter().map(String::as_str);
    let mut texts = link.link.addresses().chain(tags).chain(title);
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
    /// How many links one statement reads. If SQL alone finds what is wanted, one more than the page has.
    fn chunk(&self, wanted: &LinkQuery, limit: usize) -> usize {
        let is_found_by_sql = match self {
            Self::Age(_) => true,
            Self::Clicks(_) => wanted.tag.is_none(),
            Self::Unclicked(_) => false,
        };
        if is_found_by_sql && wanted.is_plain() {
            limit + 1
        } else {
            CHUNK
        }
    }

    async fn read(
        &self,
        store: &LinkStore,
        wanted: &LinkQuery,
        chunk: usize,
    ) -> Result<Vec<StoredLink>, SqlError> {
        let to_ms = wanted.to_ms.unwrap_or(u64::MAX);
        // A page ends where it has looked, and that must not be another's link.
        let domains = wanted.narrow_key.as_ref().and_then(Caller::domains);
        match self {
            Self::Age(after) | Self::Unclicked(after) => {
                let (tag, after) = (wanted.tag.as_deref(), after.as_ref());
                match domains {
                    Some(domains) => {
                        let list = store.list_within(&domains, tag, to_ms, after, chunk);
                        list.await
                    }
                    None => store.list_before(tag, to_ms, after, chunk).await,
                }
            }
            Self::Clicks(after) => {
                let (domains, after) = (domains.as_deref(), after.as_ref());
                store.list_by_clicks(domains, after, chunk).await
            }
        }
    }

    /// Behind this link, in the same order.
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

    /// Whether a link is of this part of the order: those that were clicked have been told before the others.
    fn passes(&self, link: &StoredLink) -> bool {
        !matches!(self, Self::Unclicked(_)) || link.clicks == 0
    }

    /// As the API has it: a number, the domain and the code of the last link. Neither has a dot.
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

    /// Reads what [`Cursor::write`] has written.
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

/// A number, and the link that is named behind it.
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
    fn a_cursor_is_read_as_it_was_written() {
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
