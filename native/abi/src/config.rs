//! A filter configuration in Envoy.

use core::marker::PhantomData;

use crate::api::{Buffer, HeaderPair, Raw, api};

/// Envoy's status for success.
const OK: u32 = 0;

/// A filter configuration in Envoy, during a hook on the main thread.
#[derive(Debug)]
pub struct ConfigHost<'h> {
    raw: Raw,
    hook: PhantomData<&'h ()>,
}

/// The ID of a metric. It is valid only for the configuration that defined the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricId(usize);

impl ConfigHost<'_> {
    /// # Safety
    /// `raw` must be the configuration that Envoy passed to the running hook, and must outlive `self`.
    pub(crate) unsafe fn new(raw: Raw) -> Self {
        Self {
            raw,
            hook: PhantomData,
        }
    }

    /// Defines a counter with these labels. Works only while Envoy creates the configuration. Returns `None` if Envoy
    /// refuses.
    pub fn define_counter(&self, name: &str, labels: &[&str]) -> Option<MetricId> {
        let labels = buffers(labels);
        let mut id = 0;
        let name = Buffer::from_bytes(name.as_bytes());
        // SAFETY: all pointers refer to live memory of the given lengths. Envoy copies the bytes.
        let status = unsafe {
            (api()?.define_counter)(self.raw, name, labels.as_ptr(), labels.len(), &raw mut id)
        };
        (status == OK).then_some(MetricId(id))
    }

    /// Adds `count` to a counter, under one value for each label. Returns whether Envoy accepted it.
    pub fn increment(&self, counter: MetricId, values: &[&str], count: u64) -> bool {
        let labels = buffers(values);
        let Some(api) = api() else { return false };
        // SAFETY: as for `define_counter`. Envoy checks the ID and the number of labels.
        let status = unsafe {
            (api.increment_counter)(self.raw, counter.0, labels.as_ptr(), labels.len(), count)
        };
        status == OK
    }

    /// Returns a scheduler that calls the main thread from any thread. `None` if Envoy returns none.
    pub fn scheduler(&self) -> Option<ConfigScheduler> {
        // SAFETY: the configuration is valid during its hook.
        let raw = unsafe { (api()?.config_scheduler_new)(self.raw) };
        (!raw.is_null()).then_some(ConfigScheduler { raw })
    }

    /// Sends an HTTP request to a cluster. `headers` must include `:method`, `:path` and `:authority`. Returns the
    /// request's ID, which its response carries. `None`: Envoy did not send it, and no response follows.
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
        // SAFETY: all pointers refer to live memory of the given lengths. Envoy copies the bytes.
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

fn buffers(texts: &[&str]) -> Vec<Buffer> {
    let buffer = |text: &&str| Buffer::from_bytes(text.as_bytes());
    texts.iter().map(buffer).collect()
}

/// Schedules [`Module::scheduled`](crate::Module::scheduled) on the main thread, from any thread. The call is dropped
/// if the configuration is gone. Drop it with the configuration, before Envoy's main thread ends.
#[derive(Debug)]
pub struct ConfigScheduler {
    raw: Raw,
}

// SAFETY: Envoy's schedulers are made for use from other threads. `commit` only posts to a locked queue.
unsafe impl Send for ConfigScheduler {}
// SAFETY: as above: `commit` does not modify the scheduler itself.
unsafe impl Sync for ConfigScheduler {}

impl ConfigScheduler {
    /// Schedules the call.
    pub fn call(&self) {
        if let Some(api) = api() {
            // SAFETY: Envoy created it, and only `drop` deletes it.
            unsafe { (api.config_scheduler_commit)(self.raw, 0) }
        }
    }
}

impl Drop for ConfigScheduler {
    fn drop(&mut self) {
        if let Some(api) = api() {
            // SAFETY: as above, and the pointer is not used again.
            unsafe { (api.config_scheduler_delete)(self.raw) }
        }
    }
}
