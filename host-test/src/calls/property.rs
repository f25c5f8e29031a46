//! Properties of requests, connections and Envoy. Here, the test sets them.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use wasmtime::Linker;

use super::{Guest, Outcome, VmData, call, give, read, target, world};
use crate::abi::{MapType, Status};
use crate::http::HttpStream;
use crate::world::Owner;

pub(crate) fn link(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_get_property",
        |g: Guest<'_>, path, size, value_at, size_at| {
            call(g, "proxy_get_property", |g| {
                let path = read(g, path, size)?;
                let value = get(g, &path)?;
                give(g, &value, value_at, size_at)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_set_property",
        |g: Guest<'_>, path, size, value, value_size| {
            call(g, "proxy_set_property", |g| {
                let path = read(g, path, size)?;
                let value = read(g, value, value_size)?;
                set(g, path, value)
            })
        },
    )?;
    Ok(())
}

/// The path in the ABI's encoding: its parts separated by zero bytes.
pub(crate) fn path_of(parts: &[&str]) -> Vec<u8> {
    parts.join("\0").into_bytes()
}

fn get(guest: &Guest<'_>, path: &[u8]) -> Outcome<Vec<u8>> {
    let owner = target(guest).map(|(_, context)| context.owner);
    let uid = guest.data().uid;
    let mut world = world(guest);
    let own = match owner {
        Some(Owner::Http(id)) => world.streams[id].properties.get(path),
        Some(Owner::Tcp(id)) => world.conns[id].properties.get(path),
        Some(Owner::Root) | None => None,
    };
    let own = own.cloned().or_else(|| match owner {
        Some(Owner::Http(id)) => of_stream(&world.streams[id], path),
        _ => None,
    });
    if let Some(value) = own.or_else(|| world.properties.get(path).cloned()) {
        return Ok(value);
    }
    let vm = world.vm(uid);
    match path {
        b"plugin_root_id" => Ok(vm.root_id.clone().into_bytes()),
        b"plugin_vm_id" => Ok(vm.vm_id.clone().into_bytes()),
        _ => Err(Status::NotFound.into()),
    }
}

/// Properties that every stream has in Envoy: the response's code, and each request header, with all values of one name
/// joined by commas.
fn of_stream(stream: &HttpStream, path: &[u8]) -> Option<Vec<u8>> {
    if path == path_of(&["response", "code"]) {
        let code = stream.response_code()?;
        return Some(u64::from(code).to_le_bytes().to_vec());
    }
    let name = path.strip_prefix(b"request\0headers\0")?;
    let name = std::str::from_utf8(name).ok()?;
    let headers = stream.readable(MapType::RequestHeaders)?;
    let values: Vec<&[u8]> = headers.get_all(name).collect();
    (!values.is_empty()).then(|| values.join(&b","[..]))
}

/// Only streams can store properties.
fn set(guest: &Guest<'_>, path: Vec<u8>, value: Vec<u8>) -> Outcome {
    let owner = target(guest).map(|(_, context)| context.owner);
    let mut world = world(guest);
    let properties = match owner {
        Some(Owner::Http(id)) => &mut world.streams[id].properties,
        Some(Owner::Tcp(id)) => &mut world.conns[id].properties,
        Some(Owner::Root) | None => return Err(Status::NotFound.into()),
    };
    properties.insert(path, value);
    Ok(())
}
