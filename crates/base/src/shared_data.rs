//! Memory shared by the workers of one gateway. Engines may read and write it while they handle an event.

use alloc::vec::Vec;

/// A version that no value has: a write with it succeeds only if the key is missing. (A write with the version 0 would
/// be unconditional.) Hosts count versions up from 1.
pub const MISSING: u32 = u32::MAX;

/// Versioned values shared by several workers. No call blocks.
pub trait SharedData {
    /// The value of `key` and its version, if there is one.
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)>;

    /// Writes the value of `key` if its version is still `version`, or, with [`MISSING`], if the key does not exist.
    /// Returns whether it wrote. A `version` of 0 writes unconditionally.
    fn set(&self, key: &str, value: &[u8], version: u32) -> bool;
}

impl<D: SharedData + ?Sized> SharedData for alloc::rc::Rc<D> {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        (**self).get(key)
    }

    fn set(&self, key: &str, value: &[u8], version: u32) -> bool {
        (**self).set(key, value, version)
    }
}

impl<D: SharedData + ?Sized> SharedData for alloc::sync::Arc<D> {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        (**self).get(key)
    }

    fn set(&self, key: &str, value: &[u8], version: u32) -> bool {
        (**self).set(key, value, version)
    }
}

/// Shared data of one thread: for hosts with one worker, tests and simulations.
#[derive(Debug, Default)]
pub struct LocalData {
    values:
        core::cell::RefCell<alloc::collections::BTreeMap<alloc::string::String, (Vec<u8>, u32)>>,
}

impl SharedData for LocalData {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        self.values.borrow().get(key).cloned()
    }

    fn set(&self, key: &str, value: &[u8], version: u32) -> bool {
        let mut values = self.values.borrow_mut();
        let existing = values.get(key).map(|(_, version)| *version);
        let is_current = version == 0 || existing.is_none_or(|existing| existing == version);
        if is_current {
            let next = existing.unwrap_or(0) + 1;
            values.insert(key.into(), (value.to_vec(), next));
        }
        is_current
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;

    #[test]
    fn workers_with_shared_data_read_writes_of_each_other() {
        let data = Rc::new(LocalData::default());
        let other = Rc::clone(&data);
        assert!(SharedData::set(&data, "a", b"1", MISSING));
        assert!(!SharedData::set(&other, "a", b"2", MISSING));
        let read = SharedData::get(&other, "a").map(|(value, _)| value);
        assert_eq!(read.as_deref(), Some(&b"1"[..]));
        assert_eq!(SharedData::get(&other, "b"), None);
    }

    #[test]
    fn write_succeeds_only_on_the_version_read() {
        let data = LocalData::default();
        assert_eq!(data.get("a"), None);
        assert!(data.set("a", b"1", MISSING));
        assert!(!data.set("a", b"2", MISSING), "it is there now");
        let (value, version) = data.get("a").unwrap();
        assert_eq!(value, b"1");
        assert!(data.set("a", b"2", version));
        assert!(!data.set("a", b"3", version), "another was quicker");
        assert!(data.set("a", b"4", 0));
        assert_eq!(data.get("a").unwrap().0, b"4");
    }
}
