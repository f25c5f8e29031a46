//! A connection of a client, as a network filter sees it: decrypted bytes before the next filter has them.

use core::marker::PhantomData;

use crate::api::{Api, Buffer, Raw, api};

/// The ABI's number.
const FLUSH_AND_DELAY: u32 = 2;

/// A connection, during one of its hooks.
#[derive(Debug)]
pub struct Connection<'h> {
    raw: Raw,
    hook: PhantomData<&'h ()>,
}

/// A function that says how many pieces a buffer has, and one that says where they are.
type Pieces = (
    unsafe extern "C" fn(Raw) -> usize,
    unsafe extern "C" fn(Raw, *mut Buffer) -> bool,
);

impl Connection<'_> {
    /// # Safety
    /// `raw` must be the filter that Envoy has given to the hook that runs, which must outlive `self`.
    pub(crate) unsafe fn new(raw: Raw) -> Self {
        Self {
            raw,
            hook: PhantomData,
        }
    }

    /// Calls `read` with the received bytes that no filter has taken yet, in one piece: several pieces are copied.
    pub fn with_received<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        self.with_pieces(|api| (api.read_pieces_count, api.read_pieces), read)
    }

    /// Calls `read` with the bytes that are about to go to the client, in one piece.
    pub fn with_sent<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        self.with_pieces(|api| (api.write_pieces_count, api.write_pieces), read)
    }

    fn with_pieces<R>(&self, of: impl FnOnce(&Api) -> Pieces, read: impl FnOnce(&[u8]) -> R) -> R {
        let Some(api) = api() else { return read(&[]) };
        let (count, get) = of(api);
        // SAFETY: the filter is alive during its hook.
        let count = unsafe { count(self.raw) };
        // Nearly always there is one.
        let (mut one, mut many) = ([Buffer::EMPTY], Vec::new());
        let pieces = match count {
            0 | 1 => one.as_mut_slice(),
            count => {
                many.resize(count, Buffer::EMPTY);
                many.as_mut_slice()
            }
        };
        // SAFETY: Envoy writes as many as it has said, of bytes that stay until the buffer changes: after `read`.
        let has_them = count > 0 && unsafe { get(self.raw, pieces.as_mut_ptr()) };
        // SAFETY: as above.
        let bytes = |piece: &Buffer| unsafe { piece.bytes() };
        match &*pieces {
            _ if !has_them => read(&[]),
            [piece] => read(bytes(piece)),
            pieces => read(&pieces.iter().map(bytes).collect::<Vec<_>>().concat()),
        }
    }

    /// Takes the first bytes that have come, so that the next filter does not get them.
    pub fn take(&mut self, count: usize) {
        if let Some(api) = api() {
            // SAFETY: the filter is alive during its hook; Envoy checks the number.
            unsafe { (api.take_read)(self.raw, count) };
        }
    }

    /// Sends bytes to the client. Hooks of what is sent run before it returns.
    pub fn send(&mut self, bytes: &[u8]) {
        if let Some(api) = api() {
            // SAFETY: as above; Envoy copies.
            unsafe { (api.write_connection)(self.raw, Buffer::from_bytes(bytes), false) };
        }
    }

    /// Closes the connection when all has been sent, and gives the client a moment to read it.
    pub fn close(&mut self) {
        if let Some(api) = api() {
            // SAFETY: as above.
            unsafe { (api.close_connection)(self.raw, FLUSH_AND_DELAY) };
        }
    }

    /// The client's address and port, as `address:port`; empty if it has none.
    pub fn remote_address(&self) -> String {
        let (mut address, mut port) = (Buffer::EMPTY, 0_u32);
        // SAFETY: the filter is alive during its hook; Envoy writes an address that lives as long as the connection.
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

    /// Whether it is encrypted.
    pub fn is_tls(&self) -> bool {
        // SAFETY: the filter is alive during its hook.
        api().is_some_and(|api| unsafe { (api.is_tls)(self.raw) })
    }
}
