//! The object that reads the link feed and fills the namespace: one for all isolates, so there is a single writer.
//!
//! Isolates notify it, and it requests the feed if that is due. Links are written before the progress, which is in the
//! object's own storage. If the object crashes in between, or the namespace refuses a link, it reads the page again
//! after the next notification.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_edge::host::FEEDS_MAX;
use weir_edge::knowledge::{Feed as Kind, PROGRESS_KEY};
use weir_edge::store::Store;
use worker::{DurableObject, Env, Request, Response, Result, State, durable_object, kv::KvStore};

use crate::client::now_ms;
use crate::front::Front;
use crate::host::{self, LINKS};
use crate::settings::{Site, variables};

/// The object.
#[durable_object]
pub struct Feed {
    state: State,
    env: Env,
    site: RefCell<Option<Site>>,
    is_reading: Cell<bool>,
}

impl DurableObject for Feed {
    fn new(state: State, env: Env) -> Self {
        Self {
            state,
            env,
            site: RefCell::default(),
            is_reading: Cell::default(),
        }
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        // A notification during a read is covered by that read.
        if !self.is_reading.replace(true) {
            let read = self.read(&request).await;
            self.is_reading.set(false);
            if read.is_err() {
                // Data that was read but not written must not count as progress.
                self.site.replace(None);
            }
            read?;
        }
        Response::empty()
    }
}

impl Feed {
    async fn read(&self, request: &Request) -> Result<()> {
        let (now_ms, links) = (now_ms(request), self.env.kv(LINKS)?);
        self.open(request).await?;
        for _ in 0..FEEDS_MAX {
            let Some((path, requested)) = self.next(now_ms)? else {
                return Ok(());
            };
            let (status, text) = host::ask(requested).await?;
            let accepted =
                self.with_site(|site| site.edge.take(Kind::Links, status, &text, now_ms))?;
            if let Err(error) = accepted {
                worker::console_error!("weir: {path}: {error}");
                return Ok(());
            }
            self.write(&links, request).await?;
        }
        Ok(())
    }

    /// Loads the edge from the object's storage.
    async fn open(&self, request: &Request) -> Result<()> {
        if self.site.borrow().is_some() {
            return Ok(());
        }
        let front = Rc::new(Front::default());
        let progress: Option<String> = self.state.storage().get(PROGRESS_KEY).await?;
        front.learn(PROGRESS_KEY, progress.map(String::into_bytes));
        let variable = host::variables_of(request).unwrap_or_else(|| variables(&self.env));
        let site = Site::new(variable, front).map_err(worker::Error::RustError)?;
        self.site.replace(Some(site));
        Ok(())
    }

    fn next(&self, now_ms: u64) -> Result<Option<(String, Request)>> {
        self.with_site(|site| {
            site.front.set_clock(now_ms);
            let Some(path) = site.edge.due_of(Kind::Links, now_ms) else {
                return Ok(None);
            };
            let requested = host::feed_request(site, &path, now_ms)?;
            Ok(Some((path, requested)))
        })?
    }

    async fn write(&self, links: &KvStore, request: &Request) -> Result<()> {
        let (written, progress) = self.with_site(|site| {
            // It reads none of them from the namespace: it is the only writer and writes in feed order, so none there
            // is newer.
            site.front.take_missing();
            (site.front.take_written(), site.front.get(PROGRESS_KEY))
        })?;
        for (key, value) in written {
            links
                .put_bytes(&host::name(request, &key), &value)?
                .execute()
                .await?;
        }
        if let Some(progress) = progress {
            links
                .put_bytes(&host::name(request, PROGRESS_KEY), &progress)?
                .execute()
                .await?;
            let text = String::from_utf8_lossy(&progress).into_owned();
            self.state.storage().put(PROGRESS_KEY, text).await?;
        }
        Ok(())
    }

    fn with_site<T>(&self, act: impl FnOnce(&mut Site) -> T) -> Result<T> {
        let mut site = self.site.borrow_mut();
        let site = site.as_mut().ok_or("the object is not open")?;
        Ok(act(site))
    }
}
