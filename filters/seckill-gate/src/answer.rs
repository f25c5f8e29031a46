//! The gate's own answers.

use proxy_wasm::hostcalls;
use proxy_wasm::types::Status;
use serde::Serialize;
use weir_core::admission::Rejection;
use weir_core::claim::ClaimId;
use weir_core::headers;
use weir_core::verdict::Verdict;
use weir_filter_kit::http::{Answer, retry_after_seconds};

use crate::config::StaticPage;

/// What answers say besides their verdict.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    /// What `Retry-After` says when nothing tells how long to wait, in seconds.
    pub(crate) retry_after_s: u32,
    /// The answer to all requests for a sale that an operator has put behind it.
    pub(crate) static_page: StaticPage,
}

impl Answers {
    /// Answers the effective context's stream.
    pub(crate) fn reject(
        &self,
        rejection: Rejection,
        order: Option<&ClaimId>,
    ) -> Result<(), Status> {
        let verdict = rejection.verdict;
        let retry_after = self.retry_after(rejection);
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
        .send()
    }

    fn retry_after(&self, rejection: Rejection) -> Option<String> {
        match rejection.retry_after_ms {
            Some(wait_ms) => Some(retry_after_seconds(wait_ms)),
            None if rejection.verdict.may_be_retried() => Some(self.retry_after_s.to_string()),
            None => None,
        }
    }

    fn page<'a>(&'a self, mut headers: Vec<(&'a str, &'a str)>) -> Result<(), Status> {
        let page = &self.static_page;
        headers.extend([
            ("content-type", page.content_type.as_str()),
            ("cache-control", "no-store"),
        ]);
        let status = u32::from(page.status);
        hostcalls::send_http_response(status, headers, Some(page.body.as_bytes()))
    }
}

/// Answers the effective context's stream with 200 and `body` as JSON, which no cache may keep.
pub(crate) fn send_json(
    mut headers: Vec<(&str, &str)>,
    body: &impl Serialize,
) -> Result<(), Status> {
    headers.extend([
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
    ]);
    let body = serde_json::to_vec(body).map_err(|_| Status::InternalFailure)?;
    hostcalls::send_http_response(200, headers, Some(&body))
}
