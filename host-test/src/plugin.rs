//! A plugin: a module with its configuration, and the start, reload and end of its VMs.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use wasmtime::InstancePre;

use crate::calls::VmData;
use crate::process::Process;
use crate::vm::Vm;
use crate::world::{ContextId, LogLine, Owner, Slot, SlotId, Thread, VmState, VmUid};

/// Minimum interval between reloads of a dead VM, in nanoseconds of virtual time.
const RELOAD_INTERVAL_NS: u64 = 1_000_000_000;

/// The handling of requests after the VM has died (`failure_policy` of Envoy's `PluginConfig`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailurePolicy {
    /// Permanent 503 on that worker: Envoy's default.
    #[default]
    FailClosed,
    /// The next request creates a new VM, at most one per second of virtual time on each worker; requests in between
    /// get 503.
    FailReload,
    /// Requests pass without the filter.
    FailOpen,
}

/// Why a host did not start, or a new configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Neither `module_file` nor `module_bytes` nor `module_wat` was called.
    #[error("no module was given to the builder")]
    NoModule,
    /// The module's file can't be read.
    #[error("cannot read the module {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The system error.
        source: std::io::Error,
    },
    /// The bytes are not a valid module, or can't be instantiated.
    #[error("cannot load the module: {0}")]
    Load(String),
    /// Envoy refuses a module that does not export `proxy_abi_version_0_2_1` (or `_0_2_0`).
    #[error("the module exports no supported ABI version (0.2.0 or 0.2.1)")]
    Abi,
    /// Envoy refuses a module in which it can't allocate.
    #[error("the module exports neither proxy_on_memory_allocate nor malloc")]
    NoAllocator,
    /// A callback returned false.
    #[error("{callback} refused ({thread}); its log:{}", lines(.logs))]
    Refused {
        /// `proxy_on_vm_start` or `proxy_on_configure`.
        callback: &'static str,
        /// The VM; the first is always the canary.
        thread: Thread,
        /// The log of that VM.
        logs: Vec<LogLine>,
    },
    /// A callback trapped.
    #[error("{callback} trapped ({thread}); its log:{}", lines(.logs))]
    Trapped {
        /// The callback.
        callback: &'static str,
        /// The VM.
        thread: Thread,
        /// The log of that VM; the host's line about the trap is the last.
        logs: Vec<LogLine>,
    },
}

impl StartError {
    /// The VM's log before it refused or trapped; empty for other errors.
    pub fn logs(&self) -> &[LogLine] {
        match self {
            Self::Refused { logs, .. } | Self::Trapped { logs, .. } => logs,
            _ => &[],
        }
    }

    /// Whether one of those lines contains `text`.
    pub fn logged(&self, text: &str) -> bool {
        self.logs().iter().any(|line| line.message.contains(text))
    }
}

fn lines(logs: &[LogLine]) -> String {
    if logs.is_empty() {
        return " (nothing)".to_owned();
    }
    logs.iter().map(|line| format!("\n  {line}")).collect()
}

/// The shared data of a plugin's VMs.
pub(crate) struct Plugin {
    pub pre: InstancePre<VmData>,
    pub vm_id: String,
    pub root_id: String,
    pub vm_config: Vec<u8>,
    pub config: RefCell<Vec<u8>>,
    pub env: Vec<(String, String)>,
    pub policy: FailurePolicy,
    pub shows_body_to_held: bool,
    pub fuel_max: u64,
    pub answers_max: usize,
}

impl Plugin {
    fn vm_state(&self, slot: SlotId, thread: Thread) -> VmState {
        VmState {
            slot,
            thread,
            policy: self.policy,
            shows_body_to_held: self.shows_body_to_held,
            answers_max: self.answers_max,
            vm_id: self.vm_id.clone(),
            root_id: self.root_id.clone(),
            vm_config: self.vm_config.clone(),
            env: self.env.clone(),
            plugin_config: None,
            contexts: HashMap::new(),
            // 0 is the context of the VM itself.
            next_context: 1,
            failed: None,
            ticks: HashMap::new(),
            next_token: 0,
            next_grpc: crate::grpc::NO_STREAM,
            grpc_streams: HashMap::new(),
            grpc_received: Vec::new(),
            metric_ids: Default::default(),
            call_response: None,
            call_status: (0, String::new()),
            actions: Vec::new(),
            stop_iteration: false,
            pending_done: HashSet::new(),
        }
    }
}

/// Slots are indices of a list. A canary has none: its registrations have no effect.
const NO_SLOT: SlotId = usize::MAX;

impl Process {
    /// Tries the configuration in a canary, then starts the VMs of the main thread and of each worker. Returns the
    /// workers' slots, after that of the main thread.
    pub(crate) fn start_plugin(
        &self,
        plugin: &Rc<Plugin>,
        workers: usize,
    ) -> Result<Vec<SlotId>, StartError> {
        let (canary, _) = self.start_vm(plugin, Thread::Canary, NO_SLOT)?;
        self.drop_vm(canary);
        let threads = [Thread::Main].into_iter();
        threads
            .chain((0..workers).map(Thread::Worker))
            .map(|thread| self.start_slot(plugin, thread))
            .collect()
    }

    fn start_slot(&self, plugin: &Rc<Plugin>, thread: Thread) -> Result<SlotId, StartError> {
        let id = {
            let mut world = self.world.borrow_mut();
            world.slots.push(Slot {
                plugin: Rc::clone(plugin),
                thread,
                vm: None,
                root: 0,
                reloaded_ns: None,
            });
            world.slots.len() - 1
        };
        self.fill_slot(id, plugin, thread)?;
        Ok(id)
    }

    fn fill_slot(&self, id: SlotId, plugin: &Plugin, thread: Thread) -> Result<(), StartError> {
        let (vm, root) = self.start_vm(plugin, thread, id)?;
        let slot = &mut self.world.borrow_mut().slots[id];
        (slot.vm, slot.root) = (Some(vm), root);
        Ok(())
    }

    /// The VM and root context for a new stream on this slot. A dead VM is replaced if the policy and the clock allow
    /// it.
    pub(crate) fn vm_for_stream(&self, id: SlotId) -> (VmUid, ContextId) {
        let (plugin, thread, vm, due) = {
            let mut world = self.world.borrow_mut();
            let (now_ns, slot) = (world.now_ns, &world.slots[id]);
            let vm = slot.vm.expect("a started host has a VM in every slot");
            let rested = |at_ns| now_ns.saturating_sub(at_ns) >= RELOAD_INTERVAL_NS;
            let due = slot.reloaded_ns.is_none_or(rested);
            let (plugin, thread) = (Rc::clone(&slot.plugin), slot.thread);
            let reload = plugin.policy == FailurePolicy::FailReload && !world.alive(vm);
            if reload && due {
                world.slots[id].reloaded_ns = Some(now_ns);
            }
            (plugin, thread, vm, reload && due)
        };
        // If the new VM fails to start, the dead one stays; the log contains the reason.
        if due && self.fill_slot(id, &plugin, thread).is_err() {
            return (vm, 0);
        }
        let slot = &self.world.borrow().slots[id];
        (slot.vm.unwrap_or(vm), slot.root)
    }

    fn start_vm(
        &self,
        plugin: &Plugin,
        thread: Thread,
        slot: SlotId,
    ) -> Result<(VmUid, ContextId), StartError> {
        let uid = self.next_uid.replace(self.next_uid.get() + 1);
        let first_log = {
            let mut world = self.world.borrow_mut();
            world.vms.insert(uid, plugin.vm_state(slot, thread));
            world.logs.len()
        };
        let boot = Boot {
            process: self,
            uid,
            thread,
            first_log,
        };
        let root = boot.run(plugin).inspect_err(|_| self.drop_vm(uid))?;
        Ok((uid, root))
    }

    /// Removes a VM without streams.
    fn drop_vm(&self, uid: VmUid) {
        self.vms.borrow_mut().remove(&uid);
        self.world.borrow_mut().vms.remove(&uid);
        self.world
            .borrow_mut()
            .calls
            .retain(|_, call| call.vm != uid);
    }

    /// Changes the configuration of the running VMs. A canary tries it first. Then each VM gets a new root context in
    /// addition to the old one, which ends. VMs keep their statics. Streams in progress keep their old context, but the
    /// filter's old root is gone, as in Envoy after its last stream.
    pub(crate) fn reconfigure(
        &self,
        plugin: &Rc<Plugin>,
        slots: &[SlotId],
        config: Vec<u8>,
    ) -> Result<(), StartError> {
        let old = plugin.config.replace(config);
        let canary = self.start_vm(plugin, Thread::Canary, NO_SLOT);
        let (canary, _) = canary.inspect_err(|_| {
            plugin.config.replace(old);
        })?;
        self.drop_vm(canary);
        for id in slots {
            self.reconfigure_slot(plugin, *id)?;
        }
        Ok(())
    }

    fn reconfigure_slot(&self, plugin: &Plugin, id: SlotId) -> Result<(), StartError> {
        let (uid, old, thread, first_log) = {
            let world = self.world.borrow();
            let slot = &world.slots[id];
            (slot.vm, slot.root, slot.thread, world.logs.len())
        };
        let Some(uid) = uid.filter(|uid| self.world.borrow().alive(*uid)) else {
            return Ok(());
        };
        let boot = Boot {
            process: self,
            uid,
            thread,
            first_log,
        };
        let root = boot.add_root();
        boot.create_root(plugin, root)?;
        boot.configure(plugin, root)?;
        self.world.borrow_mut().slots[id].root = root;
        self.end_root(uid, old);
        Ok(())
    }

    /// `proxy_on_done`, and `proxy_on_delete` unless the root context requests time. Returns whether it is deleted.
    pub(crate) fn end_root(&self, uid: VmUid, root: ContextId) -> bool {
        self.world.borrow_mut().vm(uid).ticks.remove(&root);
        let asks = self
            .vms
            .borrow()
            .get(&uid)
            .is_some_and(|vm| vm.exports("proxy_on_done"));
        if asks {
            // Before the callback, which may already call proxy_done.
            self.world.borrow_mut().vm(uid).pending_done.insert(root);
            if let Ok(0) = self.callback(uid, root, "proxy_on_done", &[root]) {
                return !self.world.borrow_mut().vm(uid).contexts.contains_key(&root);
            }
            self.world.borrow_mut().vm(uid).pending_done.remove(&root);
        }
        self.delete_root(uid, root);
        true
    }

    pub(crate) fn delete_root(&self, uid: VmUid, root: ContextId) {
        if !self.world.borrow_mut().vm(uid).contexts.contains_key(&root) {
            return;
        }
        // The VM has recorded a trap; the context is deleted anyway.
        let _ = self.callback(uid, root, "proxy_on_delete", &[root]);
        let world = &mut *self.world.borrow_mut();
        let vm = world.vm(uid);
        vm.contexts.remove(&root);
        // Envoy's root context cancels its calls and resets its streams when it is destroyed.
        vm.grpc_streams.retain(|_, stream| stream.root != root);
        world
            .calls
            .retain(|_, call| (call.vm, call.root) != (uid, root));
    }
}

/// One VM during its start.
struct Boot<'a> {
    process: &'a Process,
    uid: VmUid,
    thread: Thread,
    first_log: usize,
}

impl Boot<'_> {
    fn run(&self, plugin: &Plugin) -> Result<ContextId, StartError> {
        self.instantiate(plugin)?;
        for name in ["_initialize", "_start"] {
            if self.exports(name) {
                self.call(0, name, &[])?;
                break;
            }
        }
        let root = self.add_root();
        self.create_root(plugin, root)?;
        let size = crate::abi::u32_of(plugin.vm_config.len());
        self.ask(root, "proxy_on_vm_start", size)?;
        self.configure(plugin, root)?;
        Ok(root)
    }

    fn instantiate(&self, plugin: &Plugin) -> Result<(), StartError> {
        let world = Rc::clone(&self.process.world);
        let vm = Vm::new(&plugin.pre, world, self.uid, plugin.fuel_max)
            .map_err(|error| StartError::Load(format!("{error:?}")))?;
        let versions = ["proxy_abi_version_0_2_1", "proxy_abi_version_0_2_0"];
        if !versions.iter().any(|name| vm.exports(name)) {
            return Err(StartError::Abi);
        }
        let allocators = ["proxy_on_memory_allocate", "malloc"];
        if !allocators.iter().any(|name| vm.exports(name)) {
            return Err(StartError::NoAllocator);
        }
        self.process.vms.borrow_mut().insert(self.uid, Rc::new(vm));
        Ok(())
    }

    fn exports(&self, name: &str) -> bool {
        let vms = self.process.vms.borrow();
        vms.get(&self.uid).is_some_and(|vm| vm.exports(name))
    }

    fn add_root(&self) -> ContextId {
        let mut world = self.process.world.borrow_mut();
        world.vm(self.uid).add_context(Owner::Root, None)
    }

    /// The plugin's configuration is readable while its root context is created and configured.
    fn create_root(&self, plugin: &Plugin, root: ContextId) -> Result<(), StartError> {
        self.show_config(Some(plugin.config.borrow().clone()));
        let created = self.call(root, "proxy_on_context_create", &[root, 0]);
        self.show_config(None);
        created.map(|_| ())
    }

    fn configure(&self, plugin: &Plugin, root: ContextId) -> Result<(), StartError> {
        let config = plugin.config.borrow().clone();
        let size = crate::abi::u32_of(config.len());
        self.show_config(Some(config));
        let configured = self.ask(root, "proxy_on_configure", size);
        self.show_config(None);
        configured
    }

    fn show_config(&self, config: Option<Vec<u8>>) {
        self.process.world.borrow_mut().vm(self.uid).plugin_config = config;
    }

    fn call(
        &self,
        context: ContextId,
        callback: &'static str,
        args: &[u32],
    ) -> Result<u32, StartError> {
        let called = self.process.callback(self.uid, context, callback, args);
        called.map_err(|_| StartError::Trapped {
            callback,
            thread: self.thread,
            logs: self.logs(),
        })
    }

    /// Calls a callback with a boolean result; a missing export counts as true.
    fn ask(&self, root: ContextId, callback: &'static str, size: u32) -> Result<(), StartError> {
        let answer = self.call(root, callback, &[root, size])?;
        if answer != 0 || !self.exports(callback) {
            return Ok(());
        }
        Err(StartError::Refused {
            callback,
            thread: self.thread,
            logs: self.logs(),
        })
    }

    fn logs(&self) -> Vec<LogLine> {
        self.process.world.borrow().logs[self.first_log..].to_vec()
    }
}
