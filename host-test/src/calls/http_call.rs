//! `proxy_http_call` and access to its outcome.

use std::time::Duration;

use wasmtime::Linker;

use super::{Guest, Outcome, VmData, call, give, read, read_text, target, world, write_word};
use crate::abi::{Headers, Status};
use crate::upstream::{Call, Kind};

pub(crate) fn link(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_http_call",
        |g: Guest<'_>,
         cluster: u32,
         cluster_size: u32,
         headers: u32,
         headers_size: u32,
         body: u32,
         body_size: u32,
         trailers: u32,
         trailers_size: u32,
         timeout_ms: u32,
         token_at: u32| {
            call(g, "proxy_http_call", |g| {
                let message = Message {
                    cluster: read_text(g, cluster, cluster_size)?,
                    headers: read_pairs(g, headers, headers_size)?,
                    body: read(g, body, body_size)?,
                    trailers: read_pairs(g, trailers, trailers_size)?,
                    timeout_ms,
                };
                // First, as in Envoy: a bad pointer must not leave a call in flight.
                write_word(g, token_at, 0)?;
                let token = dispatch(g, message)?;
                write_word(g, token_at, token)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_get_status",
        |g: Guest<'_>, code_at: u32, at: u32, size_at: u32| {
            call(g, "proxy_get_status", |g| {
                let uid = g.data().uid;
                let (code, message) = world(g).vm(uid).call_status.clone();
                write_word(g, code_at, code)?;
                give(g, message.as_bytes(), at, size_at)
            })
        },
    )?;
    Ok(())
}

struct Message {
    cluster: String,
    headers: Headers,
    body: Vec<u8>,
    trailers: Headers,
    timeout_ms: u32,
}

pub(super) fn read_pairs(guest: &mut Guest<'_>, at: u32, size: u32) -> Outcome<Headers> {
    Ok(Headers::decode(&read(guest, at, size)?).unwrap_or_default())
}

/// The checks are in Envoy's order.
fn dispatch(guest: &Guest<'_>, message: Message) -> Outcome<u32> {
    let (_, context) = target(guest).ok_or(Status::BadArgument)?;
    let uid = guest.data().uid;
    let world = &mut *world(guest);
    if i32::try_from(message.timeout_ms).is_err() {
        return Err(Status::BadArgument.into());
    }
    let upstream = (world.clusters.get(&message.cluster)).ok_or(Status::BadArgument)?;
    let required = [":method", ":path", ":authority"];
    if required
        .iter()
        .any(|name| message.headers.get(name).is_none())
    {
        return Err(Status::BadArgument.into());
    }
    if matches!(upstream.0, Kind::Unhealthy) {
        return Err(Status::InternalFailure.into());
    }
    let id = world.name_call();
    let at_ns = world.now_ns;
    let vm = world.vm(uid);
    // In steps of 4, like Envoy's tokens.
    vm.next_token += 4;
    let (token, thread) = (vm.next_token, vm.thread);
    let timeout =
        (message.timeout_ms > 0).then(|| Duration::from_millis(u64::from(message.timeout_ms)));
    let call = Call {
        id,
        cluster: message.cluster,
        headers: message.headers,
        body: message.body,
        trailers: message.trailers,
        timeout,
        thread,
        at_ns,
        vm: uid,
        root: context.root,
        token,
    };
    world.calls.insert(id, call);
    Ok(token)
}
