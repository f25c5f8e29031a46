//! The cold store over SQL, of either kind.

use std::future::Future;

use weir_link::code::{Code, DomainId, Length, LinkId};
use weir_link::segment::Segment;

use super::{
    Change, Ended, Entry, LinkStore, LogPosition, NewLink, Past, Place, StoredLink, drain, edits,
    ends, reads, segments,
};
use crate::store::database::Database;
use crate::store::{StoreError, StoreFuture};

/// A SQLite file, or a database behind the MySQL protocol: the same as that of sales, or another one.
#[derive(Clone, Debug)]
pub struct SqlLinks {
    database: Database,
}

impl SqlLinks {
    /// Over a database that is open.
    pub(crate) fn over(database: Database) -> Self {
        Self { database }
    }
}

/// Boxes a query's future and gives its errors the trait's type.
fn boxed<'a, T, F>(answer: F) -> StoreFuture<'a, T>
where
    F: Future<Output = Result<T, sqlx::Error>> + Send + 'a,
{
    Box::pin(async move { answer.await.map_err(StoreError::Sql) })
}

impl LinkStore for SqlLinks {
    fn log_position<'a>(&'a self, log: &'a str) -> StoreFuture<'a, LogPosition> {
        boxed(drain::position(&self.database, log))
    }

    fn drain<'a>(
        &'a self,
        log: &'a str,
        position: LogPosition,
        entries: &'a [Entry],
    ) -> StoreFuture<'a, u64> {
        boxed(drain::drain(&self.database, log, position, entries))
    }

    fn link<'a>(&'a self, id: &'a LinkId) -> StoreFuture<'a, Option<StoredLink>> {
        boxed(reads::one(&self.database, id))
    }

    fn list<'a>(
        &'a self,
        tag: Option<&'a str>,
        after: Option<&'a Place>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<StoredLink>> {
        boxed(reads::list(&self.database, tag, after, limit))
    }

    fn history<'a>(&'a self, id: &'a LinkId) -> StoreFuture<'a, Vec<Past>> {
        boxed(reads::history(&self.database, id))
    }

    fn insert<'a>(&'a self, link: &'a NewLink) -> StoreFuture<'a, bool> {
        boxed(drain::insert(&self.database, link))
    }

    fn change<'a>(&'a self, change: Change<'a>) -> StoreFuture<'a, bool> {
        boxed(edits::change(&self.database, change))
    }

    fn touch<'a>(&'a self, clicks: &'a [(LinkId, u64)]) -> StoreFuture<'a, ()> {
        boxed(ends::touch(&self.database, clicks))
    }

    fn unpublished(&self, before_ms: u64, limit: usize) -> StoreFuture<'_, Vec<(LinkId, u32)>> {
        boxed(edits::unpublished(&self.database, before_ms, limit))
    }

    fn mark_published<'a>(&'a self, id: &'a LinkId, version: u32) -> StoreFuture<'a, ()> {
        boxed(edits::mark_published(&self.database, id, version))
    }

    fn reserve<'a>(&'a self, segments: &'a [Segment], now_ms: u64) -> StoreFuture<'a, Vec<bool>> {
        boxed(segments::reserve(&self.database, segments, now_ms))
    }

    fn release<'a>(&'a self, segment: &'a Segment) -> StoreFuture<'a, ()> {
        boxed(segments::release(&self.database, segment))
    }

    fn last_segment(&self, length: Length) -> StoreFuture<'_, Option<Segment>> {
        boxed(segments::last(&self.database, length))
    }

    fn reserved_before<'a>(&'a self, segment: &'a Segment) -> StoreFuture<'a, Option<u64>> {
        boxed(segments::reserved_before(&self.database, segment))
    }

    fn is_reserved(&self, length: Length, index: u64, since_ms: u64) -> StoreFuture<'_, bool> {
        boxed(segments::is_reserved(
            &self.database,
            length,
            index,
            since_ms,
        ))
    }

    fn open_round(&self, length: Length, round: u64, now_ms: u64) -> StoreFuture<'_, ()> {
        boxed(segments::open_round(&self.database, length, round, now_ms))
    }

    fn is_round_open(&self, length: Length, round: u64) -> StoreFuture<'_, bool> {
        boxed(segments::is_round_open(&self.database, length, round))
    }

    fn add_custom<'a>(
        &'a self,
        length: Length,
        index: u64,
        domain: &'a DomainId,
    ) -> StoreFuture<'a, bool> {
        boxed(segments::add_custom(&self.database, length, index, domain))
    }

    fn remove_custom<'a>(
        &'a self,
        length: Length,
        index: u64,
        domain: &'a DomainId,
    ) -> StoreFuture<'a, ()> {
        boxed(segments::remove_custom(
            &self.database,
            length,
            index,
            domain,
        ))
    }

    fn customs<'a>(&'a self, segment: &'a Segment) -> StoreFuture<'a, Vec<u64>> {
        boxed(segments::customs(&self.database, segment))
    }

    fn has_any<'a>(&'a self, domain: &'a DomainId, codes: &'a [Code]) -> StoreFuture<'a, bool> {
        boxed(reads::has_any(&self.database, domain, codes))
    }

    fn domains<'a>(&'a self, known: &'a [DomainId]) -> StoreFuture<'a, Vec<DomainId>> {
        boxed(segments::domains(&self.database, known))
    }

    fn numbering<'a>(&'a self, fingerprint: &'a str) -> StoreFuture<'a, String> {
        boxed(segments::numbering(&self.database, fingerprint))
    }

    fn ended(&self, from_ms: u64, before_ms: u64, limit: usize) -> StoreFuture<'_, Vec<Ended>> {
        boxed(ends::ended(&self.database, from_ms, before_ms, limit))
    }

    fn prolong<'a>(&'a self, ended: &'a [(Ended, u64)]) -> StoreFuture<'a, ()> {
        boxed(ends::prolong(&self.database, ended))
    }

    fn remove<'a>(&'a self, ended: &'a [Ended]) -> StoreFuture<'a, u64> {
        boxed(ends::remove(&self.database, ended))
    }
}
