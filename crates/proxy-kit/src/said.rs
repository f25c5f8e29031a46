//! What is said once in a process, though each worker has a VM of its own and all of them know it.

use weir_base::shared_data::{MISSING, SharedData};

use crate::shared::HostData;

/// Whether nobody has said this yet. VMs are configured one after the other, so only what two workers notice at the same moment
/// may be said twice.
pub(crate) fn is_new(what: &str) -> bool {
    let key = format!("weir.said.{what}");
    match HostData.get(&key) {
        Some(_) => false,
        None => {
            HostData.set(&key, b"1", MISSING);
            true
        }
    }
}
