//! The host calls, one file per family.
//!
//! Each call is a function that returns an [`Outcome`]. [`call`] counts it, applies injected faults, and converts the
//! outcome to the module's status.

pub(crate) mod buffers;
pub(crate) mod clock;
pub(crate) mod control;
pub(crate) mod foreign;
pub(crate) mod grpc;
pub(crate) mod headers;
pub(crate) mod http_call;
pub(crate) mod metrics;
pub(crate) mod property;
pub(crate) mod queues;
pub(crate) mod shared_data;
pub(crate) mod wasi;

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use wasmtime::{Caller, Linker, Memory, TypedFunc};

use crate::abi::{Status, u32_of};
use crate::world::{Context, ContextId, Fault, VmUid, World};

/// The data of a VM's store: access from a host call to the world.
pub(crate) struct VmData {
    pub world: Rc<RefCell<World>>,
    pub uid: VmUid,
    pub memory: Option<Memory>,
    pub alloc: Option<TypedFunc<u32, u32>>,
    /// The context of the running callback.
    pub current: ContextId,
    /// The context of `proxy_set_effective_context`; 0 is none.
    pub effective: ContextId,
    /// The id that `proxy_set_effective_context` last refused in this callback.
    pub refused: Option<ContextId>,
}

/// Why a host call does not return `Ok`.
pub(crate) enum Failure {
    Status(Status),
    Trap(wasmtime::Error),
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;
pub(crate) type Guest<'a> = Caller<'a, VmData>;

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<wasmtime::Error> for Failure {
    fn from(error: wasmtime::Error) -> Self {
        Self::Trap(error)
    }
}

/// Makes every host call available to the modules that `linker` links.
pub(crate) fn link(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    buffers::link(linker)?;
    clock::link(linker)?;
    control::link(linker)?;
    foreign::link(linker)?;
    grpc::link(linker)?;
    headers::link(linker)?;
    http_call::link(linker)?;
    metrics::link(linker)?;
    property::link(linker)?;
    queues::link(linker)?;
    shared_data::link(linker)?;
    wasi::link(linker)
}

/// Runs one Proxy-Wasm host call.
pub(crate) fn call(
    mut guest: Guest<'_>,
    name: &'static str,
    work: impl FnOnce(&mut Guest<'_>) -> Outcome,
) -> wasmtime::Result<u32> {
    if let Some(status) = enter(&guest, name)? {
        return Ok(status as u32);
    }
    match work(&mut guest) {
        Ok(()) => Ok(Status::Ok as u32),
        Err(Failure::Status(status)) => Ok(status as u32),
        Err(Failure::Trap(error)) => Err(error),
    }
}

/// Counts the call, and applies an injected fault, if any.
pub(crate) fn enter(guest: &Guest<'_>, name: &'static str) -> wasmtime::Result<Option<Status>> {
    let data = guest.data();
    let mut world = data.world.borrow_mut();
    *world.cost.calls.entry(name).or_default() += 1;
    if let Some(cost) = world.cost_of(data.uid, data.current) {
        *cost.calls.entry(name).or_default() += 1;
    }
    let Some(at) = world.faults.iter().position(|(n, _)| n == name) else {
        return Ok(None);
    };
    match world.faults.remove(at) {
        Some((_, Fault::Answer(status))) => Ok(Some(status)),
        _ => Err(wasmtime::Error::msg(format!("the test made {name} trap"))),
    }
}

/// Borrows the world. Release it before any call into the module.
pub(crate) fn world<'a>(guest: &'a Guest<'_>) -> RefMut<'a, World> {
    guest.data().world.borrow_mut()
}

/// The context that host calls act on, as in Envoy: the effective one if it still exists, or else that of the running
/// callback.
pub(crate) fn target(guest: &Guest<'_>) -> Option<(ContextId, Context)> {
    let data = guest.data();
    let mut world = data.world.borrow_mut();
    let contexts = &world.vm(data.uid).contexts;
    [data.effective, data.current]
        .into_iter()
        .find_map(|id| contexts.get(&id).map(|context| (id, *context)))
}

fn memory(guest: &mut Guest<'_>) -> Outcome<Memory> {
    if let Some(memory) = guest.data().memory {
        return Ok(memory);
    }
    // Only while the module's start section runs; it is cached afterwards.
    guest
        .get_export("memory")
        .and_then(|export| export.into_memory())
        .ok_or(Failure::Status(Status::InvalidMemoryAccess))
}

fn note_copy(guest: &Guest<'_>, bytes: usize) {
    let data = guest.data();
    let mut world = data.world.borrow_mut();
    world.cost.bytes_copied += bytes as u64;
    if let Some(cost) = world.cost_of(data.uid, data.current) {
        cost.bytes_copied += bytes as u64;
    }
}

/// Reads bytes from the module's memory.
pub(crate) fn read(guest: &mut Guest<'_>, at: u32, length: u32) -> Outcome<Vec<u8>> {
    let memory = memory(guest)?;
    note_copy(guest, length as usize);
    let start = at as usize;
    memory
        .data(&*guest)
        .get(start..start.saturating_add(length as usize))
        .map(<[u8]>::to_vec)
        .ok_or(Failure::Status(Status::InvalidMemoryAccess))
}

/// Reads text from the module's memory. Envoy accepts arbitrary bytes as names of keys and queues, but SDKs use UTF-8.
pub(crate) fn read_text(guest: &mut Guest<'_>, at: u32, length: u32) -> Outcome<String> {
    Ok(String::from_utf8_lossy(&read(guest, at, length)?).into_owned())
}

/// Writes bytes to the module's memory.
pub(crate) fn write(guest: &mut Guest<'_>, at: u32, bytes: &[u8]) -> Outcome {
    let memory = memory(guest)?;
    note_copy(guest, bytes.len());
    memory
        .write(guest, at as usize, bytes)
        .map_err(|_| Failure::Status(Status::InvalidMemoryAccess))
}

/// Writes a 32-bit word to the module's memory.
pub(crate) fn write_word(guest: &mut Guest<'_>, at: u32, word: u32) -> Outcome {
    write(guest, at, &word.to_le_bytes())
}

/// Copies `bytes` to memory that the module allocates, and writes pointer and size. Empty input gives a null pointer,
/// as in Envoy.
pub(crate) fn give(guest: &mut Guest<'_>, bytes: &[u8], pointer_at: u32, size_at: u32) -> Outcome {
    let size = u32_of(bytes.len());
    let mut pointer = 0;
    if size > 0 {
        let alloc = guest.data().alloc.clone();
        let alloc = alloc.ok_or(Failure::Status(Status::InvalidMemoryAccess))?;
        pointer = alloc.call(&mut *guest, size)?;
        if pointer == 0 {
            return Err(Status::InvalidMemoryAccess.into());
        }
        write(guest, pointer, bytes)?;
    }
    write_word(guest, pointer_at, pointer)?;
    write_word(guest, size_at, size)
}
