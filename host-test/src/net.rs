//! Network filters: connections, and what they let pass.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use std::collections::HashMap;
use std::rc::Rc;

use crate::process::Process;
use crate::world::{ConnId, ContextId, Cost, Owner, VmUid};

/// What `proxy_on_downstream_connection_close` says of who closed.
const CLOSED_BY_HOST: u32 = 1;
const CLOSED_BY_PEER: u32 = 2;
const CLOSED_BY_UNKNOWN: u32 = 0;

/// Bytes on one way through the filter.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// What the filter has not let pass yet.
    held: Vec<u8>,
    visible: bool,
}

impl Pipe {
    /// The buffer as the filter may see and change it.
    pub fn visible(&mut self) -> Option<&mut Vec<u8>> {
        self.visible.then_some(&mut self.held)
    }
}

/// The host's side of one connection.
pub(crate) struct Conn {
    pub vm: VmUid,
    pub context: ContextId,
    pub downstream: Pipe,
    pub upstream: Pipe,
    pub properties: HashMap<Vec<u8>, Vec<u8>>,
    pub cost: Cost,
    pub state: ConnState,
    upstream_closed: bool,
}

/// How a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnState {
    /// Open.
    Open,
    /// The client closed it, or the test closed both sides.
    Closed,
    /// The filter closed it (`proxy_close_stream`).
    ClosedByFilter,
    /// Its VM died: Envoy closes it (unless the policy is to fail open).
    Failed,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByteDirection {
    Downstream,
    Upstream,
}

impl ByteDirection {
    fn callback(self) -> &'static str {
        match self {
            Self::Downstream => "proxy_on_downstream_data",
            Self::Upstream => "proxy_on_upstream_data",
        }
    }

    fn pipe(self, conn: &mut Conn) -> &mut Pipe {
        match self {
            Self::Downstream => &mut conn.downstream,
            Self::Upstream => &mut conn.upstream,
        }
    }
}

/// A client's connection through a network filter. Get one from
/// [`Host::connection`](crate::Host::connection).
pub struct Connection {
    pub(crate) process: Rc<Process>,
    pub(crate) id: ConnId,
}

impl Connection {
    /// The client sends `bytes`. Returns what the filter lets pass to the next filter (or the upstream): nothing
    /// while it pauses; when it continues, everything it held back, with its changes.
    pub fn downstream(&self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        self.process
            .conn_data(self.id, ByteDirection::Downstream, bytes.as_ref(), false)
    }

    /// The same, with the client's end of stream (a half-close).
    pub fn downstream_end(&self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        self.process
            .conn_data(self.id, ByteDirection::Downstream, bytes.as_ref(), true)
    }

    /// The next filter (or the upstream) sends `bytes`. Returns what the filter lets pass to the client.
    ///
    /// What it holds back is seen again together with the next bytes. That is how it is in front of
    /// `redis_proxy`, which keeps what was not taken; `tcp_proxy` asserts that all is taken.
    pub fn upstream(&self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        self.process
            .conn_data(self.id, ByteDirection::Upstream, bytes.as_ref(), false)
    }

    /// The client closes the connection: `proxy_on_downstream_connection_close`, then done, log and delete.
    pub fn downstream_close(&self) {
        self.process
            .conn_closed(self.id, CLOSED_BY_PEER, ConnState::Closed);
    }

    /// The upstream ends its side. As Envoy has no event for it, the filter sees data with the end of stream,
    /// then `proxy_on_upstream_connection_close`. Returns what passes to the client.
    pub fn upstream_close(&self) -> Vec<u8> {
        if self.process.world.borrow().conns[self.id].upstream_closed {
            return Vec::new();
        }
        let passed = self
            .process
            .conn_data(self.id, ByteDirection::Upstream, b"", true);
        self.process.upstream_closed(self.id);
        passed
    }

    /// How the connection stands.
    pub fn state(&self) -> ConnState {
        self.process.world.borrow().conns[self.id].state
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.state() == ConnState::Open
    }

    /// What of the client's bytes the filter holds back.
    pub fn held_downstream(&self) -> Vec<u8> {
        self.process.world.borrow().conns[self.id]
            .downstream
            .held
            .clone()
    }

    /// What of the upstream's bytes the filter holds back.
    pub fn held_upstream(&self) -> Vec<u8> {
        self.process.world.borrow().conns[self.id]
            .upstream
            .held
            .clone()
    }

    /// What the connection's callbacks cost so far.
    pub fn cost(&self) -> Cost {
        self.process.world.borrow().conns[self.id].cost.clone()
    }

    /// The id that the filter knows the connection's context by.
    pub fn context_id(&self) -> u32 {
        self.process.world.borrow().conns[self.id].context
    }
}

impl Process {
    pub(crate) fn open_conn(&self, vm: VmUid, root: ContextId) -> ConnId {
        let (id, context) = {
            let world = &mut *self.world.borrow_mut();
            let id = world.conns.len();
            let context = world.vm(vm).add_context(Owner::Tcp(id), Some(root));
            world.conns.push(Conn {
                vm,
                context,
                downstream: Pipe::default(),
                upstream: Pipe::default(),
                properties: HashMap::new(),
                cost: Cost::default(),
                state: ConnState::Open,
                upstream_closed: false,
            });
            (id, context)
        };
        self.conn_callback(id, "proxy_on_context_create", &[context, root]);
        // Envoy asks again with the first data if the filter stops here, so the answer changes nothing.
        self.conn_callback(id, "proxy_on_new_connection", &[context]);
        id
    }

    /// The callback's result; `None` if the VM died and the connection is not to go on.
    fn conn_callback(&self, id: ConnId, name: &'static str, args: &[u32]) -> Option<u32> {
        let (vm, context) = {
            let world = self.world.borrow();
            (world.conns[id].vm, world.conns[id].context)
        };
        if let Ok(result) = self.callback(vm, context, name, args) {
            return Some(result);
        }
        if self.fails_open(vm) {
            return Some(0);
        }
        let conn = &mut self.world.borrow_mut().conns[id];
        if conn.state == ConnState::Open {
            conn.state = ConnState::Failed;
        }
        None
    }

    fn conn_data(&self, id: ConnId, way: ByteDirection, bytes: &[u8], end: bool) -> Vec<u8> {
        let args = {
            let conn = &mut self.world.borrow_mut().conns[id];
            if conn.state != ConnState::Open {
                return Vec::new();
            }
            let context = conn.context;
            let pipe = way.pipe(conn);
            pipe.held.extend_from_slice(bytes);
            pipe.visible = true;
            [context, crate::abi::u32_of(pipe.held.len()), u32::from(end)]
        };
        let result = self.conn_callback(id, way.callback(), &args);
        let conn = &mut self.world.borrow_mut().conns[id];
        let open = conn.state == ConnState::Open;
        let pipe = way.pipe(conn);
        match result {
            Some(0) if open => {
                pipe.visible = false;
                std::mem::take(&mut pipe.held)
            }
            _ => Vec::new(),
        }
    }

    fn upstream_closed(&self, id: ConnId) {
        let context = {
            let conn = &mut self.world.borrow_mut().conns[id];
            if conn.state != ConnState::Open {
                return;
            }
            conn.upstream_closed = true;
            conn.context
        };
        let args = [context, CLOSED_BY_UNKNOWN];
        self.conn_callback(id, "proxy_on_upstream_connection_close", &args);
    }

    pub(crate) fn close_conn(&self, id: ConnId) {
        self.conn_closed(id, CLOSED_BY_HOST, ConnState::ClosedByFilter);
    }

    fn conn_closed(&self, id: ConnId, closed_by: u32, state: ConnState) {
        let (vm, context) = {
            let conn = &mut self.world.borrow_mut().conns[id];
            if conn.state != ConnState::Open {
                return;
            }
            conn.state = state;
            (conn.vm, conn.context)
        };
        let name = "proxy_on_downstream_connection_close";
        self.conn_callback(id, name, &[context, closed_by]);
        for name in ["proxy_on_done", "proxy_on_log", "proxy_on_delete"] {
            self.conn_callback(id, name, &[context]);
        }
        self.world.borrow_mut().vm(vm).contexts.remove(&context);
    }
}
