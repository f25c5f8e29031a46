//! Faults that do not wait for a call.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::rc::Rc;

use weir_sale::site::first_shard;

use super::{ScheduledEvent, World, workers};
use crate::client;
use crate::origin::io::Work;
use crate::plan::{Fault, SiteChange};
use crate::queue::START_MS;
use crate::sql::Sql;

impl World {
    pub(super) fn fault_begins(&mut self, n: usize) {
        let fault = self.plan.faults[n].fault;
        let now_us = self.now_us();
        self.trace.line(now_us, || format!("{fault:?}"));
        *self.stats.faults.entry(fault.kind()).or_default() += 1;
        match fault {
            Fault::Redis { caller, fate } => self.network.borrow_mut().arm_redis(caller, fate),
            Fault::Sql { fate } => self.network.borrow_mut().arm_sql(fate),
            Fault::Origin { fate } => self.network.borrow_mut().arm_origin(fate),
            Fault::KillGateway { gateway, for_ms } => self.kill_gateway(gateway as usize, for_ms),
            Fault::PauseGateway { gateway, for_ms } => {
                let gateway = &mut self.gateways[gateway as usize];
                gateway.paused_until_us = gateway.paused_until_us.max(now_us + for_ms * 1_000);
                gateway.pauses += 1;
            }
            Fault::KillOrigin { origin, for_ms } => self.kill_origin(origin as usize, for_ms),
            Fault::RestartRedis { back_ms, for_ms } => {
                let (site, _) = self.struck(n, 0);
                self.restart_redis(site, back_ms, for_ms);
            }
            Fault::CutOff {
                between,
                is_one_way,
                for_ms,
            } => self
                .cuts
                .push((between, is_one_way, now_us + for_ms * 1_000)),
            Fault::LoseSite {
                site,
                keeps_data,
                for_ms,
            } => self.lose_site(site as usize, keeps_data, for_ms),
            Fault::ChangeSite { site, step } => self.change_site(site as usize, step),
            Fault::LoseShard { shard, back_ms } => {
                self.witness.before_loss();
                let back_us = back_ms.map(|ms| ms * 1_000);
                let (site, shard) = self.struck(n, shard);
                self.redis[site].lose_shard(shard, back_us, now_us);
            }
            Fault::FailOverSql { behind_ms, .. } => self.fail_over_sql(behind_ms * 1_000),
            Fault::Evict { shard, key } => {
                let (site, shard) = self.struck(n, shard);
                self.witness.before_eviction(shard);
                self.redis[site].evict(shard, key);
            }
            Fault::SetGatewayClock { gateway, by_ms } => {
                self.gateways[gateway as usize].clock_off_ms += by_ms;
            }
            Fault::SetOriginClock { origin, by_ms } => {
                self.origins[origin as usize].clock_off_ms += by_ms;
            }
            Fault::ChangeStock { origin, key, units } => {
                let origin = origin as usize;
                let work = self.origins[origin].origin.change_stock(key, units);
                self.operator_asks(origin, work);
            }
            Fault::MoveEnd { origin, after_ms } => {
                let ends_at_ms = START_MS + now_us / 1_000 + after_ms;
                let origin = origin as usize;
                let work = self.origins[origin].origin.move_end(ends_at_ms);
                self.operator_asks(origin, work);
            }
            Fault::Refund { origin, user } => {
                let origin = origin as usize;
                let work = self.origins[origin].origin.refund(client::user(user));
                self.operator_asks(origin, work);
            }
        }
    }

    /// A dead origin ignores operators.
    fn operator_asks(&mut self, origin: usize, work: Work) {
        if self.origins[origin].is_alive {
            self.start_task(origin, work);
        }
    }

    /// The site whose Redis a fault strikes, and the number of its shard.
    fn struck(&self, fault: usize, shard: u32) -> (usize, u32) {
        let site = self.plan.faults[fault].at_ms as usize % self.sites();
        (site, first_shard(self.sql.fence_at(site).fence) + shard)
    }

    fn lose_site(&mut self, site: usize, keeps_data: bool, for_ms: u64) {
        for gateway in (site..self.gateways.len()).step_by(self.sites()) {
            self.kill_gateway(gateway, for_ms);
        }
        for origin in (site..self.origins.len()).step_by(self.sites()) {
            self.kill_origin(origin, for_ms);
        }
        self.restart_redis(site, keeps_data.then_some(0), for_ms);
    }

    /// An operator's command, which an origin of another site gets.
    fn change_site(&mut self, site: usize, step: SiteChange) {
        let step = match step {
            SiteChange::Fail => Sql::fail_site,
            SiteChange::Drain => Sql::drain_site,
            SiteChange::Join => Sql::join_site,
        };
        let origin = (site + 1) % self.sites();
        let work = self.origins[origin].origin.change_site(step, site);
        self.operator_asks(origin, work);
    }

    fn restart_redis(&mut self, site: usize, back_ms: Option<u64>, for_ms: u64) {
        if back_ms != Some(0) {
            self.witness.before_loss();
        }
        let back_us = back_ms.map(|ms| ms * 1_000);
        let now_us = self.now_us();
        self.redis[site].restart(back_us, now_us);
        self.redis[site].is_up = false;
        self.queue
            .after(for_ms * 1_000, ScheduledEvent::RedisStarts { site });
    }

    /// Restores SQL's state of `behind_us` ago.
    fn fail_over_sql(&mut self, behind_us: u64) {
        let at_us = self.now_us().saturating_sub(behind_us);
        let mut copies = self.sql_copies.iter().rev();
        let Some((_, copy)) = copies.find(|(copied_us, _)| *copied_us <= at_us) else {
            return;
        };
        self.sql = copy.clone();
        self.witness.after_failover();
        let now_us = self.now_us();
        self.witness.after_sql(&mut self.sql, now_us);
    }

    /// An operator decides about lost orders, and retries until an origin has done it.
    pub(crate) fn decide_lost_orders(&mut self, restores: bool) {
        const TRIES: u32 = 10;
        const PAUSE_MS: u64 = 1_500;
        for _ in 0..TRIES {
            if !self.sql.is_paused {
                return;
            }
            let work = self.origins[0].origin.decide_lost_orders(restores);
            self.operator_asks(0, work);
            self.run_ms(PAUSE_MS);
        }
        let now_us = self.now_us();
        self.witness
            .violate(now_us, "nobody could decide about lost orders");
    }

    fn kill_gateway(&mut self, gateway: usize, for_ms: u64) {
        if !self.gateways[gateway].is_alive {
            return;
        }
        self.gateways[gateway].die();
        self.break_streams(gateway);
        self.queue
            .after(for_ms * 1_000, ScheduledEvent::GatewayStarts { gateway });
    }

    pub(super) fn start_gateway(&mut self, gateway: usize) {
        let data = Rc::default();
        let workers = workers(&self.config, self.plan.setting.workers, &data);
        self.gateways[gateway].restart(workers, data);
        self.start_ticks(gateway);
    }

    fn kill_origin(&mut self, origin: usize, for_ms: u64) {
        if !std::mem::replace(&mut self.origins[origin].is_alive, false) {
            return;
        }
        // Requested operations run, but without a reply.
        self.tasks.retain(|_, task| task.origin != origin);
        self.queue
            .after(for_ms * 1_000, ScheduledEvent::OriginStarts { origin });
    }

    pub(super) fn start_origin(&mut self, origin: usize) {
        self.origins[origin].is_alive = true;
        for work in self.origins[origin].origin.background() {
            self.start_task(origin, work);
        }
    }
}
