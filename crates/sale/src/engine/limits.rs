//! Rate limits per user and per address.

use crate::admission::Rejection;
use crate::verdict::Verdict;
use weir_base::address::AddressGroup;
use weir_base::id::UserId;
use weir_base::shared_data::SharedData;
use weir_engine::Request;
use weir_limit::Quota;
use weir_limit::table::{Table, TableRequest, decide_both, decide_one};

use crate::engine::config::CheckedConfig;

/// One gateway's limits per user and per address, shared by its workers.
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
    /// Limits of requests for orders and order tokens.
    pub(crate) fn buying(config: &CheckedConfig, data: &D) -> Self {
        let limits = &config.limits;
        let quotas = [("users", limits.user), ("addresses", limits.address)];
        Self::new(config, data, quotas)
    }

    /// Limits of requests with the signed user.
    pub(crate) fn identified(config: &CheckedConfig, data: &D) -> Self {
        let limits = &config.limits;
        let quotas = [
            ("identified-users", limits.identified_user),
            ("identified-addresses", limits.identified_address),
        ];
        Self::new(config, data, quotas)
    }

    /// The claim keys seed the tables' hashes: they are the same in all workers, and secret.
    fn new(config: &CheckedConfig, data: &D, quotas: [(&str, Option<Quota>); 2]) -> Self {
        let (slots, keys) = (config.limits.slots, &config.claim_keys);
        let [users, addresses] = quotas.map(|(name, quota)| {
            quota.map(|quota| Limit {
                table: Table::new(data.clone(), name, slots, keys.seed(name)),
                quota,
            })
        });
        Self { users, addresses }
    }

    /// Charges both limits or none. So a refused user does not use up an address shared with neighbours, and a flood
    /// with many names does not fill the table of users.
    pub(crate) fn check(
        &self,
        user: Option<&UserId>,
        request: &dyn Request,
        now_ms: u64,
    ) -> Result<(), Rejection> {
        let address = self.addresses.as_ref().map(|limit| {
            let address = AddressGroup::read(&request.peer_address());
            (limit, address.key())
        });
        let address = address
            .as_ref()
            .map(|(limit, key)| limit.request_for(key.as_ref()));
        let user = self.users.as_ref().zip(user);
        let user = user.map(|(limit, user)| limit.request_for(user.as_str().as_bytes()));
        let wait_ms = match (address, user) {
            (Some(address), Some(user)) => decide_both(&[address, user], now_ms).wait_ms(),
            (Some(one), None) | (None, Some(one)) => decide_one(one, now_ms).0.wait_ms,
            (None, None) => 0,
        };
        match wait_ms {
            0 => Ok(()),
            wait_ms => Err(Rejection {
                verdict: Verdict::RateLimited,
                retry_after_ms: Some(wait_ms),
            }),
        }
    }
}

impl<D: SharedData> Limit<D> {
    /// One request of `key`.
    fn request_for<'a>(&'a self, key: &'a [u8]) -> TableRequest<'a, D> {
        TableRequest {
            table: &self.table,
            quota: self.quota,
            key,
            cost: 1,
        }
    }
}
