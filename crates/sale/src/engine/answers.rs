//! The gate's own answers.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::admission::Rejection;
use crate::claim::ClaimId;
use crate::verdict::Verdict;
use serde::Serialize;
use weir_base::headers;
use weir_base::language::{ACCEPT_LANGUAGE, Language};
use weir_engine::answer::{Refusal, retry_after_seconds};
use weir_engine::{Answer, Request};

use crate::engine::checkout::ChallengeOffer;
use crate::engine::config::StaticPage;

/// The language that whoever asks likes best of those that there are.
pub(crate) fn language_of(request: &dyn Request) -> Language {
    let wanted = request.headers().get(ACCEPT_LANGUAGE);
    wanted.map_or_else(Language::default, |wanted| Language::accepted(&wanted))
}

/// The answers to refused requests.
#[derive(Debug)]
pub(crate) struct Answers {
    /// What `Retry-After` says when nothing tells how long to wait, in seconds.
    retry_after_s: u32,
    /// The answer to all requests for a sale that an operator has put behind it.
    static_page: StaticPage,
    /// The last answer of each verdict in each language, and the wait that it tells: most often the next is the same.
    last: BTreeMap<(Verdict, Language), (Option<u64>, Arc<Answer>)>,
}

impl Answers {
    pub(crate) fn new(retry_after_s: u32, static_page: StaticPage) -> Self {
        Self {
            retry_after_s,
            static_page,
            last: BTreeMap::new(),
        }
    }

    /// The answer to a refused request. `order` is the order that the user has already.
    pub(crate) fn reject(
        &mut self,
        rejection: Rejection,
        language: Language,
        order: Option<&ClaimId>,
    ) -> Arc<Answer> {
        let said = (rejection.verdict, language);
        let retry_after_s = self.retry_after_s(rejection);
        if order.is_some() {
            return Arc::new(self.prepare(said, retry_after_s, order));
        }
        match self.last.get(&said) {
            Some((told_s, answer)) if *told_s == retry_after_s => Arc::clone(answer),
            _ => {
                let answer = Arc::new(self.prepare(said, retry_after_s, None));
                let last = (retry_after_s, Arc::clone(&answer));
                self.last.insert(said, last);
                answer
            }
        }
    }

    /// The answer to somebody who must solve a challenge first.
    pub(crate) fn challenge(&self, offer: &ChallengeOffer, language: Language) -> Answer {
        let verdict = Verdict::ChallengeRequired;
        let mut headers = vec![(headers::VERDICT, verdict.word())];
        headers.extend(content_language(language));
        let refusal = refusal_of(verdict, language);
        let body = ChallengeBody {
            refusal: &refusal,
            challenge: offer,
        };
        Answer::refusal_with(headers, &refusal, &body)
    }

    fn prepare(
        &self,
        (verdict, language): (Verdict, Language),
        retry_after_s: Option<u64>,
        order: Option<&ClaimId>,
    ) -> Answer {
        let retry_after = retry_after_s.map(|seconds| seconds.to_string());
        let mut headers = vec![(headers::VERDICT, verdict.word())];
        headers.extend(content_language(language));
        let retry_after = retry_after.as_deref();
        headers.extend(retry_after.map(|seconds| ("retry-after", seconds)));
        if verdict == Verdict::StaticPage {
            return self.page(headers);
        }
        let refusal = Refusal {
            order: order.map(ClaimId::as_str),
            ..refusal_of(verdict, language)
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

/// What a refusal says in any case.
fn refusal_of(verdict: Verdict, language: Language) -> Refusal<'static> {
    Refusal {
        // Only verdicts with a status are answered; if one had none, it would be a fault of ours.
        status: verdict.status().unwrap_or(500),
        error: verdict.word(),
        message: verdict.message(language),
        order: None,
    }
}

/// The header that tells the language of a message, unless it is the usual one.
fn content_language(language: Language) -> Option<(&'static str, &'static str)> {
    (language != Language::English).then(|| ("content-language", language.tag()))
}

/// A refusal, and the challenge that is to be solved.
#[derive(Serialize)]
struct ChallengeBody<'a> {
    #[serde(flatten)]
    refusal: &'a Refusal<'a>,
    challenge: &'a ChallengeOffer,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At a flash sale nearly every answer is one of few: each is put together once.
    #[test]
    fn answers_that_say_the_same_are_one() {
        let page = StaticPage::default();
        let mut answers = Answers::new(7, page);
        let rejection = |wait_ms| Rejection {
            verdict: Verdict::RateLimited,
            retry_after_ms: Some(wait_ms),
        };
        let english = Language::English;
        let first = answers.reject(rejection(1_500), english, None);
        let again = answers.reject(rejection(2_000), english, None);
        assert!(Arc::ptr_eq(&first, &again), "two seconds, both");
        let later = answers.reject(rejection(2_001), english, None);
        assert_ne!(first, later);
        let sold_out = answers.reject(Verdict::SoldOut.into(), english, None);
        assert_ne!(sold_out, later);
        let german = answers.reject(rejection(3_000), Language::German, None);
        assert_ne!(later, german);
        let again = answers.reject(rejection(3_000), Language::German, None);
        assert!(Arc::ptr_eq(&german, &again));
        let again = answers.reject(rejection(3_000), english, None);
        assert!(Arc::ptr_eq(&later, &again), "each language has its own");
    }
}
