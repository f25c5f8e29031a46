//! How often one user and one address may ask.

use crate::admission::Rejection;
use crate::verdict::Verdict;
use weir_base::address::AddressGroup;
use weir_base::id::UserId;
use weir_base::key::KeyRing;
use weir_base::shared_data::SharedData;
use weir_engine::Request;
use weir_limit::Quota;
use weir_limit::table::{Table, TableRequest, decide_both, decide_one};

use crate::engine::config::CheckedLimits;

/// The limits of one gateway: its workers share them.
#[derive(Debug)]
pub(crate) struct Limits<D> {
    /// Of requests that buy or ask for an order token.
    buying: Pair<D>,
    /// Of requests that go on with the signed user.
    identified: Pair<D>,
}

/// A limit on users and one on addresses.
#[derive(Debug)]
struct Pair<D> {
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
    pub(crate) fn new(config: &CheckedLimits, keys: &KeyRing, data: &D) -> Self {
        let limit = |name: &str, quota: Option<Quota>| {
            quota.map(|quota| Limit {
                table: Table::new(data.clone(), name, config.slots, keys.seed(name)),
                quota,
            })
        };
        Self {
            buying: Pair {
                users: limit("users", config.user),
                addresses: limit("addresses", config.address),
            },
            identified: Pair {
                users: limit("identified-users", config.identified_user),
                addresses: limit("identified-addresses", config.identified_address),
            },
        }
    }

    /// Takes note of a request to buy, or for an order token, by `user`, from wherever it comes.
    pub(crate) fn check(
        &self,
        user: &UserId,
        request: &dyn Request,
        now_ms: u64,
    ) -> Result<(), Rejection> {
        self.buying.check(Some(user), request, now_ms)
    }

    /// Takes note of a request that goes on with the signed user, if it says who that is.
    pub(crate) fn check_identified(
        &self,
        user: Option<&UserId>,
        request: &dyn Request,
        now_ms: u64,
    ) -> Result<(), Rejection> {
        self.identified.check(user, request, now_ms)
    }
}

impl<D: SharedData> Pair<D> {
    /// The request is charged to both limits or to none: a user who is refused must not use up an address that
    /// neighbours share, and a flood under many names must not fill the table of users.
    fn check(
        &self,
        user: Option<&UserId>,
        request: &dyn Request,
        now_ms: u64,
    ) -> Result<(), Rejection> {
        let address = self.addresses.as_ref().map(|limit| {
            let address = AddressGroup::read(&request.peer_address());
            (limit, address.key())
        });
        let address = address.as_ref().map(|(limit, key)| limit.of(key.as_ref()));
        let user = self.users.as_ref().zip(user);
        let user = user.map(|(limit, user)| limit.of(user.as_str().as_bytes()));
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
    fn of<'a>(&'a self, key: &'a [u8]) -> TableRequest<'a, D> {
        TableRequest {
            table: &self.table,
            quota: self.quota,
            key,
            cost: 1,
        }
    }
}
