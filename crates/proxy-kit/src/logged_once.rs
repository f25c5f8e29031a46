//! Log lines that appear once per process, although each worker has a VM of its own.

use weir_base::shared_data::{MISSING, SharedData};

use crate::shared::HostData;

/// Whether no VM has logged this yet. VMs are configured one after the other, so only simultaneous events on two
/// workers may be logged twice.
pub(crate) fn is_new(subject: &str) -> bool {
    let key = format!("weir.logged.{subject}");
    match HostData.get(&key) {
        Some(_) => false,
        None => {
            HostData.set(&key, b"1", MISSING);
            true
        }
    }
}
