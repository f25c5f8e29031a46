//! The state that host calls access: in Envoy, the process, its threads' contexts and its streams.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::rc::Rc;

use crate::abi::{Headers, LogLevel, Status};
use crate::calls::metrics::{MetricIds, Metrics};
use crate::calls::queues::Queues;
use crate::calls::shared_data::SharedData;
use crate::grpc::GrpcStream;
use crate::http::{HttpStream, LocalReply};
use crate::net::Conn;
use crate::plugin::{FailurePolicy, Plugin};
use crate::upstream::{Call, CallId, Reply, Upstream};

pub(crate) type VmUid = u32;
pub(crate) type ContextId = u32;
pub(crate) type SlotId = usize;
pub(crate) type StreamId = usize;
pub(crate) type ConnId = usize;
pub(crate) type ForeignFn = Rc<RefCell<dyn FnMut(&[u8]) -> Result<Vec<u8>, Status>>>;

/// 2024-01-01T00:00:00Z: the default start of the virtual clock.
pub(crate) const START_NS: u64 = 1_704_067_200_000_000_000;

/// A thread of Envoy with a Wasm VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Thread {
    /// The VM that tries a configuration first; it is dropped immediately.
    Canary,
    /// Envoy's main thread: it serves no requests, but its VM is configured and ticks.
    Main,
    /// A worker, from 0.
    Worker(usize),
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Canary => f.write_str("canary"),
            Self::Main => f.write_str("main thread"),
            Self::Worker(n) => write!(f, "worker {n}"),
        }
    }
}

/// A log line from a filter, or from the host about a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The severity.
    pub level: LogLevel,
    /// The text, with replacement characters for invalid UTF-8.
    pub message: String,
    /// The VM's thread.
    pub thread: Thread,
    /// The `vm_id` of that VM.
    pub vm_id: String,
    /// Virtual time, in nanoseconds since the Unix epoch.
    pub at_ns: u64,
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] [{}] {}", self.thread, self.level, self.message)
    }
}

/// An action of a filter that crashes stock Envoy, or affects the wrong stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The host call, for example `proxy_send_local_response`.
    pub call: &'static str,
    /// The thread.
    pub thread: Thread,
    /// The problem, and Envoy's behaviour.
    pub explanation: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.call, self.thread, self.explanation)
    }
}

/// The cost of running Wasm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cost {
    /// Executed Wasm instructions, in wasmtime's units (about one per instruction). The same module and input give the
    /// same number on every machine.
    pub fuel: u64,
    /// Callbacks that the host made into the module.
    pub callbacks: u64,
    /// Bytes that host calls copied from or to the module's memory.
    pub bytes_copied: u64,
    pub(crate) calls: BTreeMap<&'static str, u64>,
}

impl Cost {
    /// The number of host calls of this name, for example `proxy_get_header_map_value`.
    pub fn host_calls(&self, name: &str) -> u64 {
        self.calls.get(name).copied().unwrap_or(0)
    }

    /// The number of all host calls.
    pub fn host_calls_total(&self) -> u64 {
        self.calls.values().sum()
    }

    /// All host calls with their counts, by name.
    pub fn host_calls_by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.calls.iter().map(|(name, count)| (*name, *count))
    }
}

/// The owner of a context id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Root,
    Http(StreamId),
    Tcp(ConnId),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub owner: Owner,
    pub root: ContextId,
}

/// Request or response, with the numbers of `proxy_continue_stream`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Request,
    Response,
}

/// Actions that Envoy defers until the callback has returned.
#[derive(Debug)]
pub(crate) enum Action {
    Resume(StreamId, Direction),
    Reply(StreamId, LocalReply),
    Reset(StreamId),
    CloseConn(ConnId),
    /// Deletes a root context that had requested time.
    DeleteRoot(ContextId),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Tick {
    pub period_ns: u64,
    pub due_ns: u64,
}

#[derive(Debug, Default)]
pub(crate) struct CallResponse {
    pub headers: Headers,
    pub body: Vec<u8>,
    pub trailers: Headers,
}

/// The host's side of one VM.
pub(crate) struct VmState {
    pub slot: SlotId,
    pub thread: Thread,
    pub policy: FailurePolicy,
    pub shows_body_to_held: bool,
    pub answers_max: usize,
    pub vm_id: String,
    pub root_id: String,
    pub vm_config: Vec<u8>,
    pub env: Vec<(String, String)>,
    /// Only while a root context is created or configured, as in Envoy.
    pub plugin_config: Option<Vec<u8>>,
    pub contexts: HashMap<ContextId, Context>,
    pub next_context: ContextId,
    pub failed: Option<String>,
    pub ticks: HashMap<ContextId, Tick>,
    pub next_token: u32,
    pub next_grpc: u32,
    pub grpc_streams: HashMap<u32, GrpcStream>,
    /// The message of the current `proxy_on_grpc_receive`; otherwise empty.
    pub grpc_received: Vec<u8>,
    pub metric_ids: MetricIds,
    pub call_response: Option<CallResponse>,
    pub call_status: (u32, String),
    pub actions: Vec<Action>,
    pub stop_iteration: bool,
    /// Root contexts that returned "not yet" from `proxy_on_done`.
    pub pending_done: HashSet<ContextId>,
}

impl VmState {
    pub fn add_context(&mut self, owner: Owner, root: Option<ContextId>) -> ContextId {
        let id = self.next_context;
        self.next_context += 1;
        let root = root.unwrap_or(id);
        self.contexts.insert(id, Context { owner, root });
        id
    }
}

/// Events for later turns of the event loop.
pub(crate) enum Event {
    QueueReady {
        slot: SlotId,
        context: ContextId,
        queue: u32,
    },
    /// The call reaches its upstream.
    CallArrives(CallId),
    Answer(CallId, Reply),
    /// The other side closes a stream after the end of the filter's half.
    StreamEnds(VmUid, u32),
}

/// The slot of a VM: a plugin on a thread. A reload replaces its VM.
pub(crate) struct Slot {
    pub plugin: Rc<Plugin>,
    pub thread: Thread,
    pub vm: Option<VmUid>,
    pub root: ContextId,
    pub reloaded_ns: Option<u64>,
}

/// An injected fault for the next host call of a name.
pub(crate) enum Fault {
    Trap,
    Answer(Status),
}

pub(crate) struct World {
    pub now_ns: u64,
    pub random: u64,
    pub shared_data: SharedData,
    pub queues: Queues,
    pub metrics: Metrics,
    pub logs: Vec<LogLine>,
    pub clusters: HashMap<String, Upstream>,
    pub calls: BTreeMap<CallId, Call>,
    pub next_call: u64,
    pub delayed: Vec<(u64, CallId, Reply)>,
    pub events: VecDeque<Event>,
    pub violations: Vec<Violation>,
    pub faults: VecDeque<(String, Fault)>,
    pub foreign: HashMap<String, ForeignFn>,
    pub properties: HashMap<Vec<u8>, Vec<u8>>,
    pub vms: HashMap<VmUid, VmState>,
    pub slots: Vec<Slot>,
    pub streams: Vec<HttpStream>,
    pub conns: Vec<Conn>,
    pub cost: Cost,
}

impl World {
    pub fn new(now_ns: u64) -> Self {
        Self {
            now_ns,
            random: 0x9e37_79b9_7f4a_7c15,
            shared_data: SharedData::default(),
            queues: Queues::default(),
            metrics: Metrics::default(),
            logs: Vec::new(),
            clusters: HashMap::new(),
            calls: BTreeMap::new(),
            next_call: 1,
            delayed: Vec::new(),
            events: VecDeque::new(),
            violations: Vec::new(),
            faults: VecDeque::new(),
            foreign: HashMap::new(),
            properties: HashMap::new(),
            vms: HashMap::new(),
            slots: Vec::new(),
            streams: Vec::new(),
            conns: Vec::new(),
            cost: Cost::default(),
        }
    }

    pub fn vm(&mut self, uid: VmUid) -> &mut VmState {
        self.vms
            .get_mut(&uid)
            .expect("a VM's state lives as long as the VM")
    }

    pub fn alive(&self, uid: VmUid) -> bool {
        self.vms.get(&uid).is_some_and(|vm| vm.failed.is_none())
    }

    pub fn log(&mut self, uid: VmUid, level: LogLevel, message: String) {
        let at_ns = self.now_ns;
        let vm = self.vm(uid);
        let line = LogLine {
            level,
            message,
            thread: vm.thread,
            vm_id: vm.vm_id.clone(),
            at_ns,
        };
        self.logs.push(line);
    }

    pub fn violate(&mut self, uid: VmUid, call: &'static str, explanation: String) {
        let thread = self.vm(uid).thread;
        self.violations.push(Violation {
            call,
            thread,
            explanation,
        });
    }

    /// The id of a new call, which arrives in the next turn. The caller must add it to the calls.
    pub fn name_call(&mut self) -> CallId {
        let id = CallId(self.next_call);
        self.next_call += 1;
        self.events.push_back(Event::CallArrives(id));
        id
    }

    /// Drops the unanswered messages of a gRPC stream.
    pub fn forget_messages(&mut self, uid: VmUid, stream: u32) {
        self.calls
            .retain(|_, call| (call.vm, call.stream()) != (uid, Some(stream)));
    }

    /// The cost account of the owner of `context`; root contexts only have the host's.
    pub fn cost_of(&mut self, uid: VmUid, context: ContextId) -> Option<&mut Cost> {
        match self.vms.get(&uid)?.contexts.get(&context)?.owner {
            Owner::Root => None,
            Owner::Http(id) => Some(&mut self.streams[id].cost),
            Owner::Tcp(id) => Some(&mut self.conns[id].cost),
        }
    }

    /// Repeatable pseudo-random bits (splitmix64), so that failures are reproducible.
    pub fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
