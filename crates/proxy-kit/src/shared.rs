//! Envoy's shared data: memory that all VMs of one process with one `vm_id` share.

use proxy_wasm::hostcalls;
use proxy_wasm::types::Status;
use weir_base::shared_data::{MISSING, SharedData};

use crate::host::now_ns;

/// How often [`shared_seed`] tries.
const TRIES_MAX: usize = 8;

/// The shared data of Envoy.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostData;

impl SharedData for HostData {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        let (value, version) = hostcalls::get_shared_data(key).ok()?;
        Some((value?, version?))
    }

    fn set(&self, key: &str, value: &[u8], version: u32) -> bool {
        let written = hostcalls::set_shared_data(key, Some(value), Some(version));
        // Any other failure would be one at the next try too: it counts as written.
        written != Err(Status::CasMismatch)
    }
}

/// A seed for the hashes of tables, for a filter that has no secret: the same in all VMs of this process, and another one
/// in the next. The first VM makes it of the clock, in nanoseconds, which those who ask do not know.
pub fn shared_seed(filter: &str) -> u64 {
    let key = format!("weir.{filter}.seed");
    for _ in 0..TRIES_MAX {
        if let Some((bytes, _)) = HostData.get(&key)
            && let Ok(bytes) = bytes.try_into()
        {
            return u64::from_le_bytes(bytes);
        }
        HostData.set(&key, &now_ns().to_le_bytes(), MISSING);
    }
    0
}
