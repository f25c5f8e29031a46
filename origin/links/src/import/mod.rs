//! Imports links from a file: an export of Weir, or of another shortener.
//!
//! | module | does |
//! |---|---|
//! | [`format`](mod@format) | the columns of each export format |
//! | [`rows`] | parses a file into rows with line numbers |
//!
//! Links keep their codes. An import is repeatable: an existing link with the same target stays unchanged. An
//! interrupted import can therefore be run again.

pub mod format;
pub mod rows;

use serde::Serialize;
use utoipa::ToSchema;
use weir_link::code::{Code, LinkId};
use weir_link::domain::Domains;

use super::create::{CreateError, Creator};
use super::domains::SharedDomains;
use super::find::{FindError, Finder};
use super::numbers::Clock;
use super::quota::Quota;
use super::store::{LinkStore, StoredLink};
use crate::model::labels::TAGS_MAX;
use crate::model::request::{Draft, LinkRequest, Name};
use format::Format;
use rows::{Row, Rows};
use weir_origin_core::access::Caller;
use weir_origin_core::sql::SqlError;
use weir_origin_core::tenants::Tenant;

/// Options of an import.
#[derive(Clone, Debug)]
pub struct Order {
    /// Format of the file.
    pub format: Format,
    /// Domain for links of unknown hosts; `None`: the first domain.
    pub domain: Option<String>,
    /// Lifetime in days for links without one. `None`: permanent, or in Weir's own exports, the domain's default.
    pub life_days: Option<u32>,
    /// Tag added to every link.
    pub tag: Option<String>,
    /// The line of the file's first row, if the file is a part of a larger one.
    pub first_line: u64,
    /// Whether to only report what the import would do.
    pub is_dry_run: bool,
    /// The caller's tenant, whose quota applies.
    pub tenant: Option<Tenant>,
    /// The caller's key, if it is limited to some links.
    pub narrow_key: Option<Caller>,
}

/// A refused row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LinkImportError)]
pub struct RowError {
    /// The line of the file.
    pub line: u64,
    /// The code, if known.
    #[schema(required)]
    pub code: Option<String>,
    /// Error code: `invalid_row`, `link_ended`, `code_taken`, `forbidden`, or a code of link creation.
    pub error: &'static str,
    /// Reason, for people.
    pub detail: String,
}

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LinkImport)]
pub struct Report {
    /// Rows of the file.
    pub rows: u64,
    /// Links created; a Bitly row with a custom link counts as two.
    pub created: u64,
    /// Links that existed already with the same target.
    pub present: u64,
    /// Refused rows, in the order of the file.
    pub refused: Vec<RowError>,
    /// Ignored columns, such as clicks.
    pub ignored_columns: Vec<String>,
}

/// A link in a file.
#[derive(Clone, Debug)]
pub struct ImportedLink {
    /// The host of the short URL.
    pub host: Option<String>,
    /// The link to create. It has a code.
    pub request: LinkRequest,
    /// Whether it is disabled.
    pub is_disabled: bool,
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// A required column is missing.
    #[error("the first line has no column for {0}: check the format")]
    NoColumn(&'static str),
    /// The file is not text.
    #[error("the file is not UTF-8 or has no rows")]
    NoText,
}

/// Why an import stopped early. Links created before stay.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The whole file is refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// No further links can be created now.
    #[error(transparent)]
    Create(CreateError),
    /// The cold store failed.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// The lookup of an existing link failed.
    #[error(transparent)]
    Find(FindError),
}

/// Outcome of one link.
enum Outcome {
    Made,
    Present,
    Refused(&'static str, String),
}

/// Imports links. Cloning is cheap.
#[derive(Clone)]
pub struct Importer {
    pub(super) creator: Creator,
    pub(super) finder: Finder,
    pub(super) store: LinkStore,
    pub(super) domains: SharedDomains,
    pub(super) quota: Quota,
    pub(super) clock: Clock,
}

impl Importer {
    /// Imports the links in `file`.
    ///
    /// # Errors
    /// See [`ImportError`].
    pub async fn import(&self, order: &Order, file: &[u8]) -> Result<Report, ImportError> {
        let rows = Rows::read(order.format, file, order.first_line)?;
        let mut report = Report {
            ignored_columns: rows.ignored_columns(),
            ..Report::default()
        };
        for Row {
            line,
            links: imports,
        } in rows
        {
            report.rows += 1;
            let imports = match imports {
                Ok(imports) => imports,
                Err(flaw) => {
                    report.refused.push(flaw);
                    continue;
                }
            };
            for imported in imports {
                let code = imported.request.code.clone();
                match self.take_over(order, imported).await? {
                    Outcome::Made => report.created += 1,
                    Outcome::Present => report.present += 1,
                    Outcome::Refused(error, detail) => report.refused.push(RowError {
                        line,
                        code,
                        error,
                        detail,
                    }),
                }
            }
        }
        Ok(report)
    }

    async fn take_over(&self, order: &Order, link: ImportedLink) -> Result<Outcome, ImportError> {
        let existing = self.domains.get();
        let is_disabled = link.is_disabled;
        let request = order.completed(link, &existing.domains);
        let domain = request.domain.as_deref().unwrap_or_default();
        if !order.may_make(domain, &request.fields.tags) {
            let detail = "the key is restricted to other domains or tags".to_owned();
            return Ok(Outcome::Refused("forbidden", detail));
        }
        let now_ms = (self.clock)();
        let mut draft = match request.draft(&existing.domains, now_ms) {
            Ok(draft) => draft,
            Err(refused) => return Ok(Outcome::Refused(refused.word, refused.to_string())),
        };
        draft.link.is_disabled = is_disabled;
        let Name::Custom(code) = draft.name.clone() else {
            return Ok(Outcome::Refused("invalid_link", "it has no code".into()));
        };
        let id = LinkId {
            domain: draft.domain.id.clone(),
            code: code.clone(),
        };
        if let Some(found) = self.store.link(&id).await? {
            return Ok(order.meet(&draft, &found));
        }
        if order.is_dry_run {
            return Ok(Outcome::Made);
        }
        if let Some(tenant) = &order.tenant
            && let Some(over) = self.quota.take(tenant, 1).await?
        {
            return Ok(Outcome::Refused("tenant_limit", over.to_string()));
        }
        self.make(order, draft, code, &id, now_ms).await
    }

    async fn make(
        &self,
        order: &Order,
        draft: Draft<'_>,
        code: Code,
        id: &LinkId,
        now_ms: u64,
    ) -> Result<Outcome, ImportError> {
        let created = self
            .creator
            .make_imported(draft.clone(), code, now_ms)
            .await;
        match created {
            Ok(()) => Ok(Outcome::Made),
            Err(CreateError::Taken) => match self.finder.find(id).await {
                Ok(found) => Ok(order.meet(&draft, &found)),
                Err(FindError::Unknown | FindError::NotYet) => Ok(code_taken(
                    "its code is reserved: for generated codes of another origin, or after a recent deletion",
                )),
                Err(error) => Err(ImportError::Find(error)),
            },
            Err(error) => Err(ImportError::Create(error)),
        }
    }
}

impl Order {
    /// Completes a request with the options of the import.
    fn completed(&self, link: ImportedLink, domains: &Domains) -> LinkRequest {
        let mut request = link.request;
        let is_known = |id: &String| domains.by_id(id).is_some();
        let by_host = || domains.by_host(link.host.as_deref()?).map(|one| &one.id);
        let named = request.domain.take().filter(is_known);
        let named = named.or_else(|| by_host().map(ToString::to_string));
        let default = || domains.default_domain().id.to_string();
        let domain = named.or_else(|| self.domain.clone());
        request.domain = Some(domain.unwrap_or_else(default));
        if request.fields.life_ms.is_none() {
            request.life_days = match self.format.is_own() {
                true => self.life_days,
                // Links that were permanent elsewhere must not expire after a month.
                false => Some(self.life_days.unwrap_or(0)),
            };
        }
        let new = |tag: &&String| {
            !request.fields.tags.contains(*tag) && request.fields.tags.len() < TAGS_MAX
        };
        if let Some(tag) = self.tag.as_ref().filter(new) {
            request.fields.tags.push(tag.clone());
        }
        request
    }

    fn may_make(&self, domain: &str, tags: &[String]) -> bool {
        let may = |key: &Caller| key.may_domain(domain) && key.may_tags(tags);
        self.narrow_key.as_ref().is_none_or(may)
    }

    /// Compares an existing link that has this code. It counts as the same one if the target is equal and the caller
    /// may see it.
    fn meet(&self, draft: &Draft<'_>, found: &StoredLink) -> Outcome {
        let may_see = self.may_make(found.id.domain.as_str(), &found.labels.tags);
        match found.link.target == draft.link.target && may_see {
            true => Outcome::Present,
            false => code_taken("another link with this code has a different target"),
        }
    }
}

fn code_taken(detail: &str) -> Outcome {
    Outcome::Refused("code_taken", detail.to_owned())
}
