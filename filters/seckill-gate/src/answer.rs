//! The gate's own answers.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proxy_wasm::types::Status;
use weir_base::headers;
use weir_filter_kit::http::{Answer, Prepared, retry_after_seconds};
use weir_sale::admission::Rejection;
use weir_sale::claim::ClaimId;
use weir_sale::verdict::Verdict;

use crate::config::StaticPage;

/// The answers to refused requests.
#[derive(Debug)]
pub(crate) struct Answers {
    /// What `Retry-After` says when nothing tells how long to wait, in seconds.
    retry_after_s: u32,
    /// The answer to all requests for a sale that an operator has put behind it.
    static_page: StaticPage,
    /// The last answer of each verdict, and the wait that it tells: most often the next is the same.
    last: RefCell<BTreeMap<Verdict, (Option<u64>, Prepared)>>,
}

impl Answers {
    pub(crate) fn new(retry_after_s: u32, static_page: StaticPage) -> Self {
        Self {
            retry_after_s,
            static_page,
            last: RefCell::default(),
        }
    }

    /// Answers the effective context's stream.
    pub(crate) fn reject(
        &self,
        rejection: Rejection,
        order: Option<&ClaimId>,
    ) -> Result<(), Status> {
        let retry_after_s = self.retry_after_s(rejection);
        if order.is_some() {
            return self.prepare(rejection.verdict, retry_after_s, order).send();
        }
        let mut last = self.last.borrow_mut();
        match last.get(&rejection.verdict) {
            Some((told_s, prepared)) if *told_s == retry_after_s => prepared.send(),
            _ => {
                let prepared = self.prepare(rejection.verdict, retry_after_s, None);
                let sent = prepared.send();
                last.insert(rejection.verdict, (retry_after_s, prepared));
                sent
            }
        }
    }

    fn prepare(
        &self,
        verdict: Verdict,
        retry_after_s: Option<u64>,
        order: Option<&ClaimId>,
    ) -> Prepared {
        let retry_after = retry_after_s.map(|seconds| seconds.to_string());
        let mut headers = vec![(headers::VERDICT, verdict.word())];
        headers.extend(
            retry_after
                .as_deref()
                .map(|seconds| ("retry-after", seconds)),
        );
        if verdict == Verdict::StaticPage {
            return self.page(headers);
        }
        Answer {
            // Only verdicts with a status are answered; if one had none, it would be a fault of ours.
            status: verdict.status().unwrap_or(500),
            headers,
            error: verdict.word(),
            message: verdict.message(),
            order: order.map(ClaimId::as_str),
        }
        .prepare()
    }

    fn retry_after_s(&self, rejection: Rejection) -> Option<u64> {
        match rejection.retry_after_ms {
            Some(wait_ms) => Some(retry_after_seconds(wait_ms)),
            None if rejection.verdict.may_be_retried() => Some(self.retry_after_s.into()),
            None => None,
        }
    }

    fn page<'a>(&'a self, mut headers: Vec<(&'a str, &'a str)>) -> Prepared {
        let page = &self.static_page;
        headers.extend([
            ("content-type", page.content_type.as_str()),
            ("cache-control", "no-store"),
        ]);
        Prepared::new(page.status, &headers, page.body.as_bytes())
    }
}
