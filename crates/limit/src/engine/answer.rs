//! The answers to refused requests.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::rules::fields::{QUOTA_EXCEEDED, REDUCED_CAPACITY};
use weir_base::problem;
use weir_engine::Answer;
use weir_engine::answer::retry_after_seconds;
use weir_engine::page::Page;

use crate::engine::config::AnswerConfig;
use crate::engine::request::Client;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A limit is reached; the request may pass after `wait_ms`.
    Limited { wait_ms: u64 },
    /// Its key is in a rule's `deny` list.
    Denied,
    /// Redis does not answer, and a rule refuses requests during an outage.
    Unavailable,
}

/// A refused request.
#[derive(Debug)]
pub struct RefusedRequest {
    pub reason: Reason,
    /// Quota headers.
    pub fields: Vec<(&'static str, String)>,
    /// The names of the rules that refuse it.
    pub violated: Vec<String>,
}

/// The `Retry-After` of an outage, in milliseconds.
const UNAVAILABLE_MS: u64 = 1_000;

/// gRPC status codes.
const PERMISSION_DENIED: u8 = 7;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNAVAILABLE: u8 = 14;

impl Reason {
    const fn status(self) -> u16 {
        match self {
            Self::Limited { .. } => 429,
            Self::Denied => 403,
            Self::Unavailable => 503,
        }
    }

    const fn status_text(self) -> &'static str {
        match self {
            Self::Limited { .. } => "429",
            Self::Denied => "403",
            Self::Unavailable => "503",
        }
    }

    const fn grpc_status(self) -> u8 {
        match self {
            Self::Limited { .. } => RESOURCE_EXHAUSTED,
            Self::Denied => PERMISSION_DENIED,
            Self::Unavailable => UNAVAILABLE,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Limited { .. } => "rate_limited",
            Self::Denied => "denied",
            Self::Unavailable => "unavailable",
        }
    }

    /// The details for access logs.
    const fn details(self) -> &'static str {
        match self {
            Self::Limited { .. } => "weir_rate_limited",
            Self::Denied => "weir_denied",
            Self::Unavailable => "weir_unavailable",
        }
    }

    /// The type and the title of the problem. A type without a registered URI is `urn:weir:problem:<word>`.
    const fn problem(self) -> (Option<&'static str>, &'static str) {
        match self {
            Self::Limited { .. } => (
                Some(QUOTA_EXCEEDED),
                "Request cannot be satisfied as assigned quota has been exceeded",
            ),
            Self::Unavailable => (
                Some(REDUCED_CAPACITY),
                "Request cannot be satisfied due to temporary server capacity constraints",
            ),
            Self::Denied => (None, "Forbidden"),
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::Limited { .. } => "too many requests; please try again after Retry-After",
            Self::Denied => "this caller is blocked",
            Self::Unavailable => "rate limits cannot be checked; please try again in a moment",
        }
    }

    const fn page(self) -> Option<Page> {
        match self {
            Self::Limited { .. } => Some(Page::RateLimited),
            Self::Unavailable => Some(Page::Unavailable),
            Self::Denied => None,
        }
    }

    fn retry_after(self) -> Option<String> {
        match self {
            Self::Limited { wait_ms } => Some(retry_after_seconds(wait_ms).to_string()),
            Self::Unavailable => Some(retry_after_seconds(UNAVAILABLE_MS).to_string()),
            Self::Denied => None,
        }
    }
}

impl RefusedRequest {
    /// A refusal without quota headers.
    pub fn without_fields(reason: Reason) -> Self {
        Self {
            reason,
            fields: Vec::new(),
            violated: Vec::new(),
        }
    }

    /// The answer: a problem, or a page for a browser. `config` replaces it when a limit is reached, except for gRPC
    /// clients.
    pub fn answer(&self, client: Client, config: Option<&AnswerConfig>) -> Answer {
        let retry_after = self.reason.retry_after();
        let retry_after = retry_after.as_deref();
        let fields = self.fields.iter();
        let fields = fields.map(|(name, value)| (*name, value.as_str()));
        let mut headers: Vec<(&str, &str)> = fields
            .chain(retry_after.map(|seconds| ("retry-after", seconds)))
            .collect();
        if client == Client::Grpc {
            let (status, message) = (self.reason.grpc_status(), self.reason.message());
            return Answer::grpc(status, message, &headers).because(self.reason.details());
        }
        if let (Some(config), Reason::Limited { .. }) = (config, self.reason) {
            headers.extend([
                ("content-type", config.content_type.as_str()),
                ("cache-control", "no-store"),
            ]);
            let answer = Answer::new(config.status, &headers, config.body.as_bytes());
            return answer.because(self.reason.details());
        }
        if let (Client::Browser(language), Some(page)) = (client, self.reason.page()) {
            let answer = page.answer(self.reason.status(), language, headers);
            return answer.because(self.reason.details());
        }
        headers.extend([
            ("content-type", problem::MEDIA_TYPE),
            // An answer is valid for one user at one moment, so no cache may store it.
            ("cache-control", "no-store"),
        ]);
        let answer = Answer::new(self.reason.status(), &headers, self.problem());
        answer.because(self.reason.details())
    }

    /// The body: a problem (RFC 9457) with the types from the draft on `RateLimit` and the members of all gateway
    /// refusals. It is formatted by hand for speed during floods. Neither the texts nor rule names need escaping.
    fn problem(&self) -> String {
        let reason = self.reason;
        let (kind, title) = reason.problem();
        let mut body = String::with_capacity(384);
        body.push('{');
        match kind {
            Some(kind) => push_member(&mut body, "type", kind),
            None => push_type(&mut body, reason.label()),
        }
        push_member(&mut body, "title", title);
        body.push_str("\"status\":");
        body.push_str(reason.status_text());
        for (n, name) in self.violated.iter().enumerate() {
            body.push_str(if n == 0 {
                ",\"violated-policies\":[\""
            } else {
                "\",\""
            });
            body.push_str(name);
        }
        body.push_str(if self.violated.is_empty() {
            ","
        } else {
            "\"],"
        });
        push_member(&mut body, "error", reason.label());
        push_member(&mut body, "message", reason.message());
        body.pop();
        body.push('}');
        body
    }
}

/// Appends the `type` of one of Weir's own problems.
fn push_type(body: &mut String, word: &str) {
    for part in ["\"type\":\"", problem::TYPE_PREFIX, word, "\","] {
        body.push_str(part);
    }
}

/// Appends `"<name>":"<text>",`.
fn push_member(body: &mut String, name: &str, text: &str) {
    for part in ["\"", name, "\":\"", text, "\","] {
        body.push_str(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use weir_base::language::Language;

    const LIMITED: Reason = Reason::Limited { wait_ms: 1_500 };

    fn refused(reason: Reason) -> RefusedRequest {
        RefusedRequest {
            reason,
            fields: vec![("ratelimit", "\"r\";r=0;t=2".into())],
            violated: vec!["r".into()],
        }
    }

    fn header(answer: &Answer, name: &str) -> Option<String> {
        let value = answer.headers.get(name)?;
        Some(String::from_utf8(value.into_owned()).unwrap())
    }

    #[test]
    fn each_refusal_reason_has_a_status_and_retry_time() {
        for (reason, status, word, seconds) in [
            (LIMITED, 429, "rate_limited", Some("2")),
            (Reason::Denied, 403, "denied", None),
            (Reason::Unavailable, 503, "unavailable", Some("1")),
        ] {
            let answer = refused(reason).answer(Client::Program, None);
            assert_eq!((answer.status, answer.grpc_status), (status, None));
            assert_eq!(header(&answer, "retry-after").as_deref(), seconds);
            assert!(header(&answer, "ratelimit").is_some());
            let body = String::from_utf8(answer.body).unwrap();
            assert!(body.contains(word), "{body}");
        }
    }

    /// The draft's example, with the members of all gateway refusals.
    #[test]
    fn refusal_is_a_problem_document_that_names_its_policies() {
        let answer = refused(LIMITED).answer(Client::Program, None);
        let kind = header(&answer, "content-type");
        assert_eq!(kind.as_deref(), Some("application/problem+json"));
        let body = String::from_utf8(answer.body).unwrap();
        assert_eq!(
            body,
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["r"],"error":"rate_limited","message":"too many requests; please try again after Retry-After"}"#
        );
        let unavailable = refused(Reason::Unavailable).answer(Client::Program, None);
        let body = String::from_utf8(unavailable.body).unwrap();
        assert!(body.contains("#temporary-reduced-capacity"), "{body}");
        let denied = refused(Reason::Denied).answer(Client::Program, None);
        let body = String::from_utf8(denied.body).unwrap();
        assert!(
            body.starts_with(r#"{"type":"urn:weir:problem:denied","#),
            "{body}"
        );
    }

    #[test]
    fn grpc_client_gets_a_grpc_status_despite_configured_answer() {
        let config = AnswerConfig {
            status: 503,
            content_type: "text/html".into(),
            body: "<p>later</p>".into(),
        };
        for (reason, code) in [(LIMITED, 8), (Reason::Denied, 7), (Reason::Unavailable, 14)] {
            let answer = refused(reason).answer(Client::Grpc, Some(&config));
            assert_eq!((answer.status, answer.grpc_status), (200, Some(code)));
            assert_eq!(answer.body, reason.message().as_bytes());
            assert_eq!(header(&answer, "content-type"), None);
        }
    }

    #[test]
    fn configured_answer_applies_only_to_limit_refusals() {
        let config = AnswerConfig {
            status: 418,
            content_type: "text/plain".into(),
            body: "later".into(),
        };
        let limited = refused(LIMITED).answer(Client::Program, Some(&config));
        assert_eq!((limited.status, &limited.body[..]), (418, &b"later"[..]));
        assert_eq!(
            header(&limited, "content-type").as_deref(),
            Some("text/plain")
        );
        assert_eq!(
            header(&limited, "cache-control").as_deref(),
            Some("no-store")
        );
        let denied = refused(Reason::Denied).answer(Client::Program, Some(&config));
        assert_eq!(denied.status, 403);
    }

    #[test]
    fn browser_gets_a_page_with_the_retry_time() {
        let browser = Client::Browser(Language::German);
        for (reason, page) in [
            (LIMITED, Page::RateLimited),
            (Reason::Unavailable, Page::Unavailable),
        ] {
            let answer = refused(reason).answer(browser, None);
            assert_eq!(answer.status, reason.status());
            assert_eq!(answer.body, page.html(Language::German).as_bytes());
            assert_eq!(header(&answer, "retry-after"), reason.retry_after());
            assert!(header(&answer, "ratelimit").is_some());
            assert_eq!(answer.details, reason.details());
        }
        let denied = refused(Reason::Denied).answer(browser, None);
        assert_eq!(denied.body.first(), Some(&b'{'));
        let config = AnswerConfig {
            status: 418,
            content_type: "text/plain".into(),
            body: "later".into(),
        };
        let configured = refused(LIMITED).answer(browser, Some(&config));
        assert_eq!(
            configured.status, 418,
            "an operator's own answer comes first"
        );
    }
}
