//! How often one user and one address may ask.

use proxy_wasm::hostcalls;
use weir_core::address::AddressGroup;
use weir_core::admission::Rejection;
use weir_core::id::UserId;
use weir_core::key::KeyRing;
use weir_core::limit::Decision;
use weir_core::verdict::Verdict;
use weir_filter_kit::table::{HostData, Table};

use crate::config::{LimitsConfig, RateConfig};

/// The limits of one process: its workers share them.
#[derive(Debug)]
pub(crate) struct Limits {
    users: Option<Table<HostData>>,
    addresses: Option<Table<HostData>>,
}

impl Limits {
    /// `keys` seeds the tables' hashes: all workers have the same, and no client knows it.
    pub(crate) fn new(config: &LimitsConfig, keys: &KeyRing) -> Self {
        let table = |name: &str, rate: Option<RateConfig>| {
            rate.map(|rate| {
                let seed = keys.seed(name);
                Table::new(HostData, name, config.slots, seed, rate.gcra())
            })
        };
        Self {
            users: table("users", config.user),
            addresses: table("addresses", config.address),
        }
    }

    /// Takes note of a request by `user` on the effective context's stream, from wherever that comes.
    /// Addresses come first: a flood under many names must not fill the table of users.
    pub(crate) fn check(&self, user: &UserId, now_ms: u64) -> Result<(), Rejection> {
        if let Some(addresses) = &self.addresses {
            let address = hostcalls::get_property(vec!["source", "address"]);
            let address = address.ok().flatten().unwrap_or_default();
            check_one(addresses, &AddressGroup::read(&address).key(), now_ms)?;
        }
        match &self.users {
            Some(users) => check_one(users, user.as_str().as_bytes(), now_ms),
            None => Ok(()),
        }
    }
}

fn check_one(table: &Table<HostData>, key: &[u8], now_ms: u64) -> Result<(), Rejection> {
    match table.decide(key, now_ms) {
        Decision::Allow => Ok(()),
        Decision::Refuse { retry_after_ms } => Err(Rejection {
            verdict: Verdict::RateLimited,
            retry_after_ms: Some(retry_after_ms),
        }),
    }
}
