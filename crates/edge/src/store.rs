//! Where an edge keeps what it has read.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

/// Values by key. A key has letters, digits, `-`, `_`, `.` and `/`. Nothing else is asked of a store: what is lost is read again
/// from the origin, and what a slow writer puts back is found to be older.
pub trait Store {
    /// The value of `key`, if there is one.
    fn get(&self, key: &str) -> Option<Vec<u8>>;

    /// Writes it.
    ///
    /// # Errors
    /// When the store does not take it: then the edge reads the feed again from where it was.
    fn put(&self, key: &str, value: &[u8]) -> Result<(), NotWritten>;
}

/// The store has not taken a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("cannot write to the edge's store")]
pub struct NotWritten;

/// A store in memory: for hosts that keep an instance for many requests, and for tests.
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
