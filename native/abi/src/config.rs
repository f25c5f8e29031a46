//! A filter's configuration, as Envoy has it.

use core::marker::PhantomData;

use crate::api::{Buffer, HeaderPair, Raw, api};

/// Envoy's "it went well".
const OK: u32 = 0;

/// A filter's configuration in Envoy, during a hook on the main thread.
#[derive(Debug)]
pub struct ConfigHost<'h> {
    raw: Raw,
    hook: PhantomData<&'h ()>,
}

/// A metric that was defined: only of the configuration that has defined it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricId(usize);

impl ConfigHost<'_> {
    /// # Safety
    /// `raw` must be what Envoy has given to the hook that runs, which must outlive `self`.
    pub(crate) unsafe fn new(raw: Raw) -> Self {
        Self {
            raw,
            hook: PhantomData,
        }
    }

    /// Whether Envoy only checks its configuration (`--mode validate`).
    pub fn is_validating(&self) -> bool {
        // SAFETY: it takes nothing, and this is the main thread.
        api().is_some_and(|api| unsafe { (api.is_validating)() })
    }

    /// Defines a counter, with a label if it has one. Only while the configuration is made. `None` if Envoy refuses.
    pub fn define_counter(&self, name: &str, label: Option<&str>) -> Option<MetricId> {
        let labels = labels(label);
        let mut id = 0;
        let name = Buffer::from_bytes(name.as_bytes());
        // SAFETY: all pointers are to live memory of the lengths that are said; Envoy copies.
        let status = unsafe {
            (api()?.define_counter)(self.raw, name, labels.as_ptr(), labels.len(), &raw mut id)
        };
        (status == OK).then_some(MetricId(id))
    }

    /// Adds to a counter; with the value of its label if it has one. Whether Envoy took it.
    pub fn increment(&self, counter: MetricId, label: Option<&str>, count: u64) -> bool {
        let labels = labels(label);
        let Some(api) = api() else { return false };
        // SAFETY: as for `define_counter`. Envoy checks the number, and how many labels there are.
        let status = unsafe {
            (api.increment_counter)(self.raw, counter.0, labels.as_ptr(), labels.len(), count)
        };
        status == OK
    }

    /// What calls the main thread from any other. `None` if Envoy gives none.
    pub fn scheduler(&self) -> Option<ConfigScheduler> {
        // SAFETY: the configuration is alive during its hook.
        let raw = unsafe { (api()?.config_scheduler_new)(self.raw) };
        (!raw.is_null()).then_some(ConfigScheduler { raw })
    }

    /// Sends an HTTP request to a cluster, with `:method`, `:path` and `:authority` among the headers. Its number, which its
    /// response has too; `None` if it was not sent, and nothing more is heard of it.
    pub fn fetch(
        &self,
        cluster: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        timeout_ms: u64,
    ) -> Option<u64> {
        let pair = |(name, value): &(&str, &str)| HeaderPair {
            name: Buffer::from_bytes(name.as_bytes()),
            value: Buffer::from_bytes(value.as_bytes()),
        };
        let headers: Vec<HeaderPair> = headers.iter().map(pair).collect();
        let (cluster, body) = (
            Buffer::from_bytes(cluster.as_bytes()),
            Buffer::from_bytes(body),
        );
        let mut id = 0;
        let (list, count) = (headers.as_ptr(), headers.len());
        // SAFETY: all pointers are to live memory of the lengths that are said; Envoy copies.
        let status = unsafe {
            (api()?.config_callout)(
                self.raw,
                &raw mut id,
                cluster,
                list,
                count,
                body,
                timeout_ms,
            )
        };
        (status == OK).then_some(id)
    }
}

fn labels(label: Option<&str>) -> Vec<Buffer> {
    let label = label.map(|label| Buffer::from_bytes(label.as_bytes()));
    label.into_iter().collect()
}

/// Calls the main thread, from any thread: [`Module::scheduled`](crate::Module::scheduled) follows there, unless the
/// configuration has gone. It must go before Envoy's main thread does: with the configuration.
#[derive(Debug)]
pub struct ConfigScheduler {
    raw: Raw,
}

// SAFETY: Envoy makes schedulers to be used by other threads. `commit` only posts to a queue that has a lock.
unsafe impl Send for ConfigScheduler {}
// SAFETY: as above: `commit` changes nothing of the scheduler itself.
unsafe impl Sync for ConfigScheduler {}

impl ConfigScheduler {
    /// Calls the main thread.
    pub fn call(&self) {
        if let Some(api) = api() {
            // SAFETY: Envoy has made it, and nobody has deleted it.
            unsafe { (api.config_scheduler_commit)(self.raw, 0) }
        }
    }
}

impl Drop for ConfigScheduler {
    fn drop(&mut self) {
        if let Some(api) = api() {
            // SAFETY: as above, and nobody can use it again.
            unsafe { (api.config_scheduler_delete)(self.raw) }
        }
    }
}
