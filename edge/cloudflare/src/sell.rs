//! A purchase with stock in objects, or a click on a link whose clicks an object counts: the engine decides in this
//! isolate, and calls the objects.
//!
//! A request with a claim passes to the origin, as from a gateway. If the isolate crashes in between, the claim is
//! returned at its deadline, and a retry gets the same claim. A click used this way stays used.

use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use weir_base::headers::VERDICT;
use weir_edge::RequestOutcome;
use weir_edge::edge::Pairs;
use weir_edge::object_calls::{ObjectCall, PendingRequest};
use weir_edge::stock::ORDERS;
use weir_engine::event::PlainRequest;
use weir_engine::redis::{DefiniteFailure, Reply, UnknownFailure};
use worker::{
    Context, Date, Delay, Env, Method, Request, RequestInit, Response, Result, console_error,
};

use crate::client::text;
use crate::host::{self, with_site};
use crate::shard;

/// Maximum rounds of calls per request. A rebalance of a sale with many shards takes four.
const ROUNDS_MAX: usize = 32;

/// Maximum attempts of a call: a crashed object restarts immediately. Repeated commands have no further effect.
const TRIES_MAX: usize = 3;

/// Maximum attempts to return a click to an unavailable object, and their interval. The platform allows half a minute
/// of background work.
const BACKS_MAX: usize = 20;
const BACK_PAUSE: Duration = Duration::from_millis(500);

/// The answer to a request that has [begun](weir_edge::Edge::begin).
pub(crate) async fn sell(
    space: &str,
    request: Request,
    requested: &PlainRequest,
    mut pending: PendingRequest,
    (env, context): (&Env, &Context),
) -> Result<Response> {
    ask_all(space, &mut pending, env).await;
    let sold =
        with_site(space, |site| site.edge.request_outcome(&pending, requested)).ok_or("no edge")?;
    match sold {
        RequestOutcome::ToOrigin(headers) => {
            let origin = with_site(space, |site| site.upstreams.origin.clone());
            let url = format!("{}{ORDERS}", origin.unwrap_or_default());
            let received = host::forward(request, requested, &headers, &url).await;
            let status = received.as_ref().ok().map(Response::status_code);
            let now_ms = Date::now().as_millis();
            with_site(space, |site| site.edge.ended(&mut pending, status, now_ms));
            let (space, env) = (space.to_owned(), env.clone());
            // Returns are not awaited.
            context.wait_until(async move {
                ask_all(&space, &mut pending, &env).await;
                finish(&space, pending);
            });
            with_verdict(host::origin_response(received)?, &headers)
        }
        RequestOutcome::Answer(answer) => {
            settle(space, pending, env, context);
            host::sent(&answer, request.method().as_ref())
        }
        RequestOutcome::ToGateway(headers) => {
            settle(space, pending, env, context);
            host::to_gateway(space, request, requested, &headers).await
        }
    }
}

/// Adds the gate's verdict to the response, like the gateways' routes.
fn with_verdict(response: Response, headers: &Pairs) -> Result<Response> {
    let mut verdicts = headers.iter().filter(|(name, _)| name == VERDICT);
    if let Some((name, verdict)) = verdicts.next() {
        response.headers().set(name, &text(verdict))?;
    }
    Ok(response)
}

fn finish(space: &str, pending: PendingRequest) {
    with_site(space, |site| site.edge.finish(pending));
}

/// Returns an unused click in the background, if there is one.
fn settle(space: &str, mut pending: PendingRequest, env: &Env, context: &Context) {
    if !pending.owes() {
        return finish(space, pending);
    }
    let (space, env) = (space.to_owned(), env.clone());
    context.wait_until(async move {
        for _ in 0..BACKS_MAX {
            let now_ms = Date::now().as_millis();
            with_site(&space, |site| site.edge.ended(&mut pending, None, now_ms));
            ask_all(&space, &mut pending, &env).await;
            if !pending.owes() {
                break;
            }
            Delay::from(BACK_PAUSE).await;
        }
        finish(&space, pending);
    });
}

/// Sends calls until none are left.
async fn ask_all(space: &str, pending: &mut PendingRequest, env: &Env) {
    for _ in 0..ROUNDS_MAX {
        let asks = pending.take_asks();
        if asks.is_empty() {
            return;
        }
        let replies = asks.iter().map(|ask| in_time(space, ask, env));
        let replies = join_all(replies).await;
        let now_ms = Date::now().as_millis();
        with_site(space, |site| {
            for (ask, reply) in asks.iter().zip(replies) {
                site.edge.answered(pending, ask, reply, now_ms);
            }
        });
    }
}

async fn in_time(space: &str, ask: &ObjectCall, env: &Env) -> Reply {
    let limit = Delay::from(Duration::from_millis(ask.timeout_ms));
    let reply = std::pin::pin!(reply(space, ask, env));
    match select(reply, limit).await {
        Either::Left((Ok((200, replies)), _)) => Ok(replies),
        Either::Left((Ok((shard::REFUSED, _)), _)) => {
            let reason = format!("the object of {} refused the call", ask.object);
            Err(DefiniteFailure::Refused(reason).into())
        }
        Either::Left((Ok((status, _)), _)) => {
            let reason = format!("the object of {} answered {status}", ask.object);
            Err(UnknownFailure::LostAt(reason).into())
        }
        Either::Left((Err(error), _)) => {
            console_error!("weir: the object of {}: {error}", ask.object);
            Err(UnknownFailure::Lost.into())
        }
        Either::Right(_) => Err(UnknownFailure::Timeout.into()),
    }
}

/// The object's response: status and replies. After a crash of the object, its stub is unusable.
async fn reply(space: &str, ask: &ObjectCall, env: &Env) -> Result<(u16, Vec<u8>)> {
    let mut tries = 1;
    loop {
        match reply_once(space, ask, env).await {
            Err(_) if tries < TRIES_MAX => tries += 1,
            reply => return reply,
        }
    }
}

async fn reply_once(space: &str, ask: &ObjectCall, env: &Env) -> Result<(u16, Vec<u8>)> {
    let object = shard::object(space, &ask.object, env)?;
    let mut init = RequestInit::new();
    init.with_method(Method::Post)
        .with_body(Some(ask.commands.to_json().into()));
    let request = Request::new_with_init(shard::own_url(&ask.object)?.as_str(), &init)?;
    let mut response = object.fetch_with_request(request).await?;
    Ok((response.status_code(), response.bytes().await?))
}
