//! The process around the VMs: callbacks with their deferred actions, the event loop, and the clock.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use crate::abi::{LogLevel, Status, u32_of};
use crate::plugin::FailurePolicy;
use crate::upstream::{Call, CallId, Reply};
use crate::vm::Vm;
use crate::world::{Action, CallResponse, ContextId, Event, SlotId, VmUid, World};

/// Maximum turns until a filter must be idle.
const TURNS_MAX: usize = 10_000;

/// The callback trapped, or its VM had died before.
#[derive(Debug)]
pub(crate) struct DeadVm;

pub(crate) struct Process {
    pub world: Rc<RefCell<World>>,
    pub vms: RefCell<HashMap<VmUid, Rc<Vm>>>,
    pub next_uid: Cell<VmUid>,
}

impl Process {
    pub fn new(now_ns: u64) -> Self {
        Self {
            world: Rc::new(RefCell::new(World::new(now_ns))),
            vms: RefCell::default(),
            next_uid: Cell::new(1),
        }
    }

    /// Calls into a VM, then runs the callback's deferred actions. A missing export returns 0, which is "continue".
    /// After a local reply the result is "pause", for any return value of the filter.
    pub fn callback(
        &self,
        uid: VmUid,
        context: ContextId,
        name: &'static str,
        args: &[u32],
    ) -> Result<u32, DeadVm> {
        if !self.world.borrow().alive(uid) {
            return Err(DeadVm);
        }
        let vm = self.vms.borrow().get(&uid).cloned().ok_or(DeadVm)?;
        if !vm.exports(name) {
            return Ok(0);
        }
        let called = vm.call(context, name, args);
        self.account(uid, context, called.fuel);
        // Before the actions: the deferred reply of a dead VM becomes Envoy's 503.
        if let Err(trap) = &called.result {
            self.kill(uid, &format!("trap in {name}: {trap}"));
        }
        let (actions, stop) = {
            let mut world = self.world.borrow_mut();
            let vm = world.vm(uid);
            let stop = std::mem::take(&mut vm.stop_iteration);
            (std::mem::take(&mut vm.actions), stop)
        };
        self.act(uid, actions);
        match called.result {
            Ok(result) => Ok(if stop { 1 } else { result }),
            Err(_) => Err(DeadVm),
        }
    }

    fn account(&self, uid: VmUid, context: ContextId, fuel: u64) {
        let mut world = self.world.borrow_mut();
        world.cost.fuel += fuel;
        world.cost.callbacks += 1;
        if let Some(cost) = world.cost_of(uid, context) {
            cost.fuel += fuel;
            cost.callbacks += 1;
        }
    }

    /// Marks the VM as dead: no further calls into it.
    pub fn kill(&self, uid: VmUid, why: &str) {
        let mut world = self.world.borrow_mut();
        world.log(uid, LogLevel::Critical, why.to_owned());
        let vm = world.vm(uid);
        vm.failed = Some(why.to_owned());
        vm.ticks.clear();
        vm.grpc_streams.clear();
        (world.calls).retain(|_, call| call.vm != uid || call.stream().is_none());
        drop(world);
        self.vms.borrow_mut().remove(&uid);
    }

    pub fn fails_open(&self, uid: VmUid) -> bool {
        self.world.borrow_mut().vm(uid).policy == FailurePolicy::FailOpen
    }

    /// Runs deferred actions. Envoy nests these; here they run in sequence, and nesting that is too deep for Envoy
    /// kills the VM here.
    fn act(&self, uid: VmUid, actions: Vec<Action>) {
        let answers_max = self.world.borrow_mut().vm(uid).answers_max;
        let mut answers = 0;
        for action in actions {
            answers += usize::from(matches!(action, Action::Resume(..) | Action::Reply(..)));
            if answers > answers_max {
                let why = format!(
                    "more than {answers_max} streams answered from one callback: Envoy nests them and V8's \
                     stack overflows"
                );
                return self.kill(uid, &why);
            }
            match action {
                Action::Resume(id, direction) => self.resume(id, direction),
                Action::Reply(id, reply) => self.reply(id, reply),
                Action::Reset(id) => self.reset(id),
                Action::CloseConn(id) => self.close_conn(id),
                Action::DeleteRoot(context) => self.delete_root(uid, context),
            }
        }
    }

    /// Runs one turn of the event loop: events that wait now, not those that follow. Returns whether there were any.
    pub fn turn(&self) -> bool {
        let waiting = std::mem::take(&mut self.world.borrow_mut().events);
        let busy = !waiting.is_empty();
        for event in waiting {
            self.handle(event);
        }
        busy
    }

    pub fn run_until_idle(&self) {
        for _ in 0..TURNS_MAX {
            if !self.turn() {
                return;
            }
        }
        panic!("the filters are still busy after {TURNS_MAX} iterations of the event loop");
    }

    fn handle(&self, event: Event) {
        match event {
            Event::QueueReady {
                slot,
                context,
                queue,
            } => self.queue_ready(slot, context, queue),
            Event::CallArrives(id) => self.call_arrives(id),
            Event::StreamEnds(vm, stream) => self.end_grpc(vm, stream),
            Event::Answer(id, reply) => self.answer(id, reply),
        }
    }

    fn queue_ready(&self, slot: SlotId, context: ContextId, queue: u32) {
        let uid = self.world.borrow().slots.get(slot).and_then(|slot| slot.vm);
        let Some(uid) = uid else { return };
        let existing = (self.world.borrow_mut().vm(uid).contexts).contains_key(&context);
        if existing {
            // The VM has recorded a trap; the result is not needed.
            let _ = self.callback(uid, context, "proxy_on_queue_ready", &[context, queue]);
        }
    }

    fn call_arrives(&self, id: CallId) {
        let (call, upstream) = {
            let world = self.world.borrow();
            let Some(call) = world.calls.get(&id).cloned() else {
                return;
            };
            let upstream = world.clusters.get(&call.cluster).cloned();
            (call, upstream)
        };
        // A cluster that was removed in the meantime resets its calls. The world is not borrowed: scripts may access
        // it.
        let reply = upstream.map_or(Reply::Fail, |upstream| upstream.answer(&call));
        self.schedule(id, reply);
    }

    /// Schedules the delivery of `reply`: in the next turn, later, or never.
    pub fn schedule(&self, id: CallId, reply: Reply) {
        let mut world = self.world.borrow_mut();
        match reply {
            Reply::Hold => {}
            Reply::After(delay, reply) => {
                let due_ns = world.now_ns + nanoseconds(delay);
                world.delayed.push((due_ns, id, *reply));
            }
            reply => world.events.push_back(Event::Answer(id, reply)),
        }
    }

    fn answer(&self, id: CallId, reply: Reply) {
        let call = {
            let world = &mut *self.world.borrow_mut();
            let Some(call) = world.calls.remove(&id) else {
                return;
            };
            if !world.vm(call.vm).contexts.contains_key(&call.root) {
                return;
            }
            call
        };
        match call.stream() {
            Some(stream) => self.answer_message(&call, stream, reply),
            None => self.answer_call(&call, reply),
        }
    }

    fn answer_call(&self, call: &Call, reply: Reply) {
        let args = {
            let world = &mut *self.world.borrow_mut();
            let vm = world.vm(call.vm);
            vm.call_status = (Status::Ok as u32, String::new());
            let mut sizes = [0; 3];
            if let Reply::Response {
                headers,
                body,
                trailers,
            } = reply
            {
                sizes = [headers.len(), body.len(), trailers.len()].map(u32_of);
                vm.call_response = Some(CallResponse {
                    headers,
                    body,
                    trailers,
                });
            } else {
                vm.call_status = (Status::BrokenConnection as u32, "reset".to_owned());
            }
            [call.root, call.token, sizes[0], sizes[1], sizes[2]]
        };
        // The VM has recorded a trap; the result is not needed.
        let _ = self.callback(call.vm, call.root, "proxy_on_http_call_response", &args);
        let mut world = self.world.borrow_mut();
        let vm = world.vm(call.vm);
        vm.call_response = None;
        vm.call_status.1.clear();
    }

    /// Advances the clock, stopping at each due event.
    pub fn advance(&self, by: Duration) {
        self.run_until_idle();
        let end_ns = self.world.borrow().now_ns + nanoseconds(by);
        loop {
            let due_ns = self.next_due_ns().filter(|due_ns| *due_ns <= end_ns);
            let Some(due_ns) = due_ns else { break };
            let now_ns = {
                let mut world = self.world.borrow_mut();
                world.now_ns = world.now_ns.max(due_ns);
                world.now_ns
            };
            self.fire(now_ns);
            self.run_until_idle();
        }
        self.world.borrow_mut().now_ns = end_ns;
    }

    fn next_due_ns(&self) -> Option<u64> {
        let world = self.world.borrow();
        let ticks = world.vms.values().flat_map(|vm| vm.ticks.values());
        let ticks = ticks.map(|tick| tick.due_ns);
        let timeouts = world.calls.values().filter_map(call_due_ns);
        let delayed = world.delayed.iter().map(|(due_ns, ..)| *due_ns);
        ticks.chain(timeouts).chain(delayed).min()
    }

    /// Delayed replies come first, then timeouts, then ticks.
    fn fire(&self, now_ns: u64) {
        for (_, id, reply) in self.take_delayed(now_ns) {
            self.schedule(id, reply);
        }
        {
            let world = &mut *self.world.borrow_mut();
            let late = world.calls.values_mut();
            for call in late.filter(|call| call_due_ns(call).is_some_and(|due| due <= now_ns)) {
                // Fires once; a reply in flight comes first.
                call.timeout = None;
                world.events.push_back(Event::Answer(call.id, Reply::Fail));
            }
        }
        self.run_until_idle();
        self.tick(now_ns);
    }

    fn take_delayed(&self, now_ns: u64) -> Vec<(u64, CallId, Reply)> {
        let delayed = &mut self.world.borrow_mut().delayed;
        delayed.sort_by_key(|(due_ns, id, _)| (*due_ns, *id));
        let due = delayed.partition_point(|(due_ns, ..)| *due_ns <= now_ns);
        delayed.drain(..due).collect()
    }

    /// Ticks every root context with a tick period, due or not.
    pub fn tick_now(&self) {
        let now_ns = self.world.borrow().now_ns;
        let mut world = self.world.borrow_mut();
        let ticks = world.vms.values_mut().flat_map(|vm| vm.ticks.values_mut());
        ticks.for_each(|tick| tick.due_ns = now_ns);
        drop(world);
        self.tick(now_ns);
    }

    fn tick(&self, now_ns: u64) {
        let mut due: Vec<_> = {
            let world = self.world.borrow();
            let all = world.vms.iter().flat_map(|(uid, vm)| {
                vm.ticks
                    .iter()
                    .map(|(root, tick)| (tick.due_ns, *uid, *root))
            });
            all.filter(|(due_ns, ..)| *due_ns <= now_ns).collect()
        };
        due.sort_unstable();
        for (_, uid, root) in due {
            if let Some(tick) = self.world.borrow_mut().vm(uid).ticks.get_mut(&root) {
                tick.due_ns = now_ns + tick.period_ns;
            } else {
                // An earlier tick stopped this one.
                continue;
            }
            // The VM has recorded a trap; the result is not needed.
            let _ = self.callback(uid, root, "proxy_on_tick", &[root]);
        }
    }
}

fn call_due_ns(call: &Call) -> Option<u64> {
    Some(call.at_ns + nanoseconds(call.timeout?))
}

/// Saturates at 584 years.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}
