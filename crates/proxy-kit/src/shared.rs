//! Envoy's shared data: memory shared by all VMs of a process with the same `vm_id`.

use proxy_wasm::hostcalls;
use proxy_wasm::types::Status;
use weir_base::shared_data::SharedData;
use weir_engine::setup::Host;

use crate::env;
use crate::host::{now_ns, unique_name};

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
        // Any other failure would recur at the next try: it counts as written.
        written != Err(Status::CasMismatch)
    }
}

/// Envoy as the host of engines.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProxyHost;

impl Host for ProxyHost {
    type Data = HostData;

    fn data(&self) -> HostData {
        HostData
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        env::var(name)
    }

    fn unique_name(&self) -> String {
        unique_name()
    }

    /// The clock in nanoseconds, which clients do not know.
    fn unguessable(&self) -> u64 {
        now_ns()
    }

    /// The id of the Envoy node.
    fn gateway_name(&self) -> String {
        let id = hostcalls::get_property(vec!["node", "id"]).ok().flatten();
        id.map_or_else(String::new, |id| String::from_utf8_lossy(&id).into_owned())
    }

    fn tells_routes(&self) -> bool {
        true
    }
}
