//! The origin, like `origin/links/src`: lookups (`cold`), edits (`edit`, `publish`), and click counts (`clicks`). Its
//! functions have the same names as there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use weir_base::breaker::{self, Breaker, Outcome, Permit};
use weir_base::headers;
use weir_base::resp::Value;
use weir_engine::FetchId;
use weir_engine::event::FetchResponse;
use weir_link::code::LinkId;
use weir_link::domain::DomainsConfig;
use weir_link::record::Link;
use weir_link::redis::keys::{self, LinkKeys};
use weir_link::redis::link_changes;
use weir_link::redis::link_read::{self, Purpose, Read};
use weir_link::redis::{document, domains, link_clicks};

use super::io::{Io, RedisError, SqlError, Work};
use super::plan::Edit;
use super::sql::{Sql, code_name};
use crate::host::WorkerLife;
use crate::mutation::Mutation;

/// As in the origin.
const BREAKER: breaker::Settings = breaker::Settings {
    window_ms: 10_000,
    min_requests: 3,
    failure_percent: 50,
    open_ms: 1_000,
    probes: 2,
};
const RENEW_PERMILLE: u32 = 100;
const PERIOD_MS: u64 = 1_000;
const ROUNDS_OF_DOMAINS: u64 = 5;
const YOUNG_MS: u64 = 2_000;
const COUNT_PAUSE_MS: u64 = 250;

const PREFIX: &str = "weir";

/// The domains, which do not change.
const DOMAINS: &str = r#"{"domains":[{"id":"s","hosts":["s.example"]}]}"#;

#[derive(Clone)]
pub(super) struct Origin {
    io: Io,
    breaker: Rc<RefCell<Breaker>>,
    /// The last write to Redis of each link.
    written: Rc<RefCell<BTreeMap<u32, Written>>>,
}

#[derive(Clone)]
struct Written {
    version: u32,
    at_ms: u64,
    /// The change that gateways received.
    change: Vec<u8>,
}

/// There is no answer.
pub(super) struct NoAnswer;

impl From<RedisError> for NoAnswer {
    fn from(_: RedisError) -> Self {
        Self
    }
}

impl From<SqlError> for NoAnswer {
    fn from(_: SqlError) -> Self {
        Self
    }
}

pub(super) fn link_id(code: u32) -> LinkId {
    let name = format!("s/{}", code_name(code));
    name.parse().expect("it is a link's name")
}

pub(super) fn link_keys(code: u32) -> LinkKeys {
    LinkKeys::new(PREFIX, &link_id(code))
}

impl Origin {
    pub(super) fn new(io: Io) -> Self {
        Self {
            io,
            breaker: Rc::new(RefCell::new(Breaker::new(BREAKER))),
            written: Rc::default(),
        }
    }

    /// Its background tasks.
    pub(super) fn background(&self) -> [Work; 2] {
        let (publisher, counter) = (self.clone(), self.clone());
        [
            Box::pin(async move { publisher.run_publisher().await }),
            Box::pin(async move { counter.run_counter().await }),
        ]
    }

    // --- lookups

    /// Answers a gateway's lookup.
    pub(super) fn serve(
        &self,
        place: WorkerLife,
        fetch: FetchId,
        code: u32,
        purpose: Purpose,
    ) -> Work {
        let origin = self.clone();
        Box::pin(async move {
            let found = origin.visit(code, purpose).await;
            let (status, headers, body) = match found {
                Ok(Some(read)) => (200, vec![], document::write(&read)),
                Ok(None) => {
                    let unknown = (headers::LINK.to_string(), headers::LINK_UNKNOWN.to_string());
                    (404, vec![unknown], vec![])
                }
                Err(NoAnswer) => (503, vec![], vec![]),
            };
            let response = FetchResponse {
                status,
                headers,
                body,
            };
            origin.io.answer(place, fetch, Some(response));
        })
    }

    async fn visit(&self, code: u32, purpose: Purpose) -> Result<Option<Read>, NoAnswer> {
        match self.io.sql(move |sql| sql.link(code)).await? {
            Some(link) => Ok(Some(self.warm(code, link, purpose).await?)),
            // It may be in another origin's log.
            None => self.read(code, purpose).await,
        }
    }

    async fn warm(&self, code: u32, link: Link, purpose: Purpose) -> Result<Read, NoAnswer> {
        let warmed = self.guarded(self.write_warm(code, &link)).await;
        if link.max_clicks > 0 && !link.is_disabled {
            warmed?;
            if let Some(found) = self.read(code, purpose).await? {
                return Ok(found);
            }
        }
        Ok(Read {
            record: link.encode(),
            left_ms: None,
            clicks_left: None,
        })
    }

    async fn guarded<T>(
        &self,
        call: impl Future<Output = Result<T, NoAnswer>>,
    ) -> Result<T, NoAnswer> {
        let permit = self.breaker.borrow_mut().permit(self.io.now_ms());
        let Permit::Pass(pass) = permit else {
            return Err(NoAnswer);
        };
        let result = call.await;
        let outcome = match &result {
            Err(NoAnswer) => Outcome::Failure,
            Ok(_) => Outcome::Success,
        };
        let now_ms = self.io.now_ms();
        self.breaker.borrow_mut().record(now_ms, pass, outcome);
        result
    }

    async fn write_warm(&self, code: u32, link: &Link) -> Result<(), NoAnswer> {
        if link.max_clicks > 0 {
            self.seed_clicks(code).await?;
        }
        let (key, record) = (link_keys(code).record(), link.encode());
        let set = self.io.send(&[b"SET", &key, &record, b"NX"]).await?;
        if set == Value::Null {
            return Ok(());
        }
        let now = self.io.sql(move |sql| sql.link(code)).await?;
        if now.map(|link| link.version) != Some(link.version) {
            self.publish(code).await?;
        }
        Ok(())
    }

    async fn seed_clicks(&self, code: u32) -> Result<(), NoAnswer> {
        if self.io.makes(Mutation::ClicksNotSeeded) {
            return Ok(());
        }
        let used = self.io.sql(move |sql| sql.clicks(code)).await?;
        if used > 0 {
            let (key, used) = (link_keys(code).clicks(), used.to_string());
            self.io
                .send(&[b"SET", &key, used.as_bytes(), b"NX"])
                .await?;
        }
        Ok(())
    }

    async fn read(&self, code: u32, purpose: Purpose) -> Result<Option<Read>, NoAnswer> {
        let read = async {
            let call = link_read::call(&link_keys(code), RENEW_PERMILLE, purpose);
            let value = self.io.run(&call).await?;
            link_read::parse(&value).map_err(|_| NoAnswer)
        };
        self.guarded(read).await
    }

    // --- edits

    /// An owner's edit, retried until SQL has it.
    pub(super) fn edit(&self, edit: Edit) -> Work {
        let origin = self.clone();
        Box::pin(async move {
            let now_ms = origin.io.now_ms();
            while origin
                .io
                .sql(move |sql| sql.edit(edit, now_ms))
                .await
                .is_err()
            {
                origin.io.sleep_ms(300).await;
            }
            // If Redis cannot follow now, it will later.
            let _ = origin.publish(edit.code).await;
        })
    }

    async fn publish(&self, code: u32) -> Result<(), NoAnswer> {
        let mut link = self.io.sql(move |sql| sql.link(code)).await?;
        let change = loop {
            let change = self.write_to_redis(code, link.as_ref()).await?;
            let now = self.io.sql(move |sql| sql.link(code)).await?;
            let version = |link: &Option<Link>| link.as_ref().map(|link| link.version);
            if version(&now) == version(&link) {
                break change;
            }
            link = now;
        };
        let written = Written {
            version: link.map_or(u32::MAX, |link| link.version),
            at_ms: self.io.now_ms(),
            change,
        };
        self.written.borrow_mut().insert(code, written);
        Ok(())
    }

    async fn was_kept(&self, code: u32, version: u32, before_ms: u64) -> Result<bool, NoAnswer> {
        let written = self.written.borrow().get(&code).cloned();
        let is_it = |written: &Written| written.version >= version && written.at_ms < before_ms;
        let Some(written) = written.filter(is_it) else {
            return Ok(false);
        };
        let link = self.io.sql(move |sql| sql.link(code)).await?;
        let found = match self.io.send(&[b"GET", &link_keys(code).record()]).await? {
            Value::Bulk(record) => Some(record),
            _ => None,
        };
        if found != link.map(|link| link.encode()) {
            return Ok(false);
        }
        let (key, id) = (keys::link_changes(PREFIX), &written.change);
        let reply = self.io.send(&[b"XRANGE", &key, id, id]).await?;
        Ok(matches!(reply, Value::Array(changes) if !changes.is_empty()))
    }

    async fn write_to_redis(&self, code: u32, link: Option<&Link>) -> Result<Vec<u8>, NoAnswer> {
        let keys = link_keys(code);
        let (record, clicks) = (keys.record(), keys.clicks());
        match link {
            None => {
                self.io.send(&[b"UNLINK", &record, &clicks]).await?;
            }
            Some(link) => {
                if link.max_clicks > 0 {
                    self.seed_clicks(code).await?;
                }
                self.io.send(&[b"SET", &record, &link.encode()]).await?;
                if link.max_clicks == 0 {
                    self.io.send(&[b"UNLINK", &clicks]).await?;
                }
            }
        }
        if self.io.makes(Mutation::ChangesNotTold) {
            return Ok(b"0-1".to_vec());
        }
        let add = link_changes::add(PREFIX, &link_id(code));
        let words: Vec<&[u8]> = add.iter().map(Vec::as_slice).collect();
        match self.io.send(&words).await? {
            Value::Bulk(change) => Ok(change),
            _ => Err(NoAnswer),
        }
    }

    async fn run_publisher(&self) {
        for round in 0_u64.. {
            let is_due = round.is_multiple_of(ROUNDS_OF_DOMAINS);
            // The next round repeats failed work.
            let _ = self.round(is_due).await;
            self.io.sleep_ms(PERIOD_MS).await;
        }
    }

    async fn round(&self, is_due: bool) -> Result<(), NoAnswer> {
        if is_due {
            let config: DomainsConfig =
                weir_engine::config::parse(DOMAINS.as_bytes()).map_err(|_| NoAnswer)?;
            let domains = config.checked().map_err(|_| NoAnswer)?;
            let document = domains::write(&domains).map_err(|_| NoAnswer)?;
            let key = keys::link_domains(PREFIX);
            self.io.send(&[b"SET", &key, &document]).await?;
        }
        if self.io.makes(Mutation::EditsNotFollowedUp) {
            return Ok(());
        }
        let before_ms = self.io.now_ms().saturating_sub(YOUNG_MS);
        let remaining = self.io.sql(move |sql| sql.unpublished(before_ms)).await?;
        for (code, version) in remaining {
            if self.was_kept(code, version, before_ms).await? {
                let mark = move |sql: &mut Sql| sql.mark_published(code, version);
                self.io.sql(mark).await?;
            } else {
                self.publish(code).await?;
                let now_ms = self.io.now_ms();
                let put_off = move |sql: &mut Sql| sql.put_off(code, version, now_ms);
                self.io.sql(put_off).await?;
            }
        }
        Ok(())
    }

    // --- clicks

    async fn run_counter(&self) {
        loop {
            // The next round repeats failed reads.
            let _ = self.count().await;
            self.io.sleep_ms(COUNT_PAUSE_MS).await;
        }
    }

    async fn count(&self) -> Result<(), NoAnswer> {
        let key = keys::link_clicks(PREFIX);
        let read = self
            .io
            .send(&[b"XRANGE", &key, b"-", b"+", b"COUNT", b"8"])
            .await?;
        let Value::Array(entries) = read else {
            return Err(NoAnswer);
        };
        let mut ids = Vec::new();
        let mut batches = Vec::new();
        for entry in &entries {
            let Value::Array(parts) = entry else {
                return Err(NoAnswer);
            };
            let [Value::Bulk(id), Value::Array(fields)] = parts.as_slice() else {
                return Err(NoAnswer);
            };
            ids.push(id.clone());
            let field = |name: &[u8]| {
                let pairs = fields.as_chunks::<2>().0;
                pairs.iter().find_map(|[key, value]| match (key, value) {
                    (Value::Bulk(key), Value::Bulk(value)) if key == name => Some(value.as_slice()),
                    _ => None,
                })
            };
            batches.push(link_clicks::read_entry(field).map_err(|_| NoAnswer)?);
        }
        if ids.is_empty() {
            return Ok(());
        }
        self.io.sql(move |sql| sql.count(&batches)).await?;
        let mut words: Vec<&[u8]> = vec![b"XDEL", &key];
        words.extend(ids.iter().map(Vec::as_slice));
        self.io.send(&words).await?;
        Ok(())
    }
}
