//! The host that a test controls.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use crate::abi::{LogLevel, Status};
use crate::builder::Builder;
use crate::http::End;
use crate::net::Connection;
use crate::plugin::{Plugin, StartError};
use crate::process::Process;
use crate::stream::RequestBuilder;
use crate::upstream::{Call, CallId, Reply, Upstream};
use crate::world::{Cost, Fault, LogLine, SlotId, Thread, Violation};

/// A plugin in its own Envoy: a main thread, workers, a virtual clock, and upstreams that the test scripts.
///
/// Nothing runs on its own. A request runs the filter's callbacks for it at once. Queue notifications and calls that
/// follow wait for [`turn`](Self::turn), [`run_until_idle`](Self::run_until_idle) or [`advance`](Self::advance).
///
/// A dropped host panics if the filter did something that crashes Envoy (see [`violations`](Self::violations)).
pub struct Host {
    process: Rc<Process>,
    plugin: Rc<Plugin>,
    /// The main thread's slot, then the workers'.
    slots: Vec<SlotId>,
    strict: bool,
}

impl Host {
    /// Starts the description of a host.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(
        process: Rc<Process>,
        plugin: Rc<Plugin>,
        slots: Vec<SlotId>,
        strict: bool,
    ) -> Self {
        Self {
            process,
            plugin,
            slots,
            strict,
        }
    }

    pub(crate) fn process(&self) -> Rc<Process> {
        Rc::clone(&self.process)
    }

    fn slot(&self, worker: usize) -> SlotId {
        let slot = self.slots.get(worker + 1).copied();
        let workers = self.slots.len() - 1;
        slot.unwrap_or_else(|| panic!("unknown worker {worker}: the host has {workers}"))
    }

    // --- traffic -------------------------------------------------------------------------------

    /// Starts a request on `worker` (from 0).
    ///
    /// # Panics
    /// If the worker does not exist.
    pub fn request(&self, worker: usize) -> RequestBuilder {
        RequestBuilder::new(self.process(), self.slot(worker))
    }

    /// Sends malformed HTTP to `worker` (from 0). Envoy answers 400: it creates and ends the filter's context, which
    /// gets no headers.
    ///
    /// # Panics
    /// If the worker does not exist.
    pub fn malformed_request(&self, worker: usize) {
        let (vm, root) = self.process.vm_for_stream(self.slot(worker));
        let id = self.process.open_stream(vm, root, HashMap::new());
        self.process.end_stream(id, End::Gone);
    }

    /// Connects a client to `worker` (from 0), for a network filter.
    ///
    /// # Panics
    /// If the worker does not exist.
    pub fn connection(&self, worker: usize) -> Connection {
        let (vm, root) = self.process.vm_for_stream(self.slot(worker));
        let id = self.process.open_conn(vm, root);
        Connection {
            process: self.process(),
            id,
        }
    }

    // --- the event loop and the clock ----------------------------------------------------------

    /// Runs one turn of the event loop: events that wait now, not those that follow. Returns whether there were any.
    pub fn turn(&self) -> bool {
        self.process.turn()
    }

    /// Runs the event loop until no events wait. The clock does not advance.
    ///
    /// # Panics
    /// If the filter is still busy after 10,000 turns.
    pub fn run_until_idle(&self) {
        self.process.run_until_idle();
    }

    /// Advances the clock. Ticks, timeouts and delayed replies occur in the order of their times. The event loop runs
    /// until idle before, between and after them.
    pub fn advance(&self, by: Duration) {
        self.process.advance(by);
    }

    /// Ticks every root context with a tick period once. The clock does not advance.
    pub fn tick(&self) {
        self.process.tick_now();
    }

    /// The virtual time, in nanoseconds since the Unix epoch.
    pub fn now_ns(&self) -> u64 {
        self.process.world.borrow().now_ns
    }

    // --- calls to upstreams --------------------------------------------------------------------

    /// The unanswered calls, oldest first.
    pub fn calls(&self) -> Vec<Call> {
        self.process
            .world
            .borrow()
            .calls
            .values()
            .cloned()
            .collect()
    }

    /// Answers a held call in the next turn of the event loop. Returns false, without effect, if the call no longer
    /// waits: answered, timed out, or cancelled with its root context or its gRPC stream.
    pub fn answer(&self, call: CallId, reply: Reply) -> bool {
        let waiting = self.process.world.borrow().calls.contains_key(&call);
        if waiting {
            self.process.schedule(call, reply);
        }
        waiting
    }

    /// Adds a cluster, or replaces it for later calls.
    pub fn set_cluster(&self, name: &str, upstream: Upstream) {
        let mut world = self.process.world.borrow_mut();
        world.clusters.insert(name.to_owned(), upstream);
    }

    /// Removes a cluster: calls that have not arrived are reset, and later ones get `BadArgument` (opening a gRPC
    /// stream: `ParseFailure`).
    pub fn remove_cluster(&self, name: &str) {
        self.process.world.borrow_mut().clusters.remove(name);
    }

    // --- configuration and life ----------------------------------------------------------------

    /// Changes the plugin's configuration, like a change of the listener. A canary tries it first. Then every live VM
    /// gets a new root context in addition to the old one, which gets `proxy_on_done` and `proxy_on_delete`. VMs keep
    /// their statics.
    ///
    /// # Errors
    /// If the filter refuses the configuration or traps on it. After a failure in the canary, the old configuration
    /// stays in force.
    pub fn reconfigure(&self, config: impl AsRef<[u8]>) -> Result<(), StartError> {
        let config = config.as_ref().to_vec();
        self.process.reconfigure(&self.plugin, &self.slots, config)
    }

    /// Ends the root contexts in all VMs: `proxy_on_done`, then `proxy_on_delete`. Returns false if one requested time;
    /// it is deleted when the filter calls `proxy_done`.
    pub fn shutdown(&self) -> bool {
        let mut done = true;
        for slot in &self.slots {
            let (vm, root) = {
                let world = self.process.world.borrow();
                (world.slots[*slot].vm, world.slots[*slot].root)
            };
            if let Some(vm) = vm {
                done &= self.process.end_root(vm, root);
            }
        }
        done
    }

    /// Whether the worker's VM is alive. Only a request replaces a dead one, and only with
    /// [`FailReload`](crate::FailurePolicy::FailReload).
    ///
    /// # Panics
    /// If the worker does not exist.
    pub fn is_alive(&self, worker: usize) -> bool {
        let world = self.process.world.borrow();
        let vm = world.slots[self.slot(worker)].vm;
        vm.is_some_and(|vm| world.alive(vm))
    }

    /// The memory of the VM of `worker` (from 0), in pages of 64 KiB; 0 without a VM.
    ///
    /// # Panics
    /// If the worker does not exist.
    pub fn memory_pages(&self, worker: usize) -> u64 {
        let uid = self.process.world.borrow().slots[self.slot(worker)].vm;
        let vms = self.process.vms.borrow();
        let vm = uid.and_then(|uid| vms.get(&uid));
        vm.map_or(0, |vm| vm.memory_pages())
    }

    // --- faults --------------------------------------------------------------------------------

    /// The next host call of this name, in any VM, traps. Several faults add up.
    pub fn trap_next(&self, call: &str) {
        self.fault(call, Fault::Trap);
    }

    /// The next Proxy-Wasm host call of this name has no effect and returns `status`. Several faults add up. (The Rust
    /// SDK panics on statuses that a call does not document.)
    pub fn fail_next(&self, call: &str, status: Status) {
        self.fault(call, Fault::Answer(status));
    }

    fn fault(&self, call: &str, fault: Fault) {
        let mut world = self.process.world.borrow_mut();
        world.faults.push_back((call.to_owned(), fault));
    }

    // --- observation ---------------------------------------------------------------------------

    /// All log lines, including those of canaries.
    pub fn logs(&self) -> Vec<LogLine> {
        self.process.world.borrow().logs.clone()
    }

    /// Whether a line contains `text`.
    pub fn logged(&self, text: &str) -> bool {
        let world = self.process.world.borrow();
        world.logs.iter().any(|line| line.message.contains(text))
    }

    /// The lines of this level or a more severe one.
    pub fn logs_from(&self, level: LogLevel) -> Vec<LogLine> {
        let mut logs = self.logs();
        logs.retain(|line| line.level >= level);
        logs
    }

    /// Clears the log lines.
    pub fn clear_logs(&self) {
        self.process.world.borrow_mut().logs.clear();
    }

    /// The value of a counter or gauge over all VMs; `None` if it is not defined. Names omit Envoy's `wasmcustom.`.
    pub fn metric(&self, name: &str) -> Option<u64> {
        self.process.world.borrow().metrics.number(name)
    }

    /// All counters and gauges, by name.
    pub fn metrics(&self) -> Vec<(String, u64)> {
        self.process.world.borrow().metrics.all()
    }

    /// The samples of a histogram, in order.
    pub fn histogram(&self, name: &str) -> Vec<u64> {
        self.process.world.borrow().metrics.samples(name).to_vec()
    }

    /// A value of the shared data of this host's `vm_id`.
    pub fn shared_data(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        let world = self.process.world.borrow();
        let entry = world.shared_data.get(&self.plugin.vm_id, key.as_ref());
        entry.map(|(value, _)| value.clone())
    }

    /// Writes shared data of this host's `vm_id` unconditionally.
    pub fn set_shared_data(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let mut world = self.process.world.borrow_mut();
        let value = value.as_ref().to_vec();
        let written = (world.shared_data).set(&self.plugin.vm_id, key.as_ref(), value, 0);
        written.expect("cas 0 has no condition");
    }

    /// The keys of the shared data of this host's `vm_id`, in order, to measure how much a filter uses.
    pub fn shared_data_keys(&self) -> Vec<Vec<u8>> {
        self.process
            .world
            .borrow()
            .shared_data
            .keys(&self.plugin.vm_id)
    }

    /// The number of items in a queue of this host's `vm_id`; `None` if it is not registered.
    pub fn queue_len(&self, name: &str) -> Option<usize> {
        let world = self.process.world.borrow();
        let queue = world.queues.resolve(&self.plugin.vm_id, name)?;
        world.queues.len(queue)
    }

    /// Adds an item to a queue of this host's `vm_id`, like another plugin. Returns false if it is not registered.
    pub fn enqueue(&self, name: &str, item: impl AsRef<[u8]>) -> bool {
        let mut world = self.process.world.borrow_mut();
        let Some(queue) = world.queues.resolve(&self.plugin.vm_id, name) else {
            return false;
        };
        let listener = world.queues.push(queue, item.as_ref().to_vec());
        if let Ok((slot, context)) = listener {
            world.events.push_back(crate::world::Event::QueueReady {
                slot,
                context,
                queue,
            });
        }
        listener.is_ok()
    }

    /// The cost of all callbacks of the process so far, including the start of its VMs.
    pub fn cost(&self) -> Cost {
        self.process.world.borrow().cost.clone()
    }

    /// Limits the fuel of later callbacks of this plugin; they trap beyond it. The logged text of the trap names the
    /// running functions, which shows where the fuel goes.
    pub fn limit_fuel_per_callback(&self, fuel: u64) {
        let world = self.process.world.borrow();
        let vms = self.process.vms.borrow();
        let running = self.slots.iter().filter_map(|id| world.slots[*id].vm);
        for vm in running.filter_map(|uid| vms.get(&uid)) {
            vm.limit_fuel(fuel);
        }
    }

    /// The number of open contexts of streams and connections in a thread's VM: it should be 0 when all clients have
    /// left. [`Thread::Canary`] has none.
    pub fn open_contexts(&self, thread: Thread) -> usize {
        self.of_vm(thread, |vm| {
            let streams = vm.contexts.values();
            streams
                .filter(|context| context.owner != crate::world::Owner::Root)
                .count()
        })
    }

    /// The number of gRPC streams that a thread's VM has open and has not ended from its side.
    pub fn open_grpc_streams(&self, thread: Thread) -> usize {
        self.of_vm(thread, |vm| {
            let streams = vm.grpc_streams.values();
            streams
                .filter(|stream| stream.state != crate::grpc::GrpcState::Ended)
                .count()
        })
    }

    fn of_vm(&self, thread: Thread, count: impl FnOnce(&crate::world::VmState) -> usize) -> usize {
        let world = self.process.world.borrow();
        let slots = self.slots.iter().map(|id| &world.slots[*id]);
        let vm = slots
            .filter(|slot| slot.thread == thread)
            .find_map(|slot| slot.vm);
        vm.and_then(|vm| world.vms.get(&vm)).map_or(0, count)
    }

    /// Actions of the filter that crash Envoy, or affect the wrong stream. They had no effect here.
    pub fn violations(&self) -> Vec<Violation> {
        self.process.world.borrow().violations.clone()
    }

    /// The violations so far. The host clears them, and will not fail the test for them.
    pub fn take_violations(&self) -> Vec<Violation> {
        std::mem::take(&mut self.process.world.borrow_mut().violations)
    }

    /// Fails the test if there are [`violations`](Self::violations). Dropping the host does the same.
    ///
    /// # Panics
    /// If there are any.
    pub fn assert_sound(&self) {
        let violations = self.take_violations();
        let lines: String = violations.iter().map(|v| format!("\n  {v}")).collect();
        assert!(
            violations.is_empty(),
            "the filter made calls that crash Envoy:{lines}"
        );
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A failing test already has a better message of its own.
        if self.strict && !std::thread::panicking() {
            self.assert_sound();
        }
    }
}
