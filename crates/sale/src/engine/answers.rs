//! The gate's own answers.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::admission::Rejection;
use crate::claim::ClaimId;
use crate::verdict::Verdict;
use serde::Serialize;
use weir_base::accept::ACCEPT;
use weir_base::headers;
use weir_base::id::SaleId;
use weir_base::language::{ACCEPT_LANGUAGE, Language};
use weir_engine::answer::{Refusal, retry_after_seconds};
use weir_engine::page::{Page, Reader, wants_page};
use weir_engine::{Answer, Request};

use crate::engine::checkout::ChallengeOffer;
use crate::engine::config::StaticPage;

/// The reader of the answer to a request.
pub(crate) fn reader_of(request: &dyn Request) -> Reader {
    let [language, accept] = request.headers().get_each([ACCEPT_LANGUAGE, ACCEPT]);
    read_reader(language.as_deref(), accept.as_deref())
}

/// The reader by these headers.
pub(crate) fn read_reader(language: Option<&[u8]>, accept: Option<&[u8]>) -> Reader {
    Reader {
        language: language.map_or_else(Language::default, Language::accepted),
        wants_page: accept.is_some_and(wants_page),
    }
}

/// The browser page for a verdict. Other verdicts have none: the shop's own page shows them from JSON.
const fn page_of(verdict: Verdict) -> Option<Page> {
    match verdict {
        Verdict::Overloaded => Some(Page::Overloaded),
        Verdict::Unavailable => Some(Page::Unavailable),
        Verdict::RateLimited => Some(Page::RateLimited),
        _ => None,
    }
}

/// The answers to refused requests.
#[derive(Debug)]
pub(crate) struct Answers {
    /// The default of `Retry-After`, in seconds.
    retry_after_s: u32,
    /// The page for sales with `static_page`.
    static_page: StaticPage,
    /// The last answer of each verdict and reader, and its waiting time: usually the next answer is equal.
    last: BTreeMap<(Verdict, Reader), (Option<u64>, Arc<Answer>)>,
}

impl Answers {
    pub(crate) fn new(retry_after_s: u32, static_page: StaticPage) -> Self {
        Self {
            retry_after_s,
            static_page,
            last: BTreeMap::new(),
        }
    }

    /// The answer to a refused request. `order` is the user's existing order.
    pub(crate) fn reject(
        &mut self,
        rejection: Rejection,
        reader: Reader,
        order: Option<&ClaimId>,
    ) -> Arc<Answer> {
        let response = (rejection.verdict, reader);
        let retry_after_s = self.retry_after_s(rejection);
        if order.is_some() {
            return Arc::new(self.prepare(response, retry_after_s, order));
        }
        match self.last.get(&response) {
            Some((told_s, answer)) if *told_s == retry_after_s => Arc::clone(answer),
            _ => {
                let answer = Arc::new(self.prepare(response, retry_after_s, None));
                let last = (retry_after_s, Arc::clone(&answer));
                self.last.insert(response, last);
                answer
            }
        }
    }

    /// The answer with a challenge.
    pub(crate) fn challenge(&self, offer: &ChallengeOffer, language: Language) -> Answer {
        let verdict = Verdict::ChallengeRequired;
        let mut headers = vec![(headers::VERDICT, verdict.label())];
        headers.extend(content_language(language));
        let refusal = refusal_of(verdict, language);
        let body = ChallengeBody {
            refusal: &refusal,
            challenge: offer,
        };
        Answer::refusal_with(headers, &refusal, &body)
    }

    /// The answer to a normal order for this sale's SKU. `orders` is the path of the sale's orders.
    pub(crate) fn in_sale(&self, sale: &SaleId, orders: &str, language: Language) -> Answer {
        let verdict = Verdict::SkuInSale;
        let mut headers = vec![(headers::VERDICT, verdict.label())];
        headers.extend(content_language(language));
        let refusal = refusal_of(verdict, language);
        let body = InSaleBody {
            refusal: &refusal,
            sale,
            orders,
        };
        Answer::refusal_with(headers, &refusal, &body)
    }

    fn prepare(
        &self,
        (
            verdict,
            Reader {
                language,
                wants_page,
            },
        ): (Verdict, Reader),
        retry_after_s: Option<u64>,
        order: Option<&ClaimId>,
    ) -> Answer {
        let retry_after = retry_after_s.map(|seconds| seconds.to_string());
        let mut headers = vec![(headers::VERDICT, verdict.label())];
        let retry_after = retry_after.as_deref();
        headers.extend(retry_after.map(|seconds| ("retry-after", seconds)));
        let refusal = refusal_of(verdict, language);
        if let Some(page) = page_of(verdict).filter(|_| wants_page) {
            let answer = page.answer(refusal.status, language, headers);
            return answer.because(format!("weir_{}", verdict.label()));
        }
        headers.extend(content_language(language));
        if verdict == Verdict::StaticPage {
            return self.page(headers);
        }
        let refusal = Refusal {
            order: order.map(ClaimId::as_str),
            ..refusal
        };
        Answer::refusal(headers, &refusal)
    }

    fn retry_after_s(&self, rejection: Rejection) -> Option<u64> {
        match rejection.retry_after_ms {
            Some(wait_ms) => Some(retry_after_seconds(wait_ms)),
            None if rejection.verdict.may_be_retried() => Some(self.retry_after_s.into()),
            None => None,
        }
    }

    fn page<'a>(&'a self, mut headers: Vec<(&'a str, &'a str)>) -> Answer {
        let page = &self.static_page;
        headers.extend([
            ("content-type", page.content_type.as_str()),
            ("cache-control", "no-store"),
        ]);
        Answer::new(page.status, &headers, page.body.as_bytes()).because("weir_static_page")
    }
}

/// The content of a refusal.
fn refusal_of(verdict: Verdict, language: Language) -> Refusal<'static> {
    Refusal {
        // Only verdicts with a status are answered; 500 would indicate a bug.
        status: verdict.status().unwrap_or(500),
        error: verdict.label(),
        message: verdict.message(language),
        order: None,
    }
}

/// The `Content-Language` header, unless the language is the default.
fn content_language(language: Language) -> Option<(&'static str, &'static str)> {
    (language != Language::English).then(|| ("content-language", language.tag()))
}

/// A refusal with a challenge.
#[derive(Serialize)]
struct ChallengeBody<'a> {
    #[serde(flatten)]
    refusal: &'a Refusal<'a>,
    challenge: &'a ChallengeOffer,
}

/// A refusal with the sale to order from.
#[derive(Serialize)]
struct InSaleBody<'a> {
    #[serde(flatten)]
    refusal: &'a Refusal<'a>,
    sale: &'a SaleId,
    orders: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    /// At a flash sale nearly all answers are equal, so each is built once.
    #[test]
    fn equal_answers_share_one_allocation() {
        let page = StaticPage::default();
        let mut answers = Answers::new(7, page);
        let rejection = |wait_ms| Rejection {
            verdict: Verdict::RateLimited,
            retry_after_ms: Some(wait_ms),
        };
        let english = Reader::default();
        let first = answers.reject(rejection(1_500), english, None);
        let again = answers.reject(rejection(2_000), english, None);
        assert!(Arc::ptr_eq(&first, &again), "two seconds, both");
        let later = answers.reject(rejection(2_001), english, None);
        assert_ne!(first, later);
        let sold_out = answers.reject(Verdict::SoldOut.into(), english, None);
        assert_ne!(sold_out, later);
        let german_reader = Reader {
            language: Language::German,
            ..english
        };
        let german = answers.reject(rejection(3_000), german_reader, None);
        assert_ne!(later, german);
        let again = answers.reject(rejection(3_000), german_reader, None);
        assert!(Arc::ptr_eq(&german, &again));
        let again = answers.reject(rejection(3_000), english, None);
        assert!(Arc::ptr_eq(&later, &again), "each language has its own");
    }

    #[test]
    fn browsers_get_a_page_and_api_clients_get_json() {
        let mut answers = Answers::new(7, StaticPage::default());
        let browser = Reader {
            language: Language::German,
            wants_page: true,
        };
        let text = |answer: &Answer, name: &str| {
            let value = answer.headers.get(name)?;
            Some(String::from_utf8_lossy(&value).into_owned())
        };
        for (verdict, page) in [
            (Verdict::Overloaded, Page::Overloaded),
            (Verdict::Unavailable, Page::Unavailable),
            (Verdict::RateLimited, Page::RateLimited),
        ] {
            let answer = answers.reject(verdict.into(), browser, None);
            assert_eq!(answer.body, page.html(Language::German).as_bytes());
            assert_eq!(Some(answer.status), verdict.status());
            assert_eq!(answer.details, format!("weir_{}", verdict.label()));
            let kind = text(&answer, "content-type");
            assert_eq!(kind.as_deref(), Some("text/html; charset=utf-8"));
            assert_eq!(
                text(&answer, headers::VERDICT).as_deref(),
                Some(verdict.label())
            );
            let program = answers.reject(verdict.into(), Reader::default(), None);
            assert!(program.body.starts_with(b"{"));
            let waits = [&answer, &program].map(|answer| text(answer, "retry-after"));
            assert_eq!(waits[0], waits[1]);
        }
        let sold_out = answers.reject(Verdict::SoldOut.into(), browser, None);
        assert!(sold_out.body.starts_with(b"{"));
    }
}
