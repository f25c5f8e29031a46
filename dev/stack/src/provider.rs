//! A payment provider, as shops use them: buyers pay there, and it notifies the shop with signed callbacks until the
//! shop confirms.
//!
//! It signs callbacks by the documentation, and shares no code with the origin that verifies them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::http::{self, Method, Response};
use crate::server::{Answer, LocalServer};

/// The ID of its key, which the origin gets as `--payment-key-id`.
pub const KEY_ID: &str = "p1";

/// The path where buyers pay, followed by the payment's name.
const CHECKOUT: &str = "/checkout/";

/// The pause before a callback is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The maximum number of attempts per callback.
const TRIES_MAX: u32 = 100;

/// A running provider. Dropping it stops it.
#[derive(Debug)]
pub struct PaymentProvider {
    url: String,
    caller: Caller,
    _server: LocalServer,
}

/// Sends callbacks to the shop.
#[derive(Clone)]
pub struct Caller {
    callback_url: Arc<str>,
    secret: Arc<str>,
    events: Arc<AtomicU64>,
}

/// The secret stays out of logs.
impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Caller({})", self.callback_url)
    }
}

impl PaymentProvider {
    /// Listens on 127.0.0.1:`port`, and calls back at `callback_url`. Must be called on a tokio runtime, which then
    /// runs it.
    pub async fn start(port: u16, callback_url: &str, secret: &str) -> Result<Self> {
        let caller = Caller {
            callback_url: callback_url.into(),
            secret: secret.into(),
            events: Arc::default(),
        };
        let shop = caller.clone();
        let server = LocalServer::start(port, move |request| answer(shop.clone(), request));
        let server = server.await.context("cannot start the payment provider")?;
        Ok(Self {
            url: url(port),
            _server: server,
            caller,
        })
    }

    /// Its URL, `http://127.0.0.1:<port>`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its sender of callbacks.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// The payment URL to configure in a shop, for a provider on this port.
pub(crate) fn pay_url(port: u16) -> String {
    format!("{}{CHECKOUT}{{payment}}", url(port))
}

impl Caller {
    /// Notifies the shop that a payment succeeded or failed, and retries as needed. Returns the shop's response.
    ///
    /// # Errors
    /// The shop does not respond, or keeps requesting retries.
    pub async fn notify_shop(&self, payment: &str, state: &str) -> Result<Response> {
        let event = format!("{payment}-e{}", self.events.fetch_add(1, Ordering::Relaxed));
        let body = json!({ "event": event, "payment": payment, "state": state }).to_string();
        for _ in 0..TRIES_MAX {
            // Signed for each attempt, because a signature is valid only for minutes.
            if let Ok(answer) = self.send(&body, now_s()?).await
                && answer.status < 500
                && answer.status != 429
            {
                return Ok(answer);
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        anyhow::bail!("{} does not accept the callback", self.callback_url)
    }

    /// Sends this body once, signed for the time `at_s`, in seconds since the Unix epoch.
    ///
    /// # Errors
    /// No response arrives.
    pub async fn send(&self, body: &str, at_s: u64) -> Result<Response> {
        let timestamp = at_s.to_string();
        let signature = sign(&self.secret, &timestamp, body)?;
        let headers = [
            ("content-type", "application/json"),
            ("x-weir-payment-timestamp", timestamp.as_str()),
            ("x-weir-payment-signature", signature.as_str()),
        ];
        http::send(Method::POST, &self.callback_url, &headers, body.to_owned()).await
    }
}

fn sign(secret: &str, timestamp: &str, body: &str) -> Result<String> {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())?;
    let mac = mac
        .chain_update(timestamp)
        .chain_update(".")
        .chain_update(body);
    Ok(format!(
        "{KEY_ID};{}",
        crate::wasm::hex(&mac.finalize().into_bytes())
    ))
}

/// The time for signatures, in seconds since the Unix epoch.
///
/// # Errors
/// The clock is before 1970.
pub fn now_s() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

/// The page of a payment, with `{{title}}`, `{{payment}}` and `{{content}}`.
const PAGE: &str = include_str!("provider/page.html");

/// The buttons of an undecided payment.
const BUTTONS: &str = "<form method=\"post\"><button name=\"state\" value=\"paid\">Pay</button>\
     <button name=\"state\" value=\"failed\">Decline</button></form>";

/// The maximum length of a form.
const FORM_LEN_MAX: usize = 1_024;

/// `/checkout/<payment>`: `GET` shows a page with the buttons "Pay" and "Decline"; `POST` pays, or declines with the form
/// field `state=failed`. The response to `POST` follows the shop's confirmation.
async fn answer(caller: Caller, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let Some(payment) = path.strip_prefix(CHECKOUT).filter(|name| is_name(name)) else {
        return refusal(StatusCode::NOT_FOUND, "not_found", "nothing to pay here");
    };
    match *request.method() {
        Method::GET | Method::HEAD => page("Pay for your order", payment, BUTTONS),
        Method::POST => decide(&caller, payment, request).await,
        _ => {
            let message = "open this address in a browser, or pay with POST";
            let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, "no_method", message);
            let allowed = HeaderValue::from_static("GET, HEAD, POST");
            answer.headers_mut().insert(ALLOW, allowed);
            answer
        }
    }
}

/// Whether it may be a payment's name, which needs no escaping in HTML.
fn is_name(payment: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    !payment.is_empty() && payment.bytes().all(is_plain)
}

async fn decide(caller: &Caller, payment: &str, request: Request<Incoming>) -> Answer {
    let accept = request.headers().get(ACCEPT);
    let is_browser = accept.is_some_and(|accept| accept.as_bytes().starts_with(b"text/html"));
    let form = Limited::new(request.into_body(), FORM_LEN_MAX)
        .collect()
        .await;
    let Ok(form) = form.map(Collected::to_bytes) else {
        return refusal(
            StatusCode::BAD_REQUEST,
            "invalid_form",
            "send state=paid or state=failed",
        );
    };
    let state = match form.as_ref() {
        b"" | b"state=paid" => "paid",
        b"state=failed" => "failed",
        _ => {
            return refusal(
                StatusCode::BAD_REQUEST,
                "invalid_form",
                "send state=paid or state=failed",
            );
        }
    };
    let shop = match confirmed(caller, payment, state).await {
        Ok(shop) => shop,
        Err(error) => return refusal(StatusCode::BAD_GATEWAY, "not_paid", &format!("{error:#}")),
    };
    match (is_browser, shop.json()) {
        (true, Ok(shop)) => {
            let title = match shop.get("state").and_then(Value::as_str) {
                Some("paid") => "Paid",
                Some("failed") => "Declined",
                _ => "Paid too late: your money will be returned",
            };
            page(
                title,
                payment,
                "<p>You can close this page and return to the shop.</p>",
            )
        }
        _ => hyper::Response::new(Full::new(shop.body)),
    }
}

/// The shop's confirmation.
async fn confirmed(caller: &Caller, payment: &str, state: &str) -> Result<Response> {
    let reply = caller.notify_shop(payment, state).await?;
    ensure!(
        reply.status == 200,
        "the shop answered {}: {}",
        reply.status,
        reply.text()
    );
    Ok(reply)
}

fn page(title: &str, payment: &str, content: &str) -> Answer {
    let page = PAGE
        .replace("{{title}}", title)
        .replace("{{payment}}", payment)
        .replace("{{content}}", content);
    let mut answer = hyper::Response::new(Full::new(page.into()));
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, html);
    answer
}

fn refusal(status: StatusCode, error: &str, message: &str) -> Answer {
    let body = json!({ "error": error, "message": message });
    let mut answer = hyper::Response::new(Full::new(body.to_string().into()));
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shop that confirms the state of each callback.
    async fn shop(request: Request<Incoming>) -> Answer {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let callback: Value = serde_json::from_slice(&body).unwrap();
        let state = json!({ "state": callback["state"] });
        hyper::Response::new(Full::new(state.to_string().into()))
    }

    #[tokio::test]
    async fn buyer_pays_or_declines_on_the_payment_page() {
        let shop = LocalServer::start(0, shop).await.unwrap();
        let callback = format!("http://{}/", shop.address());
        let port = crate::ports::free().unwrap();
        let provider = PaymentProvider::start(port, &callback, "secret")
            .await
            .unwrap();
        let pay_url = pay_url(port).replace("{payment}", "shoes.3.17.p1");
        assert!(pay_url.starts_with(provider.url()));
        let send = async |method: Method, body: &'static str| {
            let browser = [("accept", "text/html,*/*")];
            http::send(method, &pay_url, &browser, body).await.unwrap()
        };
        let page = send(Method::GET, "").await;
        assert_eq!(page.status, 200);
        assert!(page.text().contains(">Pay</button>"), "{}", page.text());
        assert!(page.text().contains(">Decline</button>"));
        for (body, title) in [("state=paid", "Paid"), ("state=failed", "Declined")] {
            let page = send(Method::POST, body).await;
            assert!(page.text().contains(&format!("<h1>{title}</h1>")), "{body}");
        }
        assert_eq!(send(Method::POST, "state=other").await.status, 400);
        let refused = send(Method::PUT, "").await;
        assert_eq!(refused.status, 405);
        assert_eq!(refused.header("allow"), Some("GET, HEAD, POST"));
        // Programs pay with an empty POST, and get the shop's confirmation.
        let paid = http::send(Method::POST, &pay_url, &[], "").await.unwrap();
        assert_eq!(paid.json().unwrap()["state"], "paid");
    }
}
