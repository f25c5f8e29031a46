//! Everything that host calls touch: what in Envoy is the process, its threads' contexts and its streams.

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

/// 2024-01-01T00:00:00Z: where the virtual clock starts unless a test says otherwise.
pub(crate) const START_NS: u64 = 1_704_067_200_000_000_000;

/// One of Envoy's threads, as far as Wasm sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Thread {
    /// The VM in which a configuration is tried first; it is dropped at once.
    Canary,
    /// Envoy's main thread: it serves no requests, but its VM is configured and ticks.
    Main,
    /// A worker, counted from 0.
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

/// One line that a filter, or the host about a filter, logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How grave it is.
    pub level: LogLevel,
    /// The text; bytes that are not UTF-8 are replaced.
    pub message: String,
    /// Where the VM runs.
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

/// Something a filter did that stock Envoy does not survive, or does to the wrong stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The host call, for example `proxy_send_local_response`.
    pub call: &'static str,
    /// Where it happened.
    pub thread: Thread,
    /// What is wrong with it, and what Envoy would do.
    pub explanation: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.call, self.thread, self.explanation)
    }
}

/// What running Wasm cost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cost {
    /// Wasm instructions executed, in wasmtime's units (about one an instruction). The same module and the
    /// same input give the same number on every machine.
    pub fuel: u64,
    /// Callbacks that the host made into the module.
    pub callbacks: u64,
    /// Bytes that host calls copied out of the module's memory or into it.
    pub bytes_copied: u64,
    pub(crate) calls: BTreeMap<&'static str, u64>,
}

impl Cost {
    /// How often the host call `name` was made, for example `proxy_get_header_map_value`.
    pub fn host_calls(&self, name: &str) -> u64 {
        self.calls.get(name).copied().unwrap_or(0)
    }

    /// How many host calls were made, all names together.
    pub fn host_calls_total(&self) -> u64 {
        self.calls.values().sum()
    }

    /// Every host call made, with its count, by name.
    pub fn host_calls_by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.calls.iter().map(|(name, count)| (*name, *count))
    }
}

/// What a context id stands for.
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

/// Request or response; the numbers of `proxy_continue_stream`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Request,
    Response,
}

/// What Envoy puts off until the callback has returned.
#[derive(Debug)]
pub(crate) enum Action {
    Resume(StreamId, Direction),
    Reply(StreamId, LocalReply),
    Reset(StreamId),
    CloseConn(ConnId),
    /// A root context that had asked for time is done.
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
    /// Only while a root context is being created or configured, as in Envoy.
    pub plugin_config: Option<Vec<u8>>,
    pub contexts: HashMap<ContextId, Context>,
    pub next_context: ContextId,
    pub failed: Option<String>,
    pub ticks: HashMap<ContextId, Tick>,
    pub next_token: u32,
    pub next_grpc: u32,
    pub grpc_streams: HashMap<u32, GrpcStream>,
    /// The message that `proxy_on_grpc_receive` is about; empty at other times.
    pub grpc_received: Vec<u8>,
    pub metric_ids: MetricIds,
    pub call_response: Option<CallResponse>,
    pub call_status: (u32, String),
    pub actions: Vec<Action>,
    pub stop_iteration: bool,
    /// Root contexts that answered "not yet" to `proxy_on_done`.
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

/// What the next turns of the event loop will do.
pub(crate) enum Event {
    QueueReady {
        slot: SlotId,
        context: ContextId,
        queue: u32,
    },
    /// The call reaches its upstream.
    CallArrives(CallId),
    Answer(CallId, Reply),
    /// The other side closes a stream whose end it was told.
    StreamEnds(VmUid, u32),
}

/// A VM's place: a plugin on a thread. The VM in it changes when it is reloaded.
pub(crate) struct Slot {
    pub plugin: Rc<Plugin>,
    pub thread: Thread,
    pub vm: Option<VmUid>,
    pub root: ContextId,
    pub reloaded_ns: Option<u64>,
}

/// What a test wants the next host call of a kind to do instead of its work.
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

    /// Names a new call, which arrives in the next turn. Whoever makes it puts it among the calls.
    pub fn name_call(&mut self) -> CallId {
        let id = CallId(self.next_call);
        self.next_call += 1;
        self.events.push_back(Event::CallArrives(id));
        id
    }

    /// Nobody waits any more for what was sent over a gRPC stream.
    pub fn forget_messages(&mut self, uid: VmUid, stream: u32) {
        self.calls
            .retain(|_, call| (call.vm, call.stream()) != (uid, Some(stream)));
    }

    /// The cost account of whatever `context` stands for; root contexts have only the host's.
    pub fn cost_of(&mut self, uid: VmUid, context: ContextId) -> Option<&mut Cost> {
        match self.vms.get(&uid)?.contexts.get(&context)?.owner {
            Owner::Root => None,
            Owner::Http(id) => Some(&mut self.streams[id].cost),
            Owner::Tcp(id) => Some(&mut self.conns[id].cost),
        }
    }

    /// Repeatable pseudo-random bits (splitmix64): a test that fails must fail again.
    pub fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
