//! Resuming, answering and closing streams, and the effective context: calls that affect the wrong stream if a filter
//! is careless.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use wasmtime::Linker;

use super::{Guest, Outcome, VmData, call, read, target, world};
use crate::abi::{Headers, Status};
use crate::http::LocalReply;
use crate::world::{Action, ContextId, Direction, Owner, StreamId};

pub(crate) fn link(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap("env", "proxy_set_effective_context", |g: Guest<'_>, id| {
        call(g, "proxy_set_effective_context", |g| set_effective(g, id))
    })?;
    linker.func_wrap("env", "proxy_continue_stream", |g: Guest<'_>, stream| {
        call(g, "proxy_continue_stream", |g| resume(g, stream))
    })?;
    linker.func_wrap("env", "proxy_close_stream", |g: Guest<'_>, stream| {
        call(g, "proxy_close_stream", |g| close(g, stream))
    })?;
    linker.func_wrap(
        "env",
        "proxy_send_local_response",
        |g: Guest<'_>,
         status: u32,
         details: u32,
         details_size: u32,
         body: u32,
         body_size: u32,
         headers: u32,
         headers_size: u32,
         grpc: i32| {
            call(g, "proxy_send_local_response", |g| {
                let details = read(g, details, details_size)?;
                let body = read(g, body, body_size)?;
                let extra = Headers::decode(&read(g, headers, headers_size)?);
                let details = String::from_utf8_lossy(&details).into_owned();
                let reply = LocalReply::new(status, extra.unwrap_or_default(), body, grpc, details);
                answer(g, reply)
            })
        },
    )?;
    linker.func_wrap("env", "proxy_done", |g: Guest<'_>| {
        call(g, "proxy_done", |g| done(g))
    })?;
    Ok(())
}

/// Refuses an id that no longer exists. The previous effective context stays, which is the mistake that [`answerable`]
/// detects.
fn set_effective(guest: &mut Guest<'_>, id: ContextId) -> Outcome {
    let uid = guest.data().uid;
    let exists = world(guest).vm(uid).contexts.contains_key(&id);
    let data = guest.data_mut();
    if !exists {
        data.refused = Some(id);
        return Err(Status::BadArgument.into());
    }
    data.refused = None;
    data.effective = id;
    Ok(())
}

/// The HTTP stream of a resume or a reply. `None` after recording a violation.
fn answerable(guest: &Guest<'_>, call: &'static str) -> Option<StreamId> {
    let target = target(guest);
    let id = target.map_or(0, |(id, _)| id);
    if let Some(refused) = guest.data().refused {
        let why = format!(
            "set_effective_context({refused}) had failed in this callback (its stream is gone) and was not \
             checked; Envoy applies the call to context {id} instead: a wrong stream, or a segmentation fault"
        );
        violation(guest, call, why);
        return None;
    }
    let Some(Owner::Http(stream)) = target.map(|(_, context)| context.owner) else {
        let why = format!(
            "the effective context {id} is not an HTTP stream, but Envoy applies the call to it anyway; call set_effective_context first, and check its result"
        );
        violation(guest, call, why);
        return None;
    };
    if world(guest).streams[stream].answer_queued {
        let why = format!("context {id} already has a reply; send one reply per stream");
        violation(guest, call, why);
        return None;
    }
    Some(stream)
}

pub(super) fn violation(guest: &Guest<'_>, call: &'static str, explanation: String) {
    let uid = guest.data().uid;
    world(guest).violate(uid, call, explanation);
}

fn act(guest: &Guest<'_>, action: Action) {
    let uid = guest.data().uid;
    world(guest).vm(uid).actions.push(action);
}

/// Only HTTP streams can be resumed: Envoy refuses the network directions.
fn resume(guest: &Guest<'_>, stream: u32) -> Outcome {
    let direction = match stream {
        0 => Direction::Request,
        1 => Direction::Response,
        _ => return Err(Status::BadArgument.into()),
    };
    if let Some(stream) = answerable(guest, "proxy_continue_stream") {
        act(guest, Action::Resume(stream, direction));
    }
    Ok(())
}

fn answer(guest: &Guest<'_>, reply: LocalReply) -> Outcome {
    if let Some(stream) = answerable(guest, "proxy_send_local_response") {
        world(guest).streams[stream].answer_queued = true;
        act(guest, Action::Reply(stream, reply));
    }
    let uid = guest.data().uid;
    // Envoy stops the iteration for any return value of the callback.
    world(guest).vm(uid).stop_iteration = true;
    Ok(())
}

fn close(guest: &Guest<'_>, stream: u32) -> Outcome {
    let owner = target(guest).map(|(_, context)| context.owner);
    match (stream, owner) {
        (0 | 1, Some(Owner::Http(id))) => act(guest, Action::Reset(id)),
        (2 | 3, Some(Owner::Tcp(id))) => act(guest, Action::CloseConn(id)),
        (0..=3, _) => {}
        _ => return Err(Status::BadArgument.into()),
    }
    Ok(())
}

/// For a root context that returned "not yet" from `proxy_on_done`.
fn done(guest: &Guest<'_>) -> Outcome {
    let id = target(guest).map_or(0, |(id, _)| id);
    let uid = guest.data().uid;
    if !world(guest).vm(uid).pending_done.remove(&id) {
        return Err(Status::NotFound.into());
    }
    act(guest, Action::DeleteRoot(id));
    Ok(())
}
