//! Request rate limits of tenants on the admin port: requests per second, and concurrent requests. One tenant's load
//! does not slow down the others.
//!
//! Each origin counts on its own, in memory.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use crate::tenants::{Limits, TENANTS_MAX, TenantName};

/// Maximum number of tracked tenants: all possible tenants, and as many deleted ones.
const REMEMBERED_MAX: usize = 2 * TENANTS_MAX as usize;

const SECOND_MICROS: u64 = 1_000_000;

/// The request rates of all tenants.
#[derive(Debug)]
pub(super) struct Paces {
    begin: Instant,
    of: Mutex<HashMap<TenantName, Pace>>,
}

#[derive(Debug, Default)]
struct Pace {
    /// When a full second's burst is available again, in microseconds since `begin`.
    free_at_micros: u64,
    under_way: Arc<AtomicU64>,
}

/// An accepted request. It counts as in progress until this value is dropped.
#[derive(Debug)]
pub(super) struct Pass(Arc<AtomicU64>);

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Default for Paces {
    fn default() -> Self {
        let (begin, of) = (Instant::now(), Mutex::default());
        Self { begin, of }
    }
}

impl Paces {
    /// Accepts a request of a tenant.
    ///
    /// # Errors
    /// The time after which to retry, in milliseconds.
    pub(super) fn take(&self, tenant: &TenantName, limits: &Limits) -> Result<Pass, u64> {
        let now = self.begin.elapsed().as_micros();
        self.take_at(tenant, limits, u64::try_from(now).unwrap_or(u64::MAX))
    }

    fn take_at(&self, tenant: &TenantName, limits: &Limits, now: u64) -> Result<Pass, u64> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if of.len() >= REMEMBERED_MAX {
            of.retain(|_, pace| !pace.is_idle(now));
        }
        of.entry(tenant.clone()).or_default().take(limits, now)
    }
}

impl Pace {
    /// Whether the tenant has no recent and no running requests, so that it need not be tracked.
    fn is_idle(&self, now: u64) -> bool {
        self.free_at_micros <= now && self.under_way.load(Ordering::Acquire) == 0
    }

    fn take(&mut self, limits: &Limits, now: u64) -> Result<Pass, u64> {
        // The count cannot grow concurrently, because this runs under a lock.
        if self.under_way.load(Ordering::Acquire) >= limits.requests_at_once {
            return Err(SECOND_MICROS / 1_000);
        }
        let each = SECOND_MICROS / limits.requests_per_second.max(1);
        let from = self.free_at_micros.max(now);
        let over = (from + each).saturating_sub(now + SECOND_MICROS);
        if over > 0 {
            return Err(over.div_ceil(1_000));
        }
        self.free_at_micros = from + each;
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Ok(Pass(Arc::clone(&self.under_way)))
    }
}

impl Pass {
    /// Keeps the request in progress until its answer's body is sent or dropped.
    pub(super) fn until_sent(self, response: Response) -> Response {
        response.map(|body| Body::new(CountedBody { body, _pass: self }))
    }
}

struct CountedBody {
    body: Body,
    _pass: Pass,
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantName {
        TenantName::new(name).unwrap()
    }

    fn limits(per_second: u64, at_once: u64) -> Limits {
        Limits {
            requests_per_second: per_second,
            requests_at_once: at_once,
            ..Limits::default()
        }
    }

    #[test]
    fn burst_of_one_second_passes_then_requests_are_paced() {
        let (paces, four) = (Paces::default(), limits(4, 100));
        let (a, b) = (tenant("a"), tenant("b"));
        for _ in 0..4 {
            assert!(paces.take_at(&a, &four, 7).is_ok());
        }
        assert_eq!(paces.take_at(&a, &four, 7).unwrap_err(), 250);
        // The limits of one tenant do not affect another.
        assert!(paces.take_at(&b, &four, 7).is_ok());
        assert!(paces.take_at(&a, &four, 250_007).is_ok());
        assert!(paces.take_at(&a, &four, 250_007).is_err());
        for _ in 0..4 {
            assert!(paces.take_at(&a, &four, 9_000_000).is_ok());
        }
        assert!(paces.take_at(&a, &four, 9_000_000).is_err());
    }

    #[test]
    fn concurrency_slot_is_held_until_the_response_is_sent() {
        let (paces, two) = (Paces::default(), limits(1_000, 2));
        let a = tenant("a");
        let first = paces.take_at(&a, &two, 0).unwrap();
        let second = paces.take_at(&a, &two, 0).unwrap();
        assert_eq!(paces.take_at(&a, &two, 0).unwrap_err(), 1_000);
        let response = first.until_sent(Response::new(Body::from("long")));
        assert!(paces.take_at(&a, &two, 0).is_err());
        drop(response);
        assert!(paces.take_at(&a, &two, 0).is_ok());
        drop(second);
    }

    #[test]
    fn pace_memory_is_bounded_by_the_active_tenants() {
        let (paces, one) = (Paces::default(), limits(1, 1));
        for n in 0..3 * REMEMBERED_MAX as u64 {
            let name = tenant(&format!("t{n}"));
            assert!(paces.take_at(&name, &one, n * SECOND_MICROS).is_ok());
        }
        assert!(paces.of.lock().unwrap().len() <= REMEMBERED_MAX);
    }
}
