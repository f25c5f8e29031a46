//! Acts like a gateway in Redis.

use weir_origin::clock::now_ms;
use weir_sale::claim::Ticket;
use weir_sale::idempotency::AttemptTag;
use weir_sale::ledger::{Audit, Checks, ClaimReply, ClaimTerms};
use weir_sale::redis::{claim, keys};
use weir_sale::shard::home_shard;
use weir_sale::site::first_shard;
use weir_scripts::{Call, Script};

use super::*;

impl World {
    /// Runs a Redis command of the test.
    pub async fn redis(&self, command: &redis::Cmd) -> redis::Value {
        if !self.redis_url.contains(',') {
            let mut connection = weir_stack::redis::connect(&self.redis_url).await.unwrap();
            return command.query_async(&mut connection).await.unwrap();
        }
        let client = redis::cluster::ClusterClient::new(self.redis_url.split(',')).unwrap();
        let mut connection = client.get_async_connection().await.unwrap();
        command.query_async(&mut connection).await.unwrap()
    }

    /// Claims a unit for `name` like a gateway.
    pub async fn claim(&self, sale: &str, name: &str) -> Ticket {
        self.claim_at(sale, name, now_ms()).await
    }

    /// Claims a unit for `name` like a gateway, while the Redis clock shows `now_ms`.
    pub async fn claim_at(&self, sale: &str, name: &str, now_ms: u64) -> Ticket {
        let claimed = self.try_claim_at(sale, name, now_ms).await;
        claimed.unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    /// Like [`World::claim_at`]; returns the reply to the gateway if no claim is granted.
    pub async fn try_claim_at(
        &self,
        sale: &str,
        name: &str,
        now_ms: u64,
    ) -> Result<Ticket, ClaimReply> {
        let reply = self.try_claim(sale, name, None, 1, now_ms).await;
        self.ticket(sale, name, reply)
    }

    /// Claims a unit like a gateway, for one of several permitted orders of the user.
    pub async fn claim_with_cap(
        &self,
        sale: &str,
        name: &str,
        user_cap: u32,
    ) -> Result<Ticket, ClaimReply> {
        let reply = self.try_attempt(sale, name, None, user_cap).await;
        self.ticket(sale, name, reply)
    }

    /// Claims this many units at once.
    pub async fn claim_units(&self, sale: &str, name: &str, quantity: u32) -> Ticket {
        let terms = ClaimTerms {
            ttl_ms: CLAIM_TTL_MS,
            user_cap: quantity,
            quantity,
            checks: Checks::default(),
        };
        let shard = home_shard(&user(name), SHARDS);
        let reply = self.try_terms(sale, shard, name, None, terms, now_ms());
        let claimed = self.ticket(sale, name, reply.await);
        claimed.unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    /// Claims a unit like a gateway of a site that sells under this fence.
    pub async fn claim_under(
        &self,
        fence: u32,
        sale: &str,
        name: &str,
    ) -> Result<Ticket, ClaimReply> {
        let terms = ClaimTerms {
            ttl_ms: CLAIM_TTL_MS,
            user_cap: 1,
            quantity: 1,
            checks: Checks::default(),
        };
        let shard = first_shard(fence) + home_shard(&user(name), SHARDS);
        let reply = self.try_terms(sale, shard, name, None, terms, now_ms());
        let ticket = self.ticket(sale, name, reply.await)?;
        Ok(Ticket { shard, ..ticket })
    }

    /// The reply to a gateway's claim request now.
    pub async fn try_attempt(
        &self,
        sale: &str,
        name: &str,
        attempt: Option<AttemptTag>,
        user_cap: u32,
    ) -> ClaimReply {
        self.try_claim(sale, name, attempt, user_cap, now_ms())
            .await
    }

    async fn try_claim(
        &self,
        sale: &str,
        name: &str,
        attempt: Option<AttemptTag>,
        user_cap: u32,
        now_ms: u64,
    ) -> ClaimReply {
        let terms = ClaimTerms {
            ttl_ms: CLAIM_TTL_MS,
            user_cap,
            quantity: 1,
            checks: Checks::default(),
        };
        let shard = home_shard(&user(name), SHARDS);
        self.try_terms(sale, shard, name, attempt, terms, now_ms)
            .await
    }

    /// Claims a unit of a sale with one shard, unless the user is blocked.
    pub async fn claim_as_gateways_do(&self, sale: &str, name: &str) -> Result<Ticket, ClaimReply> {
        let checks = Checks {
            blocked: true,
            ..Checks::default()
        };
        self.claim_with_checks(sale, name, checks).await
    }

    /// Claims a unit of a sale with one shard, with these checks.
    pub async fn claim_with_checks(
        &self,
        sale: &str,
        name: &str,
        checks: Checks,
    ) -> Result<Ticket, ClaimReply> {
        let terms = ClaimTerms {
            ttl_ms: CLAIM_TTL_MS,
            user_cap: 1,
            quantity: 1,
            checks,
        };
        let reply = self.try_terms(sale, 0, name, None, terms, now_ms()).await;
        let ticket = self.ticket(sale, name, reply)?;
        Ok(Ticket { shard: 0, ..ticket })
    }

    async fn try_terms(
        &self,
        sale: &str,
        shard: u32,
        name: &str,
        attempt: Option<AttemptTag>,
        terms: ClaimTerms,
        now_ms: u64,
    ) -> ClaimReply {
        let (sale, user) = (id(sale), user(name));
        let group = claim::Group {
            keys: keys::ShardKeys::new(&self.prefix, &sale, shard),
            terms,
            users: vec![&user],
            attempts: vec![attempt],
        };
        let call = claim::call(&[group]);
        let reply = self.script_at(&call, now_ms).await;
        claim::parse(&reply, 1).unwrap()[0]
    }

    /// The ticket that a gateway creates from a grant.
    pub fn ticket(&self, sale: &str, name: &str, reply: ClaimReply) -> Result<Ticket, ClaimReply> {
        let (ClaimReply::Granted(held) | ClaimReply::GrantedAgain(held)) = reply else {
            return Err(reply);
        };
        Ok(Ticket {
            sale: id(sale),
            shard: home_shard(&user(name), SHARDS),
            generation: held.generation,
            quantity: held.quantity,
            deadline_ms: held.deadline_ms,
            user: user(name),
        })
    }

    /// Like [`World::script`], while the Redis clock shows `now_ms`.
    pub async fn script_at(&self, call: &Call, now_ms: u64) -> weir_base::resp::Value {
        let time = format!("{{'{}','{}'}}", now_ms / 1_000, now_ms % 1_000 * 1_000);
        let source = call.script.source.replace("redis.call('TIME')", &time);
        let script = Script {
            name: call.script.name,
            source: source.leak(),
        };
        let call = Call {
            script: Box::leak(Box::new(script)),
            ..call.clone()
        };
        self.script(&call).await
    }

    /// Runs a script over a test connection, in Weir's own encoding. In a cluster it calls any node, which redirects to
    /// the right one.
    pub async fn script(&self, call: &Call) -> weir_base::resp::Value {
        let first = self.redis_url.split(',').next().unwrap();
        let reply = run_script(first.strip_prefix("redis://").unwrap(), call).await;
        match &reply {
            weir_base::resp::Value::Error(error) if error.starts_with(b"MOVED ") => {
                let text = str::from_utf8(error).unwrap();
                run_script(text.rsplit(' ').next().unwrap(), call).await
            }
            _ => reply,
        }
    }

    pub async fn audit(&self, ticket: &Ticket) -> Audit {
        let audit = self
            .origin
            .sales()
            .ledger()
            .audit(&ticket.sale, ticket.shard)
            .await;
        audit.unwrap()
    }
}

async fn run_script(address: &str, call: &Call) -> weir_base::resp::Value {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut out, mut input) = (Vec::new(), Vec::new());
    call.encode_eval(&mut out);
    stream.write_all(&out).await.unwrap();
    loop {
        stream.read_buf(&mut input).await.unwrap();
        match weir_base::resp::decode(&input) {
            Ok((value, _)) => return value,
            Err(weir_base::resp::DecodeError::Incomplete) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
