//! Bodies, connection data and configurations.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use wasmtime::Linker;

use super::{Guest, Outcome, VmData, call, give, read, target, world, write_word};
use crate::abi::{BufferType, Status, u32_of};
use crate::world::{Owner, World};

pub(crate) fn link(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_get_buffer_bytes",
        |g: Guest<'_>, kind, start, max, at, size_at| {
            call(g, "proxy_get_buffer_bytes", |g| {
                let bytes = view(g, kind, |buffer| range(buffer, start, max))?;
                // Envoy leaves the module's pointers unchanged when there is nothing to return.
                if bytes.is_empty() {
                    return Ok(());
                }
                give(g, &bytes, at, size_at)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_get_buffer_status",
        |g: Guest<'_>, kind: u32, size_at: u32, flags_at: u32| {
            call(g, "proxy_get_buffer_status", |g| {
                let size = view(g, kind, |buffer| Ok(buffer.len()))?;
                write_word(g, size_at, u32_of(size))?;
                write_word(g, flags_at, 0)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_set_buffer_bytes",
        |g: Guest<'_>, kind, start, length, at, size| {
            call(g, "proxy_set_buffer_bytes", |g| {
                let bytes = read(g, at, size)?;
                edit(g, kind, start, length, &bytes)
            })
        },
    )?;
    Ok(())
}

/// Up to `max` bytes from `start`. A start after the end is refused: Envoy's own length underflows there.
fn range(buffer: &[u8], start: u32, max: u32) -> Outcome<Vec<u8>> {
    start.checked_add(max).ok_or(Status::BadArgument)?;
    let rest = buffer.get(start as usize..).ok_or(Status::BadArgument)?;
    Ok(rest[..rest.len().min(max as usize)].to_vec())
}

/// Accesses a buffer. A stream's buffer that does not exist in this phase is empty, as in Envoy, and so is gRPC's. A
/// missing configuration or call response gives `NotFound`.
fn view<T>(guest: &Guest<'_>, kind: u32, look: impl FnOnce(&[u8]) -> Outcome<T>) -> Outcome<T> {
    let kind = BufferType::from_abi(kind).ok_or(Status::BadArgument)?;
    let owner = target(guest).map(|(_, context)| context.owner);
    let uid = guest.data().uid;
    let mut world = world(guest);
    let own = match kind {
        BufferType::VmConfiguration => Some(&world.vm(uid).vm_config),
        BufferType::PluginConfiguration => world.vm(uid).plugin_config.as_ref(),
        BufferType::CallResponseBody => {
            let response = world.vm(uid).call_response.as_ref();
            response.map(|response| &response.body)
        }
        BufferType::Grpc => Some(&world.vm(uid).grpc_received),
        BufferType::CallData => None,
        _ => return look(stream_buffer(&mut world, owner, kind).map_or(&[], |b| b)),
    };
    look(own.ok_or(Status::NotFound)?)
}

fn stream_buffer(
    world: &mut World,
    owner: Option<Owner>,
    kind: BufferType,
) -> Option<&mut Vec<u8>> {
    match (owner?, kind) {
        (Owner::Http(id), BufferType::RequestBody) => world.streams[id].request.visible_body(),
        (Owner::Http(id), BufferType::ResponseBody) => world.streams[id].response.visible_body(),
        (Owner::Tcp(id), BufferType::DownstreamData) => world.conns[id].downstream.visible(),
        (Owner::Tcp(id), BufferType::UpstreamData) => world.conns[id].upstream.visible(),
        _ => None,
    }
}

/// Envoy can replace the first `length` bytes (0: prepend; all or more: replace everything) or append. It refuses
/// changes in the middle.
fn edit(guest: &Guest<'_>, kind: u32, start: u32, length: u32, bytes: &[u8]) -> Outcome {
    let kind = BufferType::from_abi(kind).ok_or(Status::BadArgument)?;
    let owner = target(guest).map(|(_, context)| context.owner);
    let mut world = world(guest);
    let buffer = stream_buffer(&mut world, owner, kind).ok_or(Status::BadArgument)?;
    if start == 0 {
        let drained = buffer.len().min(length as usize);
        buffer.splice(..drained, bytes.iter().copied());
    } else if start as usize >= buffer.len() {
        buffer.extend_from_slice(bytes);
    } else {
        return Err(Status::BadArgument.into());
    }
    Ok(())
}
