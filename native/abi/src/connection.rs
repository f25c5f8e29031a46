//! A client connection in a network filter: decrypted bytes before the next filter reads them.

use core::cell::Cell;
use core::marker::PhantomData;
use std::rc::Rc;

use crate::api::{Api, Buffer, Raw, api};

/// The ABI's values for closing at once, and after a flush and a delay.
const NO_FLUSH: u32 = 1;
const FLUSH_AND_DELAY: u32 = 2;

/// A connection, during one of its hooks.
#[derive(Debug)]
pub struct Connection<'h> {
    raw: Raw,
    is_alive: Rc<Cell<bool>>,
    hook: PhantomData<&'h ()>,
}

/// Two functions: one returns the number of slices of a buffer, the other writes the slices.
type Pieces = (
    unsafe extern "C" fn(Raw) -> usize,
    unsafe extern "C" fn(Raw, *mut Buffer) -> bool,
);

impl Connection<'_> {
    /// # Safety
    /// `raw` must be the filter that Envoy passed to the running hook, and must outlive `self`. `is_alive` must become false
    /// before Envoy destroys the filter.
    pub(crate) unsafe fn new(raw: Raw, is_alive: &Rc<Cell<bool>>) -> Self {
        Self {
            raw,
            is_alive: Rc::clone(is_alive),
            hook: PhantomData,
        }
    }

    /// The connection for use outside of its hooks, on its own thread.
    pub fn handle(&self) -> ConnectionHandle {
        ConnectionHandle {
            raw: self.raw,
            is_alive: Rc::clone(&self.is_alive),
        }
    }

    /// A scheduler that calls this connection's thread from any thread. `None` if Envoy returns none.
    pub fn scheduler(&self) -> Option<ConnectionScheduler> {
        // SAFETY: the filter is valid during its hook.
        let raw = unsafe { (api()?.connection_scheduler_new)(self.raw) };
        (!raw.is_null()).then_some(ConnectionScheduler { raw })
    }

    /// Drains the first `count` bytes about to be sent, so that the client does not get them.
    pub fn take_sent(&mut self, count: usize) {
        if let Some(api) = api() {
            // SAFETY: the filter is valid during its hook; Envoy checks `count`.
            unsafe { (api.take_write)(self.raw, count) };
        }
    }

    /// Calls `read` with the received bytes that no filter has drained, as one slice. Copies if there are several
    /// slices.
    pub fn with_received<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        self.with_pieces(|api| (api.read_pieces_count, api.read_pieces), read)
    }

    /// Calls `read` with the bytes about to be sent to the client, as one slice.
    pub fn with_sent<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        self.with_pieces(|api| (api.write_pieces_count, api.write_pieces), read)
    }

    fn with_pieces<R>(&self, of: impl FnOnce(&Api) -> Pieces, read: impl FnOnce(&[u8]) -> R) -> R {
        let Some(api) = api() else { return read(&[]) };
        let (count, get) = of(api);
        // SAFETY: the filter is valid during its hook.
        let count = unsafe { count(self.raw) };
        // There is nearly always exactly one slice.
        let (mut one, mut many) = ([Buffer::EMPTY], Vec::new());
        let pieces = match count {
            0 | 1 => one.as_mut_slice(),
            count => {
                many.resize(count, Buffer::EMPTY);
                many.as_mut_slice()
            }
        };
        // SAFETY: Envoy writes `count` slices. Their bytes stay valid until the buffer changes, which is after `read`.
        let has_them = count > 0 && unsafe { get(self.raw, pieces.as_mut_ptr()) };
        // SAFETY: as above.
        let bytes = |buffer: &Buffer| unsafe { buffer.bytes() };
        match &*pieces {
            _ if !has_them => read(&[]),
            [buffer] => read(bytes(buffer)),
            pieces => read(&pieces.iter().map(bytes).collect::<Vec<_>>().concat()),
        }
    }

    /// Drains the first `count` received bytes, so that the next filter does not get them.
    pub fn take(&mut self, count: usize) {
        if let Some(api) = api() {
            // SAFETY: the filter is valid during its hook; Envoy checks `count`.
            unsafe { (api.take_read)(self.raw, count) };
        }
    }

    /// Sends bytes to the client. The write hooks run before this returns.
    pub fn send(&mut self, bytes: &[u8]) {
        if let Some(api) = api() {
            // SAFETY: as above; Envoy copies the bytes.
            unsafe { (api.write_connection)(self.raw, Buffer::from_bytes(bytes), false) };
        }
    }

    /// Closes the connection after a flush, with a short delay for the client to read.
    pub fn close(&mut self) {
        if let Some(api) = api() {
            // SAFETY: as above.
            unsafe { (api.close_connection)(self.raw, FLUSH_AND_DELAY) };
        }
    }

    /// The client's `address:port`; empty if the connection has none.
    pub fn remote_address(&self) -> String {
        let (mut address, mut port) = (Buffer::EMPTY, 0_u32);
        // SAFETY: the filter is valid during its hook. The address that Envoy writes lives as long as the connection.
        let bytes = unsafe {
            match api() {
                Some(api) if (api.remote_address)(self.raw, &raw mut address, &raw mut port) => {
                    address.bytes()
                }
                _ => &[],
            }
        };
        let address = String::from_utf8_lossy(bytes);
        match address.as_ref() {
            "" => String::new(),
            address if address.contains(':') => format!("[{address}]:{port}"),
            address => format!("{address}:{port}"),
        }
    }

    /// Whether the connection uses TLS.
    pub fn is_tls(&self) -> bool {
        // SAFETY: the filter is valid during its hook.
        api().is_some_and(|api| unsafe { (api.is_tls)(self.raw) })
    }
}

/// A connection for use outside of its hooks. Like all of the connection, it lives on one thread.
#[derive(Debug)]
pub struct ConnectionHandle {
    raw: Raw,
    is_alive: Rc<Cell<bool>>,
}

impl ConnectionHandle {
    /// Passes bytes to the next filter, as if the client had sent them. Returns `false` if the connection is gone.
    pub fn inject(&self, bytes: &[u8]) -> bool {
        let Some(api) = api().filter(|_| self.is_alive.get()) else {
            return false;
        };
        // SAFETY: the filter is alive, and this is its thread, because the handle cannot leave it. Envoy copies the bytes.
        unsafe { (api.inject_read)(self.raw, Buffer::from_bytes(bytes), false) };
        true
    }

    /// Closes the connection at once.
    pub fn close(&self) {
        if let Some(api) = api().filter(|_| self.is_alive.get()) {
            // SAFETY: as above.
            unsafe { (api.close_connection)(self.raw, NO_FLUSH) };
        }
    }
}

/// Schedules [`Module::connection_called`](crate::Module::connection_called) on the connection's thread, from any thread. The
/// call is dropped if the connection is gone.
#[derive(Debug)]
pub struct ConnectionScheduler {
    raw: Raw,
}

// SAFETY: Envoy's schedulers are made for use from other threads. `commit` only posts to a locked queue.
unsafe impl Send for ConnectionScheduler {}
// SAFETY: as above: `commit` does not modify the scheduler itself.
unsafe impl Sync for ConnectionScheduler {}

impl ConnectionScheduler {
    /// Schedules the call.
    pub fn call(&self) {
        if let Some(api) = api() {
            // SAFETY: Envoy created it, and only `drop` deletes it.
            unsafe { (api.connection_scheduler_commit)(self.raw, 0) }
        }
    }
}

impl Drop for ConnectionScheduler {
    fn drop(&mut self) {
        if let Some(api) = api() {
            // SAFETY: as above, and the pointer is not used again.
            unsafe { (api.connection_scheduler_delete)(self.raw) }
        }
    }
}
