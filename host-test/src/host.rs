//! What a test drives.

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

/// A plugin in an Envoy of its own: a main thread, workers, a clock that only the test moves, and upstreams that
/// answer as the test says.
///
/// Nothing runs by itself. A request runs the filter's callbacks for it at once; whatever those set off in the event
/// loop — queue notifications, calls — waits for [`turn`](Self::turn), [`run_until_idle`](Self::run_until_idle) or
/// [`advance`](Self::advance).
///
/// When it is dropped, a host panics if the filter did what Envoy does not survive
/// (see [`violations`](Self::violations)).
pub struct Host {
    process: Rc<Process>,
    plugin: Rc<Plugin>,
    /// The main thread's, then the workers'.
    slots: Vec<SlotId>,
    strict: bool,
}

impl Host {
    /// Starts to describe a host.
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

    /// Begins a request that `worker` (from 0) will serve.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn request(&self, worker: usize) -> RequestBuilder {
        RequestBuilder::new(self.process(), self.slot(worker))
    }

    /// A client sends malformed HTTP to `worker` (from 0). Envoy answers 400: it creates and ends the filter's context, which gets
    /// no headers.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn malformed_request(&self, worker: usize) {
        let (vm, root) = self.process.vm_for_stream(self.slot(worker));
        let id = self.process.open_stream(vm, root, HashMap::new());
        self.process.end_stream(id, End::Gone);
    }

    /// A client connects to `worker` (from 0), for a network filter.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn connection(&self, worker: usize) -> Connection {
        let (vm, root) = self.process.vm_for_stream(self.slot(worker));
        let id = self.process.open_conn(vm, root);
        Connection {
            process: self.process(),
            id,
        }
    }

    // --- the event loop and the clock ----------------------------------------------------------

    /// One turn of the event loop: what waits now, not what it sets off. Says whether anything waited.
    pub fn turn(&self) -> bool {
        self.process.turn()
    }

    /// Turns the event loop until nothing waits. Time stands still.
    ///
    /// # Panics
    /// If the filter is still busy after 10,000 turns.
    pub fn run_until_idle(&self) {
        self.process.run_until_idle();
    }

    /// Lets time pass. Ticks, timeouts and delayed replies come in the order of their times, and the event loop runs
    /// until idle before, between and after them.
    pub fn advance(&self, by: Duration) {
        self.process.advance(by);
    }

    /// Gives every root context that has asked for ticks one now. Time stands still.
    pub fn tick(&self) {
        self.process.tick_now();
    }

    /// The virtual time, in nanoseconds since the Unix epoch.
    pub fn now_ns(&self) -> u64 {
        self.process.world.borrow().now_ns
    }

    // --- calls to upstreams --------------------------------------------------------------------

    /// The calls that have had no answer yet, oldest first.
    pub fn calls(&self) -> Vec<Call> {
        self.process
            .world
            .borrow()
            .calls
            .values()
            .cloned()
            .collect()
    }

    /// Answers a call that was held, in the next turn of the event loop. Returns false, and does nothing, if the call
    /// is not waiting any more: answered, timed out, or cancelled with its root context or its gRPC stream.
    pub fn answer(&self, call: CallId, reply: Reply) -> bool {
        let waiting = self.process.world.borrow().calls.contains_key(&call);
        if waiting {
            self.process.schedule(call, reply);
        }
        waiting
    }

    /// Adds a cluster, or changes it for calls to come.
    pub fn set_cluster(&self, name: &str, upstream: Upstream) {
        let mut world = self.process.world.borrow_mut();
        world.clusters.insert(name.to_owned(), upstream);
    }

    /// Takes a cluster away: calls that had not arrived are reset, and later ones get `BadArgument`
    /// (opening a gRPC stream: `ParseFailure`).
    pub fn remove_cluster(&self, name: &str) {
        self.process.world.borrow_mut().clusters.remove(name);
    }

    // --- configuration and life ----------------------------------------------------------------

    /// Gives the plugin a new configuration, as a change of the listener does: tried in a canary first, then, in every
    /// VM that lives, a new root context beside the old one. VMs keep their statics. The old root gets
    /// `proxy_on_done` and `proxy_on_delete`.
    ///
    /// # Errors
    /// If the filter refuses it or traps on it. If that was the canary, the old configuration stays in force.
    pub fn reconfigure(&self, config: impl AsRef<[u8]>) -> Result<(), StartError> {
        let config = config.as_ref().to_vec();
        self.process.reconfigure(&self.plugin, &self.slots, config)
    }

    /// Ends the root contexts in all VMs: `proxy_on_done`, then `proxy_on_delete`. Returns false if one asked for time;
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

    /// Whether the worker's VM lives. A dead one is made anew only by a request, and only under
    /// [`FailReload`](crate::FailurePolicy::FailReload).
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn is_alive(&self, worker: usize) -> bool {
        let world = self.process.world.borrow();
        let vm = world.slots[self.slot(worker)].vm;
        vm.is_some_and(|vm| world.alive(vm))
    }

    /// How many pages of memory, of 64 KiB, the VM of `worker` (from 0) has; 0 if it has none.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn memory_pages(&self, worker: usize) -> u64 {
        let uid = self.process.world.borrow().slots[self.slot(worker)].vm;
        let vms = self.process.vms.borrow();
        let vm = uid.and_then(|uid| vms.get(&uid));
        vm.map_or(0, |vm| vm.memory_pages())
    }

    // --- faults --------------------------------------------------------------------------------

    /// The next host call of this name, in whatever VM, traps. Several add up.
    pub fn trap_next(&self, call: &str) {
        self.fault(call, Fault::Trap);
    }

    /// The next Proxy-Wasm host call of this name does nothing and answers `status`. Several add up. (The Rust SDK
    /// panics on statuses that a call does not document.)
    pub fn fail_next(&self, call: &str, status: Status) {
        self.fault(call, Fault::Answer(status));
    }

    fn fault(&self, call: &str, fault: Fault) {
        let mut world = self.process.world.borrow_mut();
        world.faults.push_back((call.to_owned(), fault));
    }

    // --- looking -------------------------------------------------------------------------------

    /// Everything that was logged, by canaries as well.
    pub fn logs(&self) -> Vec<LogLine> {
        self.process.world.borrow().logs.clone()
    }

    /// Whether a line contains `text`.
    pub fn logged(&self, text: &str) -> bool {
        let world = self.process.world.borrow();
        world.logs.iter().any(|line| line.message.contains(text))
    }

    /// The lines of a level or graver.
    pub fn logs_from(&self, level: LogLevel) -> Vec<LogLine> {
        let mut logs = self.logs();
        logs.retain(|line| line.level >= level);
        logs
    }

    /// Forgets what was logged so far.
    pub fn clear_logs(&self) {
        self.process.world.borrow_mut().logs.clear();
    }

    /// The value of a counter or gauge, over all VMs; `None` if none defined it. Names are without Envoy's
    /// `wasmcustom.`.
    pub fn metric(&self, name: &str) -> Option<u64> {
        self.process.world.borrow().metrics.number(name)
    }

    /// All counters and gauges, by name.
    pub fn metrics(&self) -> Vec<(String, u64)> {
        self.process.world.borrow().metrics.all()
    }

    /// What a histogram was given, in order.
    pub fn histogram(&self, name: &str) -> Vec<u64> {
        self.process.world.borrow().metrics.samples(name).to_vec()
    }

    /// A value of the shared data of this host's `vm_id`.
    pub fn shared_data(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        let world = self.process.world.borrow();
        let entry = world.shared_data.get(&self.plugin.vm_id, key.as_ref());
        entry.map(|(value, _)| value.clone())
    }

    /// Writes shared data of this host's `vm_id` without condition.
    pub fn set_shared_data(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let mut world = self.process.world.borrow_mut();
        let value = value.as_ref().to_vec();
        let written = (world.shared_data).set(&self.plugin.vm_id, key.as_ref(), value, 0);
        written.expect("cas 0 has no condition");
    }

    /// The keys of the shared data of this host's `vm_id`, in order: how much of it a filter fills.
    pub fn shared_data_keys(&self) -> Vec<Vec<u8>> {
        self.process
            .world
            .borrow()
            .shared_data
            .keys(&self.plugin.vm_id)
    }

    /// How many items wait in a queue of this host's `vm_id`; `None` if nobody registered it.
    pub fn queue_len(&self, name: &str) -> Option<usize> {
        let world = self.process.world.borrow();
        let queue = world.queues.resolve(&self.plugin.vm_id, name)?;
        world.queues.len(queue)
    }

    /// Puts an item into a queue of this host's `vm_id`, as another plugin might. Returns false if nobody registered
    /// it.
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

    /// What all callbacks of the process cost so far, starting its VMs included.
    pub fn cost(&self) -> Cost {
        self.process.world.borrow().cost.clone()
    }

    /// From now on a callback of this plugin may burn so much fuel before it traps. The trap's text, which is
    /// logged, names the functions that were running: so a test can look where the fuel goes.
    pub fn limit_fuel_per_callback(&self, fuel: u64) {
        let world = self.process.world.borrow();
        let vms = self.process.vms.borrow();
        let running = self.slots.iter().filter_map(|id| world.slots[*id].vm);
        for vm in running.filter_map(|uid| vms.get(&uid)) {
            vm.limit_fuel(fuel);
        }
    }

    /// How many contexts of streams and connections the VM of a thread still has: what should be 0 when no
    /// client is left. [`Thread::Canary`] has none.
    pub fn open_contexts(&self, thread: Thread) -> usize {
        self.of_vm(thread, |vm| {
            let streams = vm.contexts.values();
            streams
                .filter(|context| context.owner != crate::world::Owner::Root)
                .count()
        })
    }

    /// How many gRPC streams the VM of a thread has open, and has not ended from its side.
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

    /// What the filter did that Envoy does not survive, or does to the wrong stream. Such calls had no effect here.
    pub fn violations(&self) -> Vec<Violation> {
        self.process.world.borrow().violations.clone()
    }

    /// The violations so far, which the host then forgets: it will not fail the test for them.
    pub fn take_violations(&self) -> Vec<Violation> {
        std::mem::take(&mut self.process.world.borrow_mut().violations)
    }

    /// Fails the test for what [`violations`](Self::violations) holds. Dropping the host does the same.
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
        // A test that fails already says more with its own message.
        if self.strict && !std::thread::panicking() {
            self.assert_sound();
        }
    }
}
