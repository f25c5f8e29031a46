//! Verifies CAPTCHA responses with the provider.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::admission::Rejection;
use crate::verdict::Verdict;
use serde::Deserialize;
use weir_base::headers::CAPTCHA;
use weir_engine::event::FetchResponse;
use weir_engine::metrics::Counters;
use weir_engine::{Effects, Fetch, FetchId, Request, StreamId};

use crate::engine::checkout::{ChallengeOffer, CheckoutStep};
use crate::engine::config::{Captcha, UnreachablePolicy};
use crate::engine::job::Shopper;
use crate::engine::metrics::ChallengeOutcome;

/// The maximum length of a CAPTCHA response in bytes, above that of every provider.
const CAPTCHA_LEN_MAX: usize = 4 * 1_024;

/// The maximum number of requests per worker that wait for a provider.
const WAITING_MAX: usize = 1_024;

/// The maximum length of a provider's answer in bytes.
const ANSWER_LEN_MAX: usize = 16 * 1_024;

/// The CAPTCHA state of one worker, with the waiting shoppers.
#[derive(Debug)]
pub(crate) struct Captchas {
    /// `None`: no provider is configured.
    settings: Option<Captcha>,
    challenges: Counters<ChallengeOutcome>,
    waiting: BTreeMap<FetchId, (StreamId, Shopper)>,
}

/// The field of the provider's answer that is read.
#[derive(Deserialize)]
struct ProviderAnswer {
    success: bool,
}

impl Captchas {
    pub(crate) fn new(settings: Option<Captcha>, challenges: Counters<ChallengeOutcome>) -> Self {
        Self {
            settings,
            challenges,
            waiting: BTreeMap::new(),
        }
    }

    /// Decides on a request by its CAPTCHA response.
    pub(crate) fn decide(&self, request: &dyn Request) -> CheckoutStep {
        // Without a provider no response can be verified; the gate logs this with every new catalogue.
        let Some(captcha) = &self.settings else {
            return CheckoutStep::Refuse(Verdict::Unavailable.into());
        };
        let solution = request.header(CAPTCHA);
        let outcome = match solution.as_deref().map(read_captcha) {
            Some(Some(solution)) => {
                let address = request.peer_address();
                return CheckoutStep::CheckCaptcha { solution, address };
            }
            Some(None) => ChallengeOutcome::CaptchaRefused,
            None => ChallengeOutcome::Asked,
        };
        self.challenges.increment(outcome);
        offer(captcha)
    }

    /// Sends a solution to the provider, which accepts each solution once.
    pub(crate) fn check(
        &mut self,
        stream: StreamId,
        shopper: &Shopper,
        solution: &str,
        address: &[u8],
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let captcha = self.settings.as_ref().ok_or(Verdict::Unavailable)?;
        if self.waiting.len() >= WAITING_MAX {
            return Err(Verdict::Overloaded.into());
        }
        let fetch = effects.fetch(question(captcha, solution, address));
        self.waiting.insert(fetch, (stream, shopper.clone()));
        Ok(())
    }

    /// Handles the provider's answer or failure. Returns the next step for the waiting shopper.
    pub(crate) fn checked(
        &mut self,
        fetch: FetchId,
        response: Option<&FetchResponse>,
        now_ms: u64,
    ) -> Option<(StreamId, Shopper, CheckoutStep)> {
        let (stream, shopper) = self.waiting.remove(&fetch)?;
        let captcha = self.settings.as_ref()?;
        let mint = CheckoutStep::Mint {
            at_ms: now_ms,
            in_shadow: None,
        };
        let (outcome, step) = match response.and_then(provider_verdict) {
            Some(true) => (ChallengeOutcome::Solved, mint),
            Some(false) => (ChallengeOutcome::CaptchaRefused, offer(captcha)),
            None => {
                let step = match captcha.if_unreachable {
                    UnreachablePolicy::Pass => mint,
                    UnreachablePolicy::Refuse => CheckoutStep::Refuse(Verdict::Unavailable.into()),
                };
                (ChallengeOutcome::CaptchaUnreachable, step)
            }
        };
        self.challenges.increment(outcome);
        Some((stream, shopper, step))
    }

    /// Removes a stream that has ended.
    pub(crate) fn forget(&mut self, stream: StreamId) {
        self.waiting.retain(|_, (waits, _)| *waits != stream);
    }
}

/// Offers the CAPTCHA to the page.
fn offer(captcha: &Captcha) -> CheckoutStep {
    CheckoutStep::Challenge(ChallengeOffer::Captcha {
        site_key: captcha.site_key.clone(),
    })
}

/// The CAPTCHA response in a header, if it is well formed.
fn read_captcha(value: &[u8]) -> Option<String> {
    let is_good =
        (1..=CAPTCHA_LEN_MAX).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
    let text = core::str::from_utf8(value).ok().filter(|_| is_good)?;
    Some(text.to_string())
}

/// The provider's verdict, if its answer is readable.
fn provider_verdict(response: &FetchResponse) -> Option<bool> {
    let is_answer = response.status == 200 && response.body.len() <= ANSWER_LEN_MAX;
    let checked = is_answer.then(|| serde_json::from_slice::<ProviderAnswer>(&response.body));
    Some(checked?.ok()?.success)
}

fn question(captcha: &Captcha, solution: &str, address: &[u8]) -> Fetch {
    let mut form = String::from("secret=");
    encode(&captcha.secret.0, &mut form);
    form.push_str("&response=");
    encode(solution, &mut form);
    if captcha.tells_address
        && let Some(address) = without_port(address)
    {
        form.push_str("&remoteip=");
        encode(address, &mut form);
    }
    Fetch {
        cluster: captcha.cluster.clone(),
        headers: Vec::from([
            (":method", "POST".to_string()),
            (":path", captcha.path.clone()),
            (":authority", captcha.host.clone()),
            (
                "content-type",
                "application/x-www-form-urlencoded".to_string(),
            ),
            ("content-length", form.len().to_string()),
            ("accept", "application/json".to_string()),
        ]),
        body: form.into_bytes().into(),
        timeout_ms: captcha.timeout_ms,
    }
}

/// The address of `address:port` or `[address]:port`.
fn without_port(peer: &[u8]) -> Option<&str> {
    let peer = core::str::from_utf8(peer).ok()?;
    let (address, _port) = peer.rsplit_once(':')?;
    let address = address.trim_start_matches('[').trim_end_matches(']');
    Some(address).filter(|address| !address.is_empty())
}

/// Appends `text` as a form value.
fn encode(text: &str, form: &mut String) {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                form.push(char::from(byte));
            }
            byte => {
                let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or('0');
                form.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn form_value_is_percent_encoded() {
        let mut form = String::new();
        encode("aZ0-._~ &=%+/\u{fc}", &mut form);
        assert_eq!(form, "aZ0-._~%20%26%3D%25%2B%2F%C3%BC");
    }

    #[test]
    fn port_is_stripped_from_the_client_address() {
        for (peer, address) in [
            (&b"192.0.2.1:4711"[..], Some("192.0.2.1")),
            (b"[2001:db8::1]:443", Some("2001:db8::1")),
            (b"", None),
            (b":1", None),
            (b"\xff:1", None),
        ] {
            assert_eq!(without_port(peer), address);
        }
    }

    #[test]
    fn only_an_explicit_captcha_provider_verdict_is_accepted() {
        let response = |status, body: &[u8]| {
            provider_verdict(&FetchResponse {
                status,
                headers: vec![],
                body: body.to_vec(),
            })
        };
        assert_eq!(
            response(200, br#"{"success":true,"hostname":"a"}"#),
            Some(true)
        );
        assert_eq!(
            response(200, br#"{"success":false,"error-codes":["x"]}"#),
            Some(false)
        );
        assert_eq!(response(500, br#"{"success":true}"#), None);
        assert_eq!(response(200, b"<html>"), None);
        assert_eq!(response(200, br#"{"success":"true"}"#), None);
        let mut long = br#"{"success":true}"#.to_vec();
        long.resize(ANSWER_LEN_MAX + 1, b' ');
        assert_eq!(response(200, &long), None);
    }
}
