//! A payment provider, as shops use them: buyers pay there, and it notifies the shop with signed callbacks until the
//! shop confirms.
//!
//! It signs callbacks by the documentation, and shares no code with the origin that verifies them.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use sha2::Sha256;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::http::{self, Method, Response};

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
    accepting: JoinHandle<()>,
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
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .with_context(|| format!("the payment provider cannot listen on port {port}"))?;
        let caller = Caller {
            callback_url: callback_url.into(),
            secret: secret.into(),
            events: Arc::default(),
        };
        Ok(Self {
            url: url(port),
            accepting: tokio::spawn(accept(listener, caller.clone())),
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

impl Drop for PaymentProvider {
    fn drop(&mut self) {
        // The connections are tasks of its `JoinSet`, and end with it.
        self.accepting.abort();
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

async fn accept(listener: TcpListener, caller: Caller) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted {
                    connections.spawn(serve(client, caller.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(client: TcpStream, caller: Caller) {
    let service = service_fn(move |request| answer(caller.clone(), request));
    let connection = hyper::server::conn::http1::Builder::new();
    // Errors of clients that disconnect are ignored.
    connection
        .serve_connection(TokioIo::new(client), service)
        .await
        .ok();
}

/// `POST /checkout/<payment>`: the buyer pays. The response follows the shop's confirmation.
async fn answer(
    caller: Caller,
    request: Request<Incoming>,
) -> Result<hyper::Response<Full<Bytes>>, hyper::Error> {
    let (status, body) = match checkout(&caller, &request).await {
        Ok(reply) => (StatusCode::OK, reply.body),
        Err(error) => {
            let body = json!({ "error": "not_paid", "message": format!("{error:#}") });
            (StatusCode::BAD_GATEWAY, body.to_string().into())
        }
    };
    let mut response = hyper::Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}

async fn checkout(caller: &Caller, request: &Request<Incoming>) -> Result<Response> {
    ensure!(request.method() == Method::POST, "pay with POST");
    let payment = request.uri().path().strip_prefix(CHECKOUT);
    let payment = payment.context("nothing to pay here")?;
    let reply = caller.notify_shop(payment, "paid").await?;
    ensure!(
        reply.status == 200,
        "the shop answered {}: {}",
        reply.status,
        reply.text()
    );
    Ok(reply)
}
