//! Shared data: one map for all VMs of the process, scoped by `vm_id`, with compare-and-swap.

use std::collections::HashMap;

use wasmtime::Linker;

use super::{Guest, Outcome, VmData, call, give, read, world, write_word};
use crate::abi::Status;

/// The map. Keys cannot be deleted, as in Envoy's ABI.
#[derive(Debug, Default)]
pub(crate) struct SharedData {
    entries: HashMap<(String, Vec<u8>), (Vec<u8>, u32)>,
    last_cas: u32,
}

impl SharedData {
    pub fn get(&self, vm_id: &str, key: &[u8]) -> Option<&(Vec<u8>, u32)> {
        self.entries.get(&(vm_id.to_owned(), key.to_vec()))
    }

    /// `cas` 0 writes unconditionally. A `cas` for a missing key is ignored: Envoy has no create-if-absent.
    pub fn set(&mut self, vm_id: &str, key: &[u8], value: Vec<u8>, cas: u32) -> Result<(), Status> {
        let entry = (self.entries).entry((vm_id.to_owned(), key.to_vec()));
        let entry = entry.or_insert((Vec::new(), cas));
        if cas != 0 && cas != entry.1 {
            return Err(Status::CasMismatch);
        }
        self.last_cas = self.last_cas.wrapping_add(1).max(1);
        *entry = (value, self.last_cas);
        Ok(())
    }

    pub fn keys(&self, vm_id: &str) -> Vec<Vec<u8>> {
        let mut keys: Vec<_> = (self.entries.keys())
            .filter(|(id, _)| id == vm_id)
            .map(|(_, key)| key.clone())
            .collect();
        keys.sort();
        keys
    }
}

pub(crate) fn link(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_get_shared_data",
        |g: Guest<'_>, key: u32, key_size: u32, value_at: u32, size_at: u32, cas_at: u32| {
            call(g, "proxy_get_shared_data", |g| {
                let key = read(g, key, key_size)?;
                let (value, cas) = lookup(g, &key)?;
                give(g, &value, value_at, size_at)?;
                write_word(g, cas_at, cas)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_set_shared_data",
        |g: Guest<'_>, key: u32, key_size: u32, value: u32, value_size: u32, cas: u32| {
            call(g, "proxy_set_shared_data", |g| {
                let key = read(g, key, key_size)?;
                let value = read(g, value, value_size)?;
                let uid = g.data().uid;
                let world = &mut *world(g);
                let vm_id = world.vm(uid).vm_id.clone();
                Ok(world.shared_data.set(&vm_id, &key, value, cas)?)
            })
        },
    )?;
    Ok(())
}

fn lookup(guest: &Guest<'_>, key: &[u8]) -> Outcome<(Vec<u8>, u32)> {
    let uid = guest.data().uid;
    let world = &mut *world(guest);
    let vm_id = world.vm(uid).vm_id.clone();
    let found = world.shared_data.get(&vm_id, key);
    Ok(found.cloned().ok_or(Status::NotFound)?)
}
