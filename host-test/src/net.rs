//! Network filters: connections, and the bytes that pass.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use std::collections::HashMap;
use std::rc::Rc;

use crate::process::Process;
use crate::world::{ConnId, ContextId, Cost, Owner, VmUid};

/// The close type in `proxy_on_downstream_connection_close`.
const CLOSED_BY_HOST: u32 = 1;
const CLOSED_BY_PEER: u32 = 2;
const CLOSED_BY_UNKNOWN: u32 = 0;

/// Bytes in one direction through the filter.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// Bytes that the filter has not passed yet.
    held: Vec<u8>,
    visible: bool,
}

impl Pipe {
    /// The buffer that the filter may read and change.
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

/// The state of a connection.
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

/// The direction of bytes.
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

/// A client's connection through a network filter. Create one with [`Host::connection`](crate::Host::connection).
pub struct Connection {
    pub(crate) process: Rc<Process>,
    pub(crate) id: ConnId,
}

impl Connection {
    /// Sends `bytes` from the client. Returns the bytes that the filter passes to the next filter (or the upstream):
    /// none while it pauses; when it continues, everything it held, with its changes.
    pub fn downstream(&self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        self.process
            .conn_data(self.id, ByteDirection::Downstream, bytes.as_ref(), false)
    }

    /// The same, with the client's end of stream (a half-close).
    pub fn downstream_end(&self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        self.process
            .conn_data(self.id, ByteDirection::Downstream, bytes.as_ref(), true)
    }

    /// Sends `bytes` from the next filter (or the upstream). Returns the bytes that the filter passes to the client.
    ///
    /// Held bytes are shown again together with the next bytes. This is the behaviour before `redis_proxy`, which keeps
    /// unread bytes; `tcp_proxy` asserts that all are read.
    pub fn upstream(&self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        self.process
            .conn_data(self.id, ByteDirection::Upstream, bytes.as_ref(), false)
    }

    /// The client closes the connection: `proxy_on_downstream_connection_close`, then done, log and delete.
    pub fn downstream_close(&self) {
        self.process
            .conn_closed(self.id, CLOSED_BY_PEER, ConnState::Closed);
    }

    /// The upstream ends its side. Envoy has no event for it, so the filter gets data with the end of stream, then
    /// `proxy_on_upstream_connection_close`. Returns the bytes that pass to the client.
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

    /// The state of the connection.
    pub fn state(&self) -> ConnState {
        self.process.world.borrow().conns[self.id].state
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.state() == ConnState::Open
    }

    /// The client's bytes that the filter holds.
    pub fn held_downstream(&self) -> Vec<u8> {
        self.process.world.borrow().conns[self.id]
            .downstream
            .held
            .clone()
    }

    /// The upstream's bytes that the filter holds.
    pub fn held_upstream(&self) -> Vec<u8> {
        self.process.world.borrow().conns[self.id]
            .upstream
            .held
            .clone()
    }

    /// The cost of the connection's callbacks so far.
    pub fn cost(&self) -> Cost {
        self.process.world.borrow().conns[self.id].cost.clone()
    }

    /// The id of the connection's context in the filter.
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
        // If the filter stops here, Envoy calls it again with the first data, so the result has no effect.
        self.conn_callback(id, "proxy_on_new_connection", &[context]);
        id
    }

    /// The callback's result; `None` if the VM died and the connection must not continue.
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

    fn conn_data(&self, id: ConnId, direction: ByteDirection, bytes: &[u8], end: bool) -> Vec<u8> {
        let args = {
            let conn = &mut self.world.borrow_mut().conns[id];
            if conn.state != ConnState::Open {
                return Vec::new();
            }
            let context = conn.context;
            let pipe = direction.pipe(conn);
            pipe.held.extend_from_slice(bytes);
            pipe.visible = true;
            [context, crate::abi::u32_of(pipe.held.len()), u32::from(end)]
        };
        let result = self.conn_callback(id, direction.callback(), &args);
        let conn = &mut self.world.borrow_mut().conns[id];
        let open = conn.state == ConnState::Open;
        let pipe = direction.pipe(conn);
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
