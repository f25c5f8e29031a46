//! The store of an edge.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

/// Values by key. A key has letters, digits, `-`, `_`, `.` and `/`. No durability or ordering is required: lost values
/// are read again from the origin, and values from a slow writer are detected as older.
pub trait Store {
    /// The value of `key`, if there is one.
    fn get(&self, key: &str) -> Option<Vec<u8>>;

    /// Writes the value of `key`.
    ///
    /// # Errors
    /// If the store refuses it: the edge then reads the feed again from its last position.
    fn put(&self, key: &str, value: &[u8]) -> Result<(), NotWritten>;
}

/// The store did not accept a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("cannot write to the edge's store")]
pub struct NotWritten;

/// A store in memory, for hosts whose instances serve many requests, and for tests.
#[derive(Debug, Default)]
pub struct MemoryStore(RefCell<BTreeMap<String, Vec<u8>>>);

impl Store for MemoryStore {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.0.borrow().get(key).cloned()
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), NotWritten> {
        self.0.borrow_mut().insert(key.into(), value.into());
        Ok(())
    }
}

impl<S: Store + ?Sized> Store for alloc::rc::Rc<S> {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        (**self).get(key)
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), NotWritten> {
        (**self).put(key, value)
    }
}

impl<S: Store + ?Sized> Store for alloc::boxed::Box<S> {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        (**self).get(key)
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), NotWritten> {
        (**self).put(key, value)
    }
}
