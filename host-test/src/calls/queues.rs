//! Shared queues: unbounded. The last VM that registers a name gets the notifications.

use std::collections::{HashMap, VecDeque};

use wasmtime::Linker;

use super::{Guest, Outcome, VmData, call, give, read, read_text, target, world, write_word};
use crate::abi::Status;
use crate::world::{ContextId, Event, SlotId};

#[derive(Debug)]
pub(crate) struct Queue {
    items: VecDeque<Vec<u8>>,
    /// The recipient of notifications: the slot, not the VM, because a reloaded VM takes over its predecessor's.
    listener: (SlotId, ContextId),
}

#[derive(Debug, Default)]
pub(crate) struct Queues {
    tokens: HashMap<(String, String), u32>,
    queues: HashMap<u32, Queue>,
}

impl Queues {
    fn register(&mut self, vm_id: &str, name: &str, listener: (SlotId, ContextId)) -> u32 {
        // 0 is not a valid token.
        let next = self.queues.len() as u32 + 1;
        let token = *(self.tokens)
            .entry((vm_id.to_owned(), name.to_owned()))
            .or_insert(next);
        let items = VecDeque::new();
        // Items from an earlier registration stay.
        let queue = Queue { items, listener };
        self.queues.entry(token).or_insert(queue).listener = listener;
        token
    }

    pub fn resolve(&self, vm_id: &str, name: &str) -> Option<u32> {
        (self.tokens)
            .get(&(vm_id.to_owned(), name.to_owned()))
            .copied()
    }

    pub fn len(&self, token: u32) -> Option<usize> {
        Some(self.queues.get(&token)?.items.len())
    }

    /// Appends an item, and returns the context to notify.
    pub fn push(&mut self, token: u32, item: Vec<u8>) -> Result<(SlotId, ContextId), Status> {
        let queue = self.queues.get_mut(&token).ok_or(Status::NotFound)?;
        queue.items.push_back(item);
        Ok(queue.listener)
    }

    fn pop(&mut self, token: u32) -> Result<Vec<u8>, Status> {
        let queue = self.queues.get_mut(&token).ok_or(Status::NotFound)?;
        queue.items.pop_front().ok_or(Status::Empty)
    }
}

pub(crate) fn link(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_register_shared_queue",
        |g: Guest<'_>, name, size, id_at| {
            call(g, "proxy_register_shared_queue", |g| {
                let token = register(g, name, size)?;
                write_word(g, id_at, token)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_resolve_shared_queue",
        |g: Guest<'_>, vm_id, vm_id_size, name, size, id_at| {
            call(g, "proxy_resolve_shared_queue", |g| {
                let vm_id = read_text(g, vm_id, vm_id_size)?;
                let token = resolve(g, vm_id, name, size)?;
                write_word(g, id_at, token)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_enqueue_shared_queue",
        |g: Guest<'_>, queue, at, size| {
            call(g, "proxy_enqueue_shared_queue", |g| {
                enqueue(g, queue, at, size)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_dequeue_shared_queue",
        |g: Guest<'_>, queue: u32, at: u32, size_at: u32| {
            call(g, "proxy_dequeue_shared_queue", |g| {
                let item = world(g).queues.pop(queue)?;
                give(g, &item, at, size_at)
            })
        },
    )?;
    Ok(())
}

/// Notifications always go to the root context, whichever context registers.
fn register(guest: &mut Guest<'_>, name: u32, size: u32) -> Outcome<u32> {
    let name = read_text(guest, name, size)?;
    let (_, context) = target(guest).ok_or(Status::BadArgument)?;
    let uid = guest.data().uid;
    let world = &mut *world(guest);
    let vm = world.vm(uid);
    let (vm_id, slot) = (vm.vm_id.clone(), vm.slot);
    Ok(world.queues.register(&vm_id, &name, (slot, context.root)))
}

/// An empty `vm_id` means the caller's own.
fn resolve(guest: &mut Guest<'_>, vm_id: String, name: u32, size: u32) -> Outcome<u32> {
    let name = read_text(guest, name, size)?;
    let uid = guest.data().uid;
    let world = &mut *world(guest);
    let vm_id = if vm_id.is_empty() {
        world.vm(uid).vm_id.clone()
    } else {
        vm_id
    };
    Ok(world
        .queues
        .resolve(&vm_id, &name)
        .ok_or(Status::NotFound)?)
}

/// The notification comes in a later turn of the event loop, never inside this call.
fn enqueue(guest: &mut Guest<'_>, queue: u32, at: u32, size: u32) -> Outcome {
    let item = read(guest, at, size)?;
    let mut world = world(guest);
    let (slot, context) = world.queues.push(queue, item)?;
    world.events.push_back(Event::QueueReady {
        slot,
        context,
        queue,
    });
    Ok(())
}
