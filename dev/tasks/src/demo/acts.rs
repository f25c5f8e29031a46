//! The actions of people: reserve, try too early, check out, buy and pay.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use super::cast::Person;
use super::client::{DemoRequest, Line};
use super::crowd::CrowdAction;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use weir_sale::verdict::Verdict;
use weir_stack::http::{self, Method, Response};
use weir_stack::sale::verdict;

/// The paths of a sale.
#[derive(Debug)]
pub(super) struct Paths {
    pub(super) reservations: String,
    pub(super) checkout: String,
    pub(super) orders: String,
}

impl Paths {
    pub(super) fn for_sale(sale: &str) -> Arc<Self> {
        Arc::new(Self {
            reservations: format!("/sales/{sale}/reservations"),
            checkout: format!("/sales/{sale}/checkout"),
            orders: format!("/sales/{sale}/orders"),
        })
    }
}

/// Reserves for the user of this name. Returns whether the reservation was stored.
pub(super) struct Reserve(pub(super) Arc<Paths>);

impl CrowdAction for Reserve {
    type Who = String;
    type Outcome = bool;

    async fn play(&self, line: &mut Line, name: String) -> bool {
        let ask = DemoRequest {
            path: &self.0.reservations,
            user: &name,
            token: None,
            pass: None,
            good: "reserved",
        };
        line.ask(&ask)
            .await
            .is_some_and(|answer| answer.status < 300)
    }
}

/// Tries to buy before the start.
pub(super) struct TryEarly(pub(super) Arc<Paths>);

impl CrowdAction for TryEarly {
    type Who = String;
    type Outcome = ();

    async fn play(&self, line: &mut Line, name: String) {
        line.ask(&order(&self.0, &name, None)).await;
    }
}

/// Gets a token; returns the person with it, and the time from which it is valid.
pub(super) struct CheckOut(pub(super) Arc<Paths>);

impl CrowdAction for CheckOut {
    type Who = Person;
    type Outcome = (Person, Instant);

    async fn play(&self, line: &mut Line, mut person: Person) -> (Person, Instant) {
        let answer = line.ask(&check_out(&self.0, &person.name)).await;
        let (token, usable) = answer.as_ref().and_then(minted).unzip();
        person.token = token;
        (person, usable.unwrap_or_else(Instant::now))
    }
}

/// The checkout's token, and the time from which it is valid, by the server's clock.
pub(super) fn minted(answer: &Response) -> Option<(String, Instant)> {
    let body = answer.json().ok()?;
    let number = |name: &str| body[name].as_u64();
    let wait_ms = number("usable_at_ms")?.saturating_sub(number("now_ms")?);
    let usable = Instant::now() + Duration::from_millis(wait_ms);
    Some((body["token"].as_str()?.to_owned(), usable))
}

pub(super) fn check_out<'a>(paths: &'a Paths, user: &'a str) -> DemoRequest<'a> {
    DemoRequest {
        path: &paths.checkout,
        user,
        token: None,
        pass: None,
        good: "",
    }
}

pub(super) fn order<'a>(
    paths: &'a Paths,
    user: &'a str,
    token: Option<&'a str>,
) -> DemoRequest<'a> {
    DemoRequest {
        path: &paths.orders,
        user,
        token,
        pass: None,
        good: "ordered",
    }
}

/// The result of an attempt to buy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PurchaseOutcome {
    /// A paid order.
    Paid,
    /// An order that will not be paid.
    Unpaid,
    /// No unit was available.
    SoldOut,
    /// The gate refused this person.
    Refused,
    /// No final answer, or an unexpected one.
    Lost,
}

/// Buys, and pays immediately, because the hold is short.
pub(super) struct Buy(pub(super) Arc<Paths>);

impl CrowdAction for Buy {
    type Who = Person;
    type Outcome = (Person, PurchaseOutcome);

    async fn play(&self, line: &mut Line, mut person: Person) -> (Person, PurchaseOutcome) {
        let ask = order(&self.0, &person.name, person.token.as_deref());
        let Some(answer) = line.ask(&ask).await else {
            return (person, PurchaseOutcome::Lost);
        };
        let outcome = match ordered(&answer) {
            // Only once: a person who returns pays.
            Some(_) if std::mem::take(&mut person.forgets) => PurchaseOutcome::Unpaid,
            Some(order) => pay(line, &person.name, &order).await,
            None => unsold(&answer),
        };
        (person, outcome)
    }
}

/// The order in an answer: a new one, or the person's existing one.
fn ordered(answer: &Response) -> Option<String> {
    let has_order = answer.status < 300 || verdict(answer) == Verdict::CapReached.label();
    let body = has_order.then(|| answer.json().ok()).flatten()?;
    body["order"].as_str().map(str::to_owned)
}

fn unsold(answer: &Response) -> PurchaseOutcome {
    let verdict = Verdict::ALL
        .iter()
        .find(|existing| existing.label() == verdict(answer));
    match verdict {
        Some(Verdict::SoldOut | Verdict::AllReserved) => PurchaseOutcome::SoldOut,
        Some(Verdict::Blocked | Verdict::NotReserved) => PurchaseOutcome::Refused,
        _ => PurchaseOutcome::Lost,
    }
}

async fn pay(line: &mut Line, user: &str, order: &str) -> PurchaseOutcome {
    let ask = DemoRequest {
        path: &format!("/orders/{order}/pay"),
        user,
        token: None,
        pass: None,
        good: "started",
    };
    let started = line.ask(&ask).await;
    let pay_url = started.as_ref().and_then(|answer| {
        let body = answer.json().ok()?;
        Some(body["pay_url"].as_str()?.to_owned())
    });
    let Some(pay_url) = pay_url else {
        // Too late or unknown: it expires unless the payment still succeeds.
        return PurchaseOutcome::Unpaid;
    };
    // The payment goes to the provider, which notifies the shop.
    let response = http::send(Method::POST, &pay_url, &[], "").await;
    let response = response.ok().and_then(|answer| answer.json().ok());
    match response.as_ref().and_then(|body| body["state"].as_str()) {
        Some("paid") => PurchaseOutcome::Paid,
        _ => PurchaseOutcome::Unpaid,
    }
}
