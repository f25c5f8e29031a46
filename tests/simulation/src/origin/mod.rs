//! Origins: the same as `origin/sales/src`, on the same pure decisions, with the simulation's SQL and Redis.
//!
//! The code is asynchronous and follows the real one function by function. Each call of SQL or Redis is a separate step
//! here, too. Between any two steps, other tasks may run and the origin may die.

use std::cell::RefCell;
use std::rc::Rc;

use weir_base::headers;
use weir_base::id::{SaleId, UserId};
use weir_base::key::KeyRing;
use weir_sale::claim::Ticket;
use weir_sale::identity;

use self::changes::Changer;
use self::io::{Bus, Io, Response, SqlError, Work};
use self::ledger::Ledger;
use self::lost_orders::LostOrders;
use self::orders::{ClaimOutcome, Orders};
use self::publish::Publisher;
use self::rebuild::{Rebuilder, Warmer};
use self::reconcile::Reconciler;
use self::sites::Sites;
use self::verify::Verifier;
use crate::attempt::Attempt;
use crate::host::RequestId;
use crate::mutation::Mutation;
use crate::sql::{ClaimName, PayOutcome, Shortage, Sql};
use crate::world::RequestKind;

mod changes;
pub(crate) mod io;
mod ledger;
mod lost_orders;
mod orders;
mod publish;
mod rebuild;
pub(crate) mod reconcile;
mod sites;
mod verify;

/// The interval between two rounds of jobs.
const JOBS_PERIOD_MS: u64 = 500;

/// One origin. All its memory is in its running tasks.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    io: Io,
    orders: Orders,
    keys: Rc<KeyRing>,
}

/// A request as it arrives.
#[derive(Clone, Debug)]
pub(crate) struct ArrivedRequest {
    pub(crate) id: RequestId,
    pub(crate) kind: RequestKind,
    /// The client's key and body, which gateways pass on.
    pub(crate) attempt: Option<Attempt>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Origin {
    pub(crate) fn new(
        bus: &Rc<RefCell<Bus>>,
        (origin, site, sites): (usize, usize, u32),
        keys: &Rc<KeyRing>,
        sale: &SaleId,
        mutation: Option<Mutation>,
    ) -> Self {
        let io = Io {
            bus: Rc::clone(bus),
            origin,
            site,
            sites,
            mutation,
        };
        let ledger = Ledger {
            io: io.clone(),
            sale: sale.clone(),
        };
        Self {
            orders: Orders {
                io: io.clone(),
                ledger,
            },
            io,
            keys: Rc::clone(keys),
        }
    }

    /// Its background tasks, which never end.
    pub(crate) fn background(&self) -> Vec<Work> {
        let (io, ledger) = (self.io.clone(), self.orders.ledger.clone());
        let rebuilder = Rebuilder {
            io: io.clone(),
            ledger: ledger.clone(),
        };
        let publisher = Publisher {
            io: io.clone(),
            ledger: ledger.clone(),
            last: Rc::default(),
        };
        let warmer = Warmer {
            io: io.clone(),
            ledger: ledger.clone(),
            rebuilder: rebuilder.clone(),
            publisher: publisher.clone(),
        };
        let reconciler = Reconciler {
            io: io.clone(),
            ledger,
            orders: self.orders.clone(),
            verifier: Verifier {
                io: io.clone(),
                ledger: self.orders.ledger.clone(),
            },
            publisher: publisher.clone(),
            lost_orders: LostOrders {
                publisher: publisher.clone(),
                ..self.lost_orders()
            },
            rebuilder,
            last: None,
        };
        let mut background: Vec<Work> = vec![
            Box::pin(reconcile(reconciler)),
            Box::pin(jobs(
                io.clone(),
                self.orders.clone(),
                self.changer(),
                warmer,
            )),
            Box::pin(publisher.run()),
        ];
        if self.io.sites > 1 {
            let sites = Sites {
                io: self.io.clone(),
                ledger: self.orders.ledger.clone(),
                changer: self.changer(),
            };
            background.push(Box::pin(sites.run()));
        }
        background
    }

    /// Handles an operator's command about a site.
    pub(crate) fn change_site(&self, step: fn(&mut Sql, usize), site: usize) -> Work {
        let io = self.io.clone();
        Box::pin(async move {
            // An operator repeats a command that fails.
            for _ in 0..10 {
                if io.sql(move |sql: &mut Sql| step(sql, site)).await.is_ok() {
                    return;
                }
                io.sleep_ms(100).await;
            }
        })
    }

    fn changer(&self) -> Changer {
        Changer {
            io: self.io.clone(),
            ledger: self.orders.ledger.clone(),
        }
    }

    fn lost_orders(&self) -> LostOrders {
        let (io, ledger) = (self.io.clone(), self.orders.ledger.clone());
        LostOrders {
            publisher: Publisher {
                io: io.clone(),
                ledger: ledger.clone(),
                last: Rc::default(),
            },
            rebuilder: Rebuilder {
                io: io.clone(),
                ledger: ledger.clone(),
            },
            io,
            ledger,
        }
    }

    /// Handles an operator's decision about lost orders.
    pub(crate) fn decide_lost_orders(&self, restores: bool) -> Work {
        let lost_orders = self.lost_orders();
        Box::pin(async move {
            // If it fails, it continues when the operator retries.
            let _ = lost_orders.decide(restores).await;
        })
    }

    /// Handles an operator's change of the stock.
    pub(crate) fn change_stock(&self, key: u32, units: i64) -> Work {
        let changer = self.changer();
        Box::pin(async move {
            // If it fails, it continues with the jobs or when the operator retries.
            let _ = changer.change(key, units).await;
        })
    }

    /// Handles an operator's change of the end. The publisher detects that SQL has changed.
    pub(crate) fn move_end(&self, ends_at_ms: u64) -> Work {
        let io = self.io.clone();
        Box::pin(async move {
            let _ = io.sql(move |sql: &mut Sql| sql.move_end(ends_at_ms)).await;
        })
    }

    /// Handles an operator's refund of a user.
    pub(crate) fn refund(&self, user: UserId) -> Work {
        let orders = self.orders.clone();
        Box::pin(async move {
            // A failed refund is not repeated.
            let _ = orders.refund(user).await;
        })
    }

    /// Handles a request: a task that ends even if the client has gone.
    pub(crate) fn serve(&self, request: ArrivedRequest) -> Work {
        let origin = self.clone();
        Box::pin(async move {
            let id = request.id;
            let response = match request.kind {
                RequestKind::Buy => origin.order(&request).await,
                RequestKind::Pay(name) => origin.pay(&request, name).await,
                RequestKind::Cancel(name) => origin.cancel(&request, name).await,
            };
            origin.io.answer(id, response);
        })
    }

    async fn order(&self, request: &ArrivedRequest) -> Response {
        let Some(ticket) = self.ticket(request) else {
            return response(403, "claim_invalid", None);
        };
        match self.orders.decide(&ticket, request.attempt).await {
            Ok(ClaimOutcome::Ordered(order)) => response(201, "ordered", Some(order.name)),
            Ok(ClaimOutcome::OrderedBefore(order)) => {
                response(200, "ordered_before", Some(order.name))
            }
            Ok(ClaimOutcome::Released) => response(409, "claim_released", None),
            Ok(ClaimOutcome::Short(Shortage::SoldOut)) => response(409, "sold_out_in_sql", None),
            Ok(ClaimOutcome::Short(Shortage::UserCap)) => response(409, "user_cap", None),
            Ok(ClaimOutcome::Short(Shortage::Barred)) => response(403, "barred", None),
            Ok(ClaimOutcome::KeyReused) => response(422, "key_reused", None),
            Err(SqlError) => sql_failed(),
        }
    }

    /// The claim that a gateway signed.
    fn ticket(&self, request: &ArrivedRequest) -> Option<Ticket> {
        let claim = only(&request.headers, headers::CLAIM)?;
        let signature = only(&request.headers, headers::CLAIM_SIGNATURE)?;
        if !self.io.makes(Mutation::SignatureNotChecked) {
            self.keys.verify(claim, signature).ok()?;
        }
        Ticket::decode(claim).ok()
    }

    fn user(&self, request: &ArrivedRequest) -> Option<UserId> {
        let user = only(&request.headers, headers::USER)?;
        let signature = only(&request.headers, headers::USER_SIGNATURE)?;
        let now_ms = self.io.now_ms();
        identity::verify(&self.keys, user.as_bytes(), signature.as_bytes(), now_ms).ok()
    }

    async fn pay(&self, request: &ArrivedRequest, name: ClaimName) -> Response {
        let Some(user) = self.user(request) else {
            return response(403, "user_invalid", None);
        };
        match self.orders.pay(name, user).await {
            Ok(PayOutcome::Done(_)) => response(200, "paid", Some(name)),
            Ok(PayOutcome::Refused) => response(409, "not_payable", Some(name)),
            Err(SqlError) => sql_failed(),
        }
    }

    async fn cancel(&self, request: &ArrivedRequest, name: ClaimName) -> Response {
        let Some(user) = self.user(request) else {
            return response(403, "user_invalid", None);
        };
        match self.orders.cancel(name, user).await {
            Ok(Some(_)) => response(200, "cancelled", Some(name)),
            Ok(None) => response(409, "not_cancellable", Some(name)),
            Err(SqlError) => sql_failed(),
        }
    }
}

fn response(status: u16, word: &'static str, order: Option<ClaimName>) -> Response {
    Response {
        status,
        word,
        order,
    }
}

fn sql_failed() -> Response {
    response(503, "unavailable", None)
}

/// The header's value, which must occur exactly once.
fn only<'a>(headers: &'a [(&'static str, String)], name: &str) -> Option<&'a str> {
    let mut values = headers.iter().filter(|(existing, _)| *existing == name);
    match (values.next(), values.next()) {
        (Some((_, value)), None) => Some(value),
        _ => None,
    }
}

async fn reconcile(mut reconciler: Reconciler) {
    loop {
        // A failed round starts again.
        let _ = reconciler.round().await;
        reconciler.io.sleep_ms(reconcile::PERIOD_MS).await;
    }
}

/// See `origin/sales/src/jobs.rs`.
async fn jobs(io: Io, orders: Orders, changer: Changer, warmer: Warmer) {
    loop {
        // The next round repeats failed work.
        let _ = jobs_round(&io, &orders, &changer, &warmer).await;
        io.sleep_ms(JOBS_PERIOD_MS).await;
    }
}

async fn jobs_round(
    io: &Io,
    orders: &Orders,
    changer: &Changer,
    warmer: &Warmer,
) -> Result<(), SqlError> {
    let now_ms = io.now_ms();
    for order in io.sql(move |sql: &mut Sql| sql.expire(now_ms)).await? {
        orders.follow(&order).await;
    }
    // All sales, one after the other.
    let elsewhere = io.sql(|sql: &mut Sql| sql.unfollowed_elsewhere()).await?;
    if let Some(order) = elsewhere {
        orders.of_other_sale().follow(&order).await;
    }
    let site = io.site;
    let unfollowed = move |sql: &mut Sql| sql.unfollowed_at(site);
    for order in io.sql(unfollowed).await? {
        orders.follow(&order).await;
    }
    // If it is unfinished, the next round continues.
    let _ = changer.finish_all().await;
    // If it fails, the next round retries.
    let _ = warmer.warm().await;
    Ok(())
}
