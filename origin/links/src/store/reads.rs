//! Reads links.

use std::sync::LazyLock;

use serde::Serialize;
use sqlx::Error;
use utoipa::ToSchema;
use weir_link::code::{Code, DomainId, LinkId};

use super::columns::{read_labels, read_record, select, stored};
use super::{Action, ClicksPlace, LinkCursor, LinkStore, StoredLink, StoredLinkVersion};
use crate::model::labels::FOLDER_PREFIX;
use weir_origin_core::sql::{MANY, Row, SqlError, Statement, damaged, filled, in_many_then, sql};

/// Maximum number of folders in a list.
const FOLDERS_MAX: usize = 500;

/// The first key after all folders.
const FOLDERS_END: char = '\u{1f}';

/// A folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LinkFolder)]
pub struct Folder {
    /// Its name.
    pub name: String,
    /// Number of links.
    pub links: u64,
}

/// Codes per statement.
const CODES: usize = 100;

static SELECT_ONE: LazyLock<String> = LazyLock::new(|| {
    select(
        "COALESCE(c.clicks, 0)",
        "
    FROM links l
        LEFT JOIN link_totals c ON c.domain = l.domain AND c.code = l.code
    WHERE l.domain = ? AND l.code = ? AND l.deleted_at_ms IS NULL",
    )
});

/// The first condition on the time helps the index, which cannot use `OR`.
static LIST: LazyLock<String> = LazyLock::new(|| {
    select(
        "COALESCE(c.clicks, 0)",
        "
    FROM links l
        LEFT JOIN link_totals c ON c.domain = l.domain AND c.code = l.code
    WHERE l.created_at_ms <= ?
        AND (l.created_at_ms < ? OR l.domain < ? OR (l.domain = ? AND l.code < ?))
        AND l.deleted_at_ms IS NULL
    ORDER BY l.created_at_ms DESC, l.domain DESC, l.code DESC LIMIT ?",
    )
});

static LIST_TAGGED: LazyLock<String> = LazyLock::new(|| {
    select(
        "COALESCE(c.clicks, 0)",
        "
    FROM link_tags t JOIN links l ON l.domain = t.domain AND l.code = t.code
        LEFT JOIN link_totals c ON c.domain = l.domain AND c.code = l.code
    WHERE t.tag = ? AND t.created_at_ms <= ?
        AND (t.created_at_ms < ? OR t.domain < ? OR (t.domain = ? AND t.code < ?))
        AND l.deleted_at_ms IS NULL
    ORDER BY t.created_at_ms DESC, t.domain DESC, t.code DESC LIMIT ?",
    )
});

/// Contains clicked links only.
static LIST_BY_CLICKS: LazyLock<String> = LazyLock::new(|| {
    select(
        "c.clicks",
        "
    FROM link_totals c JOIN links l ON l.domain = c.domain AND l.code = c.code
    WHERE c.clicks <= ?
        AND (c.clicks < ? OR c.domain < ? OR (c.domain = ? AND c.code < ?))
        AND l.deleted_at_ms IS NULL
    ORDER BY c.clicks DESC, c.domain DESC, c.code DESC LIMIT ?",
    )
});

/// The same within some domains. It uses the primary key, so a page costs only the links in these domains.
static LIST_WITHIN: LazyLock<String> = LazyLock::new(|| {
    select("COALESCE(c.clicks, 0)", in_many_then!(
    "
    FROM links l
        LEFT JOIN link_totals c ON c.domain = l.domain AND c.code = l.code
    WHERE (+l.created_at_ms < ? OR (+l.created_at_ms = ? AND (l.domain < ? OR (l.domain = ? AND l.code < ?))))
        AND l.deleted_at_ms IS NULL AND l.domain",
    " ORDER BY +l.created_at_ms DESC, l.domain DESC, l.code DESC LIMIT ?"
))
});

static LIST_TAGGED_WITHIN: LazyLock<String> = LazyLock::new(|| {
    select(
        "COALESCE(c.clicks, 0)",
        in_many_then!(
            "
    FROM link_tags t JOIN links l ON l.domain = t.domain AND l.code = t.code
        LEFT JOIN link_totals c ON c.domain = l.domain AND c.code = l.code
    WHERE t.tag = ? AND (t.created_at_ms < ?
        OR (t.created_at_ms = ? AND (t.domain < ? OR (t.domain = ? AND t.code < ?))))
        AND l.deleted_at_ms IS NULL AND t.domain",
            " ORDER BY t.created_at_ms DESC, t.domain DESC, t.code DESC LIMIT ?"
        ),
    )
});

static LIST_BY_CLICKS_WITHIN: LazyLock<String> = LazyLock::new(|| {
    select(
        "c.clicks",
        in_many_then!(
            "
    FROM link_totals c JOIN links l ON l.domain = c.domain AND l.code = c.code
    WHERE (+c.clicks < ? OR (+c.clicks = ? AND (c.domain < ? OR (c.domain = ? AND c.code < ?))))
        AND l.deleted_at_ms IS NULL AND c.domain",
            " ORDER BY +c.clicks DESC, c.domain DESC, c.code DESC LIMIT ?"
        ),
    )
});

const COUNT_WITHIN: &str = in_many_then!(
    "SELECT COUNT(*) AS n FROM (SELECT 1 AS one FROM links WHERE deleted_at_ms IS NULL AND domain",
    " LIMIT ?) AS some_links"
);

const FOLDERS: &str = "
    SELECT tag, COUNT(*) AS n FROM link_tags WHERE tag >= ? AND tag < ? GROUP BY tag ORDER BY tag LIMIT ?";

const FOLDERS_WITHIN: &str = in_many_then!(
    "SELECT tag, COUNT(*) AS n FROM link_tags WHERE tag >= ? AND tag < ? AND domain",
    " GROUP BY tag ORDER BY tag LIMIT ?"
);

const HISTORY: &str = "
    SELECT action, record, labels, at_ms FROM link_history
    WHERE domain = ? AND code = ? ORDER BY version";

const HAS_LINKS: &str = "
    SELECT 1 AS found FROM links WHERE domain = ? AND deleted_at_ms IS NULL LIMIT 1";

static HAS_ANY: LazyLock<String> = LazyLock::new(|| {
    let codes = vec!["?"; CODES].join(", ");
    format!("SELECT 1 AS found FROM links WHERE domain = ? AND code IN ({codes}) LIMIT 1")
});

impl LinkStore {
    /// Reads a link that is not deleted; it may have ended.
    pub async fn link(&self, id: &LinkId) -> Result<Option<StoredLink>, SqlError> {
        let select = sql(&SELECT_ONE).text(id.domain.as_str());
        let row = self.db.one(select.text(id.code.as_str())).await?;
        Ok(row.as_ref().map(stored).transpose()?)
    }

    /// At most `limit` links that are not deleted, newest first: with this label's [key](crate::model::labels::LabelFilter::key), and after
    /// `after`.
    pub async fn list(
        &self,
        key: Option<&str>,
        after: Option<&LinkCursor>,
        limit: usize,
    ) -> Result<Vec<StoredLink>, SqlError> {
        self.list_before(key, u64::MAX, after, limit).await
    }

    /// Like [`list`](Self::list), for links created before `before_ms`.
    pub async fn list_before(
        &self,
        key: Option<&str>,
        before_ms: u64,
        after: Option<&LinkCursor>,
        limit: usize,
    ) -> Result<Vec<StoredLink>, SqlError> {
        let (before_ms, domain, code) = begin(before_ms, after);
        let select = match key {
            Some(key) => sql(&LIST_TAGGED).text(key),
            None => sql(&LIST),
        };
        let select = select.number(before_ms).number(before_ms);
        let select = select.text(domain).text(domain).text(code).number(limit);
        self.listed(select).await
    }

    /// Like [`list_before`](Self::list_before), within these domains, at most as many as fit into a statement.
    pub async fn list_within(
        &self,
        domains: &[&str],
        key: Option<&str>,
        before_ms: u64,
        after: Option<&LinkCursor>,
        limit: usize,
    ) -> Result<Vec<StoredLink>, SqlError> {
        if domains.is_empty() {
            return Ok(Vec::new());
        }
        let (before_ms, domain, code) = begin(before_ms, after);
        let select = match key {
            Some(key) => sql(&LIST_TAGGED_WITHIN).text(key),
            None => sql(&LIST_WITHIN),
        };
        let select = select.number(before_ms).number(before_ms);
        let select = select.text(domain).text(domain).text(code);
        self.listed(within(select, domains).number(limit)).await
    }

    /// At most `limit` clicked links that are not deleted, most clicked first, after `after`. If `domains` are given,
    /// only links in these domains, at most as many as fit into a statement.
    pub async fn list_by_clicks(
        &self,
        domains: Option<&[&str]>,
        after: Option<&ClicksPlace>,
        limit: usize,
    ) -> Result<Vec<StoredLink>, SqlError> {
        let clicks = after.map_or(u64::MAX, |place| place.clicks);
        let (domain, code) = after.map_or(("", ""), |place| {
            (place.id.domain.as_str(), place.id.code.as_str())
        });
        let statement: &LazyLock<String> = match domains {
            Some([]) => return Ok(Vec::new()),
            Some(_) => &LIST_BY_CLICKS_WITHIN,
            None => &LIST_BY_CLICKS,
        };
        let select = sql(statement).number(clicks).number(clicks);
        let select = select.text(domain).text(domain).text(code);
        let select = within(select, domains.unwrap_or_default());
        self.listed(select.number(limit)).await
    }

    async fn listed(&self, select: Statement<'_>) -> Result<Vec<StoredLink>, SqlError> {
        let rows = self.db.all(select).await?;
        Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
    }

    /// Number of links in these domains that are not deleted; any number above `max` means more. The domains must fit
    /// into one statement.
    pub async fn count_within(&self, domains: &[&str], max: u64) -> Result<u64, SqlError> {
        if domains.is_empty() {
            return Ok(0);
        }
        let count = within(sql(COUNT_WITHIN), domains).number(max.saturating_add(1));
        let row = self.db.one(count).await?;
        Ok(row.map_or(Ok(0), |row| row.number("n"))?)
    }

    /// The folders with links, by name: all, or those in these domains, at most as many as fit into a statement.
    pub async fn folders(&self, domains: Option<&[String]>) -> Result<Vec<Folder>, SqlError> {
        let names: Vec<&str> = domains.into_iter().flatten().map(String::as_str).collect();
        let statement = match domains {
            Some([]) => return Ok(Vec::new()),
            Some(_) => FOLDERS_WITHIN,
            None => FOLDERS,
        };
        let (first, end) = (FOLDER_PREFIX.to_string(), FOLDERS_END.to_string());
        let select = within(sql(statement).text(&first).text(&end), &names);
        let rows = self.db.all(select.number(FOLDERS_MAX)).await?;
        let folder = |row: &Row| {
            let key = row.text("tag")?;
            Ok(Folder {
                name: key.trim_start_matches(FOLDER_PREFIX).to_owned(),
                links: row.number("n")?,
            })
        };
        rows.iter().map(folder).collect()
    }

    /// The history of a link, oldest first. Empty if it was never edited.
    pub async fn history(&self, id: &LinkId) -> Result<Vec<StoredLinkVersion>, SqlError> {
        let select = sql(HISTORY).text(id.domain.as_str()).text(id.code.as_str());
        Ok(self
            .db
            .all(select)
            .await?
            .iter()
            .map(link_version)
            .collect::<Result<_, _>>()?)
    }

    /// Whether the store has a link in this domain that is not deleted.
    pub async fn has_links(&self, domain: &DomainId) -> Result<bool, SqlError> {
        let select = sql(HAS_LINKS).text(domain.as_str());
        Ok(self.db.one(select).await?.is_some())
    }

    /// Whether the store has a link with one of these codes in this domain, including ended ones.
    pub async fn has_any(&self, domain: &DomainId, codes: &[Code]) -> Result<bool, SqlError> {
        for chunk in codes.chunks(CODES) {
            // Repeat the last code to fill a short chunk.
            let last = chunk.last().into_iter().cycle();
            let all = chunk.iter().chain(last).take(CODES);
            let select = sql(&HAS_ANY).text(domain.as_str());
            let select = all.fold(select, |select, code| select.text(code.as_str()));
            if self.db.one(select).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Where a list begins: after a time, a domain and a code.
fn begin(before_ms: u64, after: Option<&LinkCursor>) -> (u64, &str, &str) {
    after.map_or((before_ms, "", ""), |place| {
        let before_ms = place.created_at_ms.min(before_ms);
        (before_ms, place.id.domain.as_str(), place.id.code.as_str())
    })
}

/// Adds these domains to the statement, if there are any.
fn within<'a>(select: Statement<'a>, domains: &[&'a str]) -> Statement<'a> {
    let some = domains.get(..MANY).unwrap_or(domains);
    match some {
        [] => select,
        some => filled(some).fold(select, Statement::text),
    }
}

/// The id of a row's link.
pub(super) fn id(row: &Row) -> Result<LinkId, Error> {
    let domain = DomainId::new(row.text("domain")?).map_err(|error| damaged("domain", error))?;
    let code = Code::new(row.text("code")?).map_err(|error| damaged("code", error))?;
    Ok(LinkId { domain, code })
}

fn link_version(row: &Row) -> Result<StoredLinkVersion, Error> {
    let word = row.text("action")?;
    let mut actions = Action::ALL.into_iter();
    let action = actions.find(|action| action.label() == word);
    Ok(StoredLinkVersion {
        action: action.ok_or_else(|| damaged("action", "is unknown"))?,
        link: read_record(&row.text("record")?)?,
        labels: read_labels(&row.text("labels")?)?,
        at_ms: row.number("at_ms")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_origin_core::sql::plan::plan;

    /// Links in other domains cost nothing, and cannot slow down a caller without access to them.
    #[tokio::test]
    async fn page_limited_to_domains_searches_only_their_links() {
        for (statement, step) in [
            (LIST_WITHIN.as_str(), "SEARCH l USING PRIMARY KEY (domain=?"),
            (
                LIST_BY_CLICKS_WITHIN.as_str(),
                "SEARCH c USING PRIMARY KEY (domain=?",
            ),
            (COUNT_WITHIN, "SEARCH links USING PRIMARY KEY (domain=?"),
        ] {
            let steps = plan(&[crate::MIGRATIONS], statement).await;
            assert!(steps.iter().any(|one| one.starts_with(step)), "{steps:?}");
        }
    }
}
