//! Creates links.
//!
//! A link with a generated code is written to Redis (with NX) and to the log in parallel. It is acknowledged when both
//! have it, without a SQL call; the cold store gets it later. A custom code is rare and may collide, so it is inserted
//! into the cold store first, where the primary key decides.

use tokio::join;
use tracing::{error, warn};
use weir_link::code::{Code, Length, LinkId};

use super::domains::SharedDomains;
use super::log::{AppendError, LinkLog};
use super::metrics::LinkMetrics;
use super::numbers::{Allocator, Clock, NoNumber};
use super::password::{Busy, Passwords};
use super::records::{LinkRecords, Record};
use super::store::{Entry, LinkStore, NewLink, StoredLink, ends_at};
use crate::model::request::{Draft, LinkFieldError, LinkRequest, Name};
use crate::model::view::LinkView;
use crate::state::LinkStatus;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;

/// Maximum number of codes to try. The first one should always succeed: generated codes are unique.
const ATTEMPTS: usize = 4;

/// Why a link cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The request is invalid.
    #[error(transparent)]
    Refused(#[from] LinkFieldError),
    /// The custom code is taken, or its number is reserved for generated codes.
    #[error("the code is taken")]
    Taken,
    /// Its password cannot be hashed now. Nothing was done.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// No numbers are available. Nothing was done.
    #[error(transparent)]
    NoNumber(#[from] NoNumber),
    /// The log did not accept it. Redis may have it, but it was not acknowledged.
    #[error(transparent)]
    Log(#[from] AppendError),
    /// The Redis write failed, or its result is unknown.
    #[error(transparent)]
    Redis(#[from] CallError),
    /// The cold store write failed, or its result is unknown.
    #[error(transparent)]
    Store(#[from] SqlError),
}

/// A link to be written.
#[derive(Clone, Debug)]
struct PreparedLink<'a> {
    draft: Draft<'a>,
    new: NewLink,
    /// The record that gateways receive.
    record: String,
}

impl<'a> PreparedLink<'a> {
    fn new(draft: Draft<'a>, code: Code, now_ms: u64) -> Self {
        let domain = draft.domain.id.clone();
        let link = &draft.link;
        let new = NewLink {
            id: LinkId { domain, code },
            // JSON is UTF-8.
            record: String::from_utf8(link.encode()).unwrap_or_default(),
            labels: draft.labels.clone(),
            life_ms: link.life_ms,
            ends_at_ms: link.expires_at_ms,
            created_at_ms: now_ms,
        };
        let message = String::from_utf8(link.for_gateways()).unwrap_or_default();
        Self {
            draft,
            new,
            record: message,
        }
    }

    fn ends_at_ms(&self) -> Option<u64> {
        let new = &self.new;
        ends_at(new.life_ms, new.ends_at_ms, new.created_at_ms)
    }

    fn record(&self) -> Record<'_> {
        let now_ms = self.new.created_at_ms;
        let remaining = |end_ms: u64| end_ms.saturating_sub(now_ms);
        Record {
            id: &self.new.id,
            record: &self.record,
            life_ms: self.ends_at_ms().map(remaining),
        }
    }

    fn view(self) -> LinkView {
        let expires_at_ms = self.ends_at_ms();
        let Draft {
            domain,
            link,
            labels,
            ..
        } = self.draft;
        let stored = StoredLink {
            id: self.new.id,
            link,
            labels,
            clicks: 0,
            created_at_ms: self.new.created_at_ms,
            changed_at_ms: self.new.created_at_ms,
            expires_at_ms,
        };
        let status = LinkStatus::new(&stored.link);
        LinkView::new(stored, Some(domain), status)
    }
}

/// Creates links. Cloning is cheap.
#[derive(Clone)]
pub struct Creator {
    pub(super) store: LinkStore,
    pub(super) records: LinkRecords,
    pub(super) passwords: Passwords,
    pub(super) log: LinkLog,
    pub(super) allocator: Allocator,
    pub(super) domains: SharedDomains,
    pub(super) metrics: LinkMetrics,
    pub(super) clock: Clock,
}

impl Creator {
    /// Creates a link.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub async fn create(&self, request: LinkRequest) -> Result<LinkView, CreateError> {
        let now_ms = (self.clock)();
        let existing = self.domains.get();
        let mut draft = request.draft(&existing.domains, now_ms)?;
        self.guard(&mut draft).await?;
        self.make(draft, now_ms).await
    }

    /// Hashes the requested password, if any.
    async fn guard(&self, draft: &mut Draft<'_>) -> Result<(), CreateError> {
        if let Some(password) = draft.password.take() {
            draft.link.guard = Some(self.passwords.guard(password).await?);
        }
        Ok(())
    }

    async fn make(&self, draft: Draft<'_>, now_ms: u64) -> Result<LinkView, CreateError> {
        match draft.name.clone() {
            Name::Generated(length) => self.make_generated(draft, length, now_ms).await,
            Name::Custom(code) => {
                self.make_custom(PreparedLink::new(draft, code, now_ms))
                    .await
            }
        }
    }

    async fn make_generated(
        &self,
        draft: Draft<'_>,
        length: Length,
        now_ms: u64,
    ) -> Result<LinkView, CreateError> {
        for _ in 0..ATTEMPTS {
            let code = self.allocator.next(length).await?;
            let code = draft.domain.codes.generated(code);
            let ready = PreparedLink::new(draft.clone(), code, now_ms);
            if let Some(link) = self.write(ready).await? {
                return Ok(link);
            }
        }
        Err(NoNumber.into())
    }

    /// Writes a link whose number belongs to this origin. `None`: another link has its code.
    async fn write(&self, ready: PreparedLink<'_>) -> Result<Option<LinkView>, CreateError> {
        let entry = Entry::Made(ready.new.clone());
        let (logged, written) = join!(
            self.log.append(std::iter::once(&entry)),
            self.records.create(ready.record())
        );
        logged?;
        if written? {
            self.metrics.created.inc();
            return Ok(Some(ready.view()));
        }
        self.leave(&[ready.new]).await?;
        Ok(None)
    }

    /// Creates a link with a code that was generated elsewhere, such as in another Weir installation. If this origin
    /// holds its number, the number is claimed, so that no other link gets it.
    #[cfg(feature = "imports")]
    pub(super) async fn make_imported(
        &self,
        draft: Draft<'_>,
        code: Code,
        now_ms: u64,
    ) -> Result<(), CreateError> {
        let custom = PreparedLink::new(draft.clone(), code.clone(), now_ms);
        match self.make_custom(custom).await {
            Err(CreateError::Taken) if self.allocator.claim(draft.domain.codes, &code) => {}
            created => return created.map(drop),
        }
        let created = self.write(PreparedLink::new(draft, code, now_ms)).await?;
        created.map(drop).ok_or(CreateError::Taken)
    }

    /// Voids log entries whose codes belong to other links.
    async fn leave(&self, links: &[NewLink]) -> Result<(), CreateError> {
        self.metrics.collisions.inc_by(links.len() as u64);
        error!(link = ?links.first().map(|link| &link.id), "a generated code is already taken");
        let voids: Vec<Entry> = links.iter().cloned().map(Entry::Void).collect();
        self.log.append(&voids).await?;
        Ok(())
    }

    /// Creates many links. Those with generated codes share one log write and one Redis pipeline. Answers have the
    /// order of the requests.
    pub async fn create_all(
        &self,
        requests: Vec<LinkRequest>,
    ) -> Vec<Result<LinkView, CreateError>> {
        let now_ms = (self.clock)();
        let existing = self.domains.get();
        let mut answers = Vec::with_capacity(requests.len());
        let mut generated = Vec::new();
        for (n, request) in requests.into_iter().enumerate() {
            let answer = match request.draft(&existing.domains, now_ms) {
                Ok(mut draft) => match self.guard(&mut draft).await {
                    Ok(()) => self.begin(n, draft, now_ms, &mut generated).await,
                    Err(error) => Some(Err(error)),
                },
                Err(refused) => Some(Err(refused.into())),
            };
            answers.push(answer);
        }
        for (n, answer) in self.make_all(generated).await {
            if let Some(to) = answers.get_mut(n) {
                *to = Some(answer);
            }
        }
        // Every request is either answered immediately or gets a generated code.
        let unanswered = || Err(CreateError::NoNumber(NoNumber));
        let answer = |answer: Option<_>| answer.unwrap_or_else(unanswered);
        answers.into_iter().map(answer).collect()
    }

    /// Answers a link with a custom code. A link with a generated code joins the common write.
    async fn begin<'a>(
        &self,
        n: usize,
        draft: Draft<'a>,
        now_ms: u64,
        generated: &mut Vec<(usize, PreparedLink<'a>)>,
    ) -> Option<Result<LinkView, CreateError>> {
        let Name::Generated(length) = draft.name else {
            return Some(self.make(draft, now_ms).await);
        };
        match self.allocator.next(length).await {
            Ok(code) => {
                let code = draft.domain.codes.generated(code);
                generated.push((n, PreparedLink::new(draft, code, now_ms)));
                None
            }
            Err(error) => Some(Err(error.into())),
        }
    }

    async fn make_all(
        &self,
        all: Vec<(usize, PreparedLink<'_>)>,
    ) -> Vec<(usize, Result<LinkView, CreateError>)> {
        if all.is_empty() {
            return Vec::new();
        }
        let entries: Vec<Entry> = all
            .iter()
            .map(|(_, ready)| Entry::Made(ready.new.clone()))
            .collect();
        let records: Vec<Record<'_>> = all.iter().map(|(_, ready)| ready.record()).collect();
        let (logged, written) = join!(self.log.append(&entries), self.records.create_all(&records));
        let written = match (logged, written) {
            (Ok(_), Ok(written)) => written,
            (Err(error), _) => return all_failed(all, || error.into()),
            (_, Err(error)) => {
                error!(%error, "cannot write a batch of links to Redis");
                return all_failed(all, || CallError::Timeout.into());
            }
        };
        let mut answers = Vec::with_capacity(all.len());
        for ((n, ready), is_written) in all.into_iter().zip(written) {
            answers.push((n, self.end(ready, is_written).await));
        }
        answers
    }

    /// Finishes one of many links. It gets another code if its first one is taken.
    async fn end(
        &self,
        ready: PreparedLink<'_>,
        is_written: bool,
    ) -> Result<LinkView, CreateError> {
        if is_written {
            self.metrics.created.inc();
            return Ok(ready.view());
        }
        let PreparedLink { draft, new, .. } = ready;
        self.leave(std::slice::from_ref(&new)).await?;
        self.make(draft, new.created_at_ms).await
    }

    /// SQL decides which link gets the code. If the code could be generated, its number is stored first and then
    /// checked: origins that reserve its segment from now on skip it.
    async fn make_custom(&self, ready: PreparedLink<'_>) -> Result<LinkView, CreateError> {
        let id = &ready.new.id;
        let codes = ready.draft.domain.codes;
        if let Some((length, index)) = self.allocator.index(codes, &id.code) {
            let is_new = self
                .store
                .segments()
                .add_custom(length, index, &id.domain)
                .await?;
            if self.allocator.is_reserved(length, index).await? {
                if is_new {
                    let store = &self.store;
                    store
                        .segments()
                        .remove_custom(length, index, &id.domain)
                        .await?;
                }
                return Err(CreateError::Taken);
            }
        }
        if !self.store.log().insert(&ready.new).await? {
            return Err(CreateError::Taken);
        }
        if let Err(error) = self.records.write(ready.record(), Some(0)).await {
            // The link exists nevertheless; lookups find it in the cold store.
            warn!(%error, link = %id, "cannot write a link with a custom code to Redis");
        }
        self.metrics.created.inc();
        Ok(ready.view())
    }
}

fn all_failed(
    all: Vec<(usize, PreparedLink<'_>)>,
    error: impl Fn() -> CreateError,
) -> Vec<(usize, Result<LinkView, CreateError>)> {
    all.into_iter().map(|(n, _)| (n, Err(error()))).collect()
}
