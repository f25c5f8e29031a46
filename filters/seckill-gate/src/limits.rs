//! How often one user and one address may ask.

use proxy_wasm::hostcalls;
use weir_base::address::AddressGroup;
use weir_base::id::UserId;
use weir_base::key::KeyRing;
use weir_filter_kit::table::{HostData, Table, TableRequest, decide_one};
use weir_limit::Quota;
use weir_sale::admission::Rejection;
use weir_sale::verdict::Verdict;

use crate::config::{LimitsConfig, RateConfig};

/// The limits of one process: its workers share them.
#[derive(Debug)]
pub(crate) struct Limits {
    users: Option<Limit>,
    addresses: Option<Limit>,
}

#[derive(Debug)]
struct Limit {
    table: Table<HostData>,
    quota: Quota,
}

impl Limits {
    /// `keys` seeds the tables' hashes: all workers have the same, and no client knows it.
    pub(crate) fn new(config: &LimitsConfig, keys: &KeyRing) -> Self {
        let limit = |name: &str, rate: Option<RateConfig>| {
            rate.map(|rate| Limit {
                table: Table::new(HostData, name, config.slots, keys.seed(name)),
                quota: rate.quota(),
            })
        };
        Self {
            users: limit("users", config.user),
            addresses: limit("addresses", config.address),
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

fn check_one(limit: &Limit, key: &[u8], now_ms: u64) -> Result<(), Rejection> {
    let Limit { table, quota } = limit;
    let ask = TableRequest {
        table,
        quota: *quota,
        key,
        cost: 1,
    };
    match decide_one(ask, now_ms).0.wait_ms {
        0 => Ok(()),
        wait_ms => Err(Rejection {
            verdict: Verdict::RateLimited,
            retry_after_ms: Some(wait_ms),
        }),
    }
}
