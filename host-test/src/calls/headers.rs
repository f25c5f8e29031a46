//! Headers and trailers of requests, responses and call responses.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use wasmtime::Linker;

use super::{Guest, Outcome, VmData, call, give, read, read_text, target, world};
use crate::abi::{Headers, MapType, Status};
use crate::world::{Owner, World};

pub(crate) fn link(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    link_values(linker)?;
    linker.func_wrap(
        "env",
        "proxy_get_header_map_pairs",
        |g: Guest<'_>, map, at, size_at| {
            call(g, "proxy_get_header_map_pairs", |g| {
                let pairs = readable(g, map, |headers| Ok(headers.clone()));
                // Envoy returns no pairs, and no error, for a missing map.
                match pairs {
                    Ok(pairs) if !pairs.is_empty() => give(g, &pairs.encode(), at, size_at),
                    _ => give(g, b"", at, size_at),
                }
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_set_header_map_pairs",
        |g: Guest<'_>, map, at, size| {
            call(g, "proxy_set_header_map_pairs", |g| {
                let pairs = read(g, at, size)?;
                let pairs = Headers::decode(&pairs).unwrap_or_default();
                writable(g, map, |headers| *headers = pairs)
            })
        },
    )?;
    Ok(())
}

fn link_values(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_get_header_map_value",
        |g: Guest<'_>, map, key, key_size, value_at, size_at| {
            call(g, "proxy_get_header_map_value", |g| {
                let key = read_text(g, key, key_size)?;
                let value = readable(g, map, |headers| {
                    let value = headers.get(&key).ok_or(Status::NotFound)?;
                    Ok(value.to_vec())
                })?;
                give(g, &value, value_at, size_at)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_add_header_map_value",
        |g: Guest<'_>, map, key, key_size, value, value_size| {
            call(g, "proxy_add_header_map_value", |g| {
                let key = read_text(g, key, key_size)?;
                let value = read(g, value, value_size)?;
                writable(g, map, |headers| headers.add(&key, value))
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_replace_header_map_value",
        |g: Guest<'_>, map, key, key_size, value, value_size| {
            call(g, "proxy_replace_header_map_value", |g| {
                let key = read_text(g, key, key_size)?;
                let value = read(g, value, value_size)?;
                writable(g, map, |headers| headers.set(&key, value))
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_remove_header_map_value",
        |g: Guest<'_>, map, key, key_size| {
            call(g, "proxy_remove_header_map_value", |g| {
                let key = read_text(g, key, key_size)?;
                writable(g, map, |headers| headers.remove(&key))
            })
        },
    )?;
    Ok(())
}

/// Accesses a map. One that Envoy hides in this phase, for example the request's headers after they have passed, gives
/// `BadArgument`, on which the SDK panics.
fn readable<T>(
    guest: &Guest<'_>,
    map: u32,
    look: impl FnOnce(&Headers) -> Outcome<T>,
) -> Outcome<T> {
    let kind = MapType::from_abi(map).ok_or(Status::BadArgument)?;
    let owner = target(guest).map(|(_, context)| context.owner);
    let uid = guest.data().uid;
    let world = &mut *world(guest);
    let headers = match kind {
        MapType::CallResponseHeaders => call_response(world, uid).map(|r| &r.headers),
        MapType::CallResponseTrailers => call_response(world, uid).map(|r| &r.trailers),
        MapType::Grpc => None,
        _ => match owner {
            Some(Owner::Http(id)) => world.streams[id].readable(kind),
            _ => None,
        },
    };
    look(headers.ok_or(Status::BadArgument)?)
}

fn call_response(world: &mut World, uid: u32) -> Option<&crate::world::CallResponse> {
    world.vm(uid).call_response.as_ref()
}

fn writable(guest: &Guest<'_>, map: u32, change: impl FnOnce(&mut Headers)) -> Outcome {
    let kind = MapType::from_abi(map).ok_or(Status::BadArgument)?;
    let owner = target(guest).map(|(_, context)| context.owner);
    let Some(Owner::Http(id)) = owner else {
        return Err(Status::BadArgument.into());
    };
    let mut world = world(guest);
    let headers = world.streams[id].writable(kind);
    change(headers.ok_or(Status::BadArgument)?);
    Ok(())
}
