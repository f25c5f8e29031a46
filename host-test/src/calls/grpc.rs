//! gRPC streams: many messages over one stream. For the replies, see [`crate::grpc`].

use wasmtime::Linker;

use super::control::violation;
use super::http_call::read_pairs;
use super::{Guest, Outcome, VmData, call, read, read_text, target, world, write_word};
use crate::abi::{Headers, Status};
use crate::grpc::{self, GrpcState, GrpcStream};
use crate::upstream::{Call, Kind};
use crate::world::Event;

pub(crate) fn link(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_grpc_stream",
        |g: Guest<'_>,
         cluster: u32,
         cluster_size: u32,
         service: u32,
         service_size: u32,
         method: u32,
         method_size: u32,
         metadata: u32,
         metadata_size: u32,
         id_at: u32| {
            call(g, "proxy_grpc_stream", |g| {
                let cluster = read_text(g, cluster, cluster_size)?;
                let service = read_text(g, service, service_size)?;
                let method = read_text(g, method, method_size)?;
                let metadata = read_pairs(g, metadata, metadata_size)?;
                let path = format!("/{service}/{method}");
                // Envoy also detects a bad pointer only after opening the stream.
                let id = open(g, cluster, &path, &metadata)?;
                write_word(g, id_at, id)
            })
        },
    )?;
    link_open_streams(linker)
}

fn link_open_streams(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_grpc_send",
        // The end of the filter's half has no effect here: the other side continues to respond.
        |g: Guest<'_>, id: u32, message: u32, message_size: u32, _end_stream: u32| {
            call(g, "proxy_grpc_send", |g| {
                let message = read(g, message, message_size)?;
                send(g, id, message)
            })
        },
    )?;
    linker.func_wrap("env", "proxy_grpc_cancel", |g: Guest<'_>, id: u32| {
        call(g, "proxy_grpc_cancel", |g| cancel(g, id))
    })?;
    linker.func_wrap("env", "proxy_grpc_close", |g: Guest<'_>, id: u32| {
        call(g, "proxy_grpc_close", |g| close(g, id))
    })?;
    Ok(())
}

/// The stream belongs to the root context, like a call. The checks are in Envoy's order.
fn open(guest: &Guest<'_>, cluster: String, path: &str, metadata: &Headers) -> Outcome<u32> {
    let (_, context) = target(guest).ok_or(Status::BadArgument)?;
    let uid = guest.data().uid;
    let mut world = world(guest);
    // Envoy first parses the name as a whole configuration, hence this status.
    let upstream = (world.clusters.get(&cluster)).ok_or(Status::ParseFailure)?;
    if matches!(upstream.0, Kind::Unhealthy) {
        return Err(Status::InternalFailure.into());
    }
    let vm = world.vm(uid);
    let id = grpc::next_id(&mut vm.next_grpc);
    let stream = GrpcStream::new(context.root, cluster, path, metadata);
    vm.grpc_streams.insert(id, stream);
    Ok(id)
}

/// The state of a stream. Envoy stores it in the root context that opened it, and looks it up in the root context of
/// the effective context.
fn state(guest: &Guest<'_>, id: u32) -> Outcome<GrpcState> {
    let (_, context) = target(guest).ok_or(Status::NotFound)?;
    let uid = guest.data().uid;
    let mut world = world(guest);
    let stream = world.vm(uid).grpc_streams.get(&id);
    let own = stream.filter(|stream| stream.root == context.root);
    Ok(own.ok_or(Status::NotFound)?.state)
}

fn send(guest: &Guest<'_>, id: u32, message: Vec<u8>) -> Outcome {
    if !grpc::is_stream(id) {
        return Err(Status::BadArgument.into());
    }
    if matches!(state(guest, id)?, GrpcState::Closing | GrpcState::Ended) {
        let why = format!(
            "one side has already closed stream {id}; Envoy writes to a stream that may be reset"
        );
        violation(guest, "proxy_grpc_send", why);
        return Ok(());
    }
    let uid = guest.data().uid;
    let mut world = world(guest);
    let (name, at_ns) = (world.name_call(), world.now_ns);
    let vm = world.vm(uid);
    let thread = vm.thread;
    let stream = vm.grpc_streams.get(&id).ok_or(Status::NotFound)?;
    let call = Call {
        id: name,
        cluster: stream.cluster.clone(),
        headers: stream.headers.clone(),
        body: message,
        trailers: Headers::new(),
        timeout: None,
        thread,
        at_ns,
        vm: uid,
        root: stream.root,
        token: id,
    };
    world.calls.insert(name, call);
    Ok(())
}

fn cancel(guest: &Guest<'_>, id: u32) -> Outcome {
    if !grpc::is_grpc(id) {
        return Err(Status::BadArgument.into());
    }
    if state(guest, id)? == GrpcState::Receiving {
        let why = format!(
            "stream {id} is cancelled in its own proxy_on_grpc_receive; Envoy continues reading from it, and uses freed memory if the same bytes close it"
        );
        violation(guest, "proxy_grpc_cancel", why);
        return Ok(());
    }
    let uid = guest.data().uid;
    let mut world = world(guest);
    world.vm(uid).grpc_streams.remove(&id);
    world.forget_messages(uid, id);
    Ok(())
}

fn close(guest: &Guest<'_>, id: u32) -> Outcome {
    if !grpc::is_grpc(id) {
        return Err(Status::BadArgument.into());
    }
    if state(guest, id)? != GrpcState::Open {
        let why = format!(
            "stream {id} is ended twice or in its own callback, and Envoy writes the end even if the stream was reset; call proxy_grpc_cancel in proxy_on_grpc_close"
        );
        violation(guest, "proxy_grpc_close", why);
        return Ok(());
    }
    let uid = guest.data().uid;
    let mut world = world(guest);
    if let Some(stream) = world.vm(uid).grpc_streams.get_mut(&id) {
        stream.state = GrpcState::Ended;
    }
    world.forget_messages(uid, id);
    world.events.push_back(Event::StreamEnds(uid, id));
    Ok(())
}
