//! How often one user and one address may ask.

use weir_base::address::AddressGroup;
use weir_base::id::UserId;
use weir_base::key::KeyRing;
use weir_base::shared_data::SharedData;
use weir_engine::Request;
use weir_limit::Quota;
use weir_limit::table::{Table, TableRequest, decide_one};
use weir_sale::admission::Rejection;
use weir_sale::verdict::Verdict;

use crate::config::{LimitsConfig, RateConfig};

/// The limits of one gateway: its workers share them.
#[derive(Debug)]
pub(crate) struct Limits<D> {
    users: Option<Limit<D>>,
    addresses: Option<Limit<D>>,
}

#[derive(Debug)]
struct Limit<D> {
    table: Table<D>,
    quota: Quota,
}

impl<D: SharedData + Clone> Limits<D> {
    /// `keys` seeds the tables' hashes: all workers have the same, and no client knows it.
    pub(crate) fn new(config: &LimitsConfig, keys: &KeyRing, data: &D) -> Self {
        let limit = |name: &str, rate: Option<RateConfig>| {
            rate.map(|rate| Limit {
                table: Table::new(data.clone(), name, config.slots, keys.seed(name)),
                quota: rate.quota(),
            })
        };
        Self {
            users: limit("users", config.user),
            addresses: limit("addresses", config.address),
        }
    }

    /// Takes note of a request by `user`, from wherever it comes. Addresses come first: a flood under many names must not
    /// fill the table of users.
    pub(crate) fn check(
        &self,
        user: &UserId,
        request: &dyn Request,
        now_ms: u64,
    ) -> Result<(), Rejection> {
        if let Some(addresses) = &self.addresses {
            let address = AddressGroup::read(&request.peer_address());
            addresses.check(&address.key(), now_ms)?;
        }
        match &self.users {
            Some(users) => users.check(user.as_str().as_bytes(), now_ms),
            None => Ok(()),
        }
    }
}

impl<D: SharedData> Limit<D> {
    fn check(&self, key: &[u8], now_ms: u64) -> Result<(), Rejection> {
        let request = TableRequest {
            table: &self.table,
            quota: self.quota,
            key,
            cost: 1,
        };
        match decide_one(request, now_ms).0.wait_ms {
            0 => Ok(()),
            wait_ms => Err(Rejection {
                verdict: Verdict::RateLimited,
                retry_after_ms: Some(wait_ms),
            }),
        }
    }
}
