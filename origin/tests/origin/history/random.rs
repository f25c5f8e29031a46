//! Random operation sequences on real components, compared with a model. `crates/history/tests/schedules.rs` runs many
//! more on models alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use redis::cmd;
use tokio_util::sync::CancellationToken;
use weir_history::list::merge;
use weir_history::{DAY_MS, Owner, Removals, Sku, ViewedProduct, oldest_ms};
use weir_origin::history::jobs::fold::FoldError;
use weir_origin::history::store::RemovalOutcome;
use weir_origin::history::{History, Settings, View};

use super::{Clock, guest, list, lose, user};
use crate::support::{World, redis as own_redis};

const SCHEDULES: u64 = 8;
const STEPS: u64 = 60;
const USERS: u64 = 2;

/// SplitMix64: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// The expected state.
#[derive(Default)]
struct Model {
    log: Vec<View>,
    /// Views of a user, including merged guests.
    views: BTreeMap<Owner, Vec<ViewedProduct>>,
    removals: BTreeMap<Owner, Removals>,
}

impl Model {
    fn list(&self, owner: &Owner, now_ms: u64) -> Vec<(u64, u64)> {
        let views = self.views.get(owner).cloned().unwrap_or_default();
        let removals = self.removals.get(owner).cloned().unwrap_or_default();
        super::pairs(&merge(views, &removals, oldest_ms(now_ms), 200))
    }

    fn delete(&mut self, owner: &Owner, deleted: &[ViewedProduct]) {
        let removals = self.removals.entry(owner.clone()).or_default();
        for observed in deleted {
            removals.delete(observed.sku.clone(), observed.at_ms);
        }
    }
}

struct Schedule<'a> {
    world: &'a World,
    clock: Clock,
    random: Random,
    /// Two origins.
    origins: [History; 2],
    model: Model,
}

impl Schedule<'_> {
    fn origin(&mut self) -> History {
        self.origins[self.random.below(2) as usize].clone()
    }

    fn owner(&mut self) -> Owner {
        let number = self.random.below(USERS);
        match self.random.below(3) {
            0 => guest(&format!("v{number}")),
            _ => user(&format!("u{number}")),
        }
    }

    fn user(&mut self) -> (u64, Owner) {
        let number = self.random.below(USERS);
        (number, user(&format!("u{number}")))
    }

    async fn step(&mut self) {
        self.clock.pass(self.random.below(50));
        match self.random.below(20) {
            0..=6 => self.see().await,
            7..=8 => self.redeliver().await,
            9..=10 => self.delete().await,
            11 => self.clear().await,
            12..=13 => self.join().await,
            14..=15 => {
                let (owner, origin) = (self.owner(), self.origin());
                origin.fold_owner(&owner).await.unwrap();
            }
            16 => {
                self.clock.pass(DAY_MS);
                let stop = CancellationToken::new();
                let [one, other] = &self.origins;
                let (a, b) = tokio::join!(one.fold(&stop), other.fold(&stop));
                a.unwrap();
                b.unwrap();
            }
            17 => {
                lose(self.world).await;
                let origin = self.origin();
                origin.record(&self.model.log).await.unwrap();
            }
            _ => self.check().await,
        }
    }

    async fn see(&mut self) {
        let mut views = vec![];
        for _ in 0..=self.random.below(5) {
            let now = self.clock.now_ms();
            views.push(View {
                owner: self.owner(),
                sku: Sku::from(self.random.below(12)),
                at_ms: now + self.random.below(30) - self.random.below(60),
            });
        }
        self.origin().record(&views).await.unwrap();
        for View { owner, sku, at_ms } in views.clone() {
            let of_owner = self.model.views.entry(owner).or_default();
            of_owner.push(ViewedProduct { sku, at_ms });
        }
        self.model.log.extend(views);
    }

    async fn redeliver(&mut self) {
        let log = self.model.log.clone();
        let from = self.random.below(log.len() as u64 + 1) as usize;
        let again: Vec<View> = log[from..].iter().rev().take(20).cloned().collect();
        self.origin().record(&again).await.unwrap();
    }

    async fn delete(&mut self) {
        let (_, owner) = self.user();
        let sku = Sku::from(self.random.below(12));
        let origin = self.origin();
        let views = origin.views(&owner).await.unwrap().views;
        let existing = views.iter().find(|observed| observed.sku == sku);
        let now = self.clock.now_ms();
        let at_ms = existing.map_or(now, |observed| observed.at_ms.max(now));
        let deleted = [ViewedProduct {
            sku: sku.clone(),
            at_ms,
        }];
        if self.random.below(3) == 0 {
            // The origin dies before Redis is updated.
            let recorded = origin
                .store()
                .removed()
                .delete(&owner, &deleted)
                .await
                .unwrap();
            assert!(matches!(recorded, RemovalOutcome::Done(_)));
            self.origin().apply_removals(u64::MAX >> 1).await.unwrap();
        } else {
            origin.delete(&owner, &[sku]).await.unwrap();
        }
        self.model.delete(&owner, &deleted);
    }

    async fn clear(&mut self) {
        let (_, owner) = self.user();
        let origin = self.origin();
        let views = origin.views(&owner).await.unwrap().views;
        let newest_ms = views.first().map_or(0, |observed| observed.at_ms);
        let at_ms = newest_ms.max(self.clock.now_ms());
        if self.random.below(3) == 0 {
            origin.store().removed().clear(&owner, at_ms).await.unwrap();
            self.origin().apply_removals(u64::MAX >> 1).await.unwrap();
        } else {
            origin.clear(&owner).await.unwrap();
        }
        let removals = self.model.removals.entry(owner).or_default();
        removals.cleared_ms = removals.cleared_ms.max(at_ms);
    }

    async fn join(&mut self) {
        let (number, owner) = self.user();
        let (visitor, origin) = (guest(&format!("v{number}")), self.origin());
        let views = origin.views(&visitor).await.unwrap().views;
        let of_user = self.model.views.entry(owner.clone()).or_default();
        of_user.extend(views.iter().cloned());
        if self.random.below(3) == 0 {
            // The origin dies halfway.
            return origin.give(&views, &owner).await.unwrap();
        }
        let joined = origin.join(&visitor, &owner).await.unwrap();
        assert_eq!(joined.views, views.len());
        self.model.delete(&visitor, &views);
    }

    async fn check(&mut self) {
        let (now, origin) = (self.clock.now_ms(), self.origin());
        for number in 0..USERS {
            for owner in [user(&format!("u{number}")), guest(&format!("v{number}"))] {
                let expected = self.model.list(&owner, now);
                assert_eq!(list(&origin, &owner).await, expected, "{owner}");
                let count = origin.count(&owner).await.unwrap();
                assert_eq!(
                    (count.count, count.is_complete),
                    (expected.len() as u64, true)
                );
            }
        }
    }
}

#[tokio::test]
async fn lists_match_the_model_under_random_operations() {
    for seed in 0..SCHEDULES {
        let (clock, world) = (Clock::at_noon(), World::new().await);
        let set = |settings: &mut Settings| clock.set(settings);
        let origins = [world.history(set).await, world.history(set).await];
        let mut schedule = Schedule {
            world: &world,
            clock: clock.clone(),
            random: Random(seed),
            origins,
            model: Model::default(),
        };
        for _ in 0..STEPS {
            schedule.step().await;
        }
        schedule.check().await;
        // Also from the cold store alone.
        for number in 0..USERS {
            let owner = user(&format!("u{number}"));
            schedule.origin().fold_owner(&owner).await.unwrap();
        }
        lose(&world).await;
        for number in 0..USERS {
            let owner = user(&format!("u{number}"));
            let expected = schedule.model.list(&owner, clock.now_ms());
            let origin = schedule.origin();
            assert_eq!(list(&origin, &owner).await, expected, "schedule {seed}");
        }
    }
}

/// Recorders, readers, folds and deletions run at once, while Redis loses all data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_views_stay_hidden_under_concurrent_operations() {
    let dir = tempfile::tempdir().unwrap();
    let server = own_redis(&dir).await;
    let (clock, world) = (Clock::at_noon(), World::on(&server.url()).await);
    let set = |settings: &mut Settings| clock.set(settings);
    let origins = [world.history(set).await, world.history(set).await];
    let (now, alice) = (clock.now_ms(), user("alice"));
    let view = |n: u64| View {
        owner: alice.clone(),
        sku: Sku::from(n % 150),
        at_ms: now - 1_000 + n,
    };
    let log: Vec<View> = (0..900).map(view).collect();
    let reply = Arc::new(Mutex::new(Removals::default()));
    let mut tasks = tokio::task::JoinSet::new();
    for (number, origin) in origins.iter().cloned().enumerate() {
        let (log, owner) = (log.clone(), alice.clone());
        // The log is delivered twice, in pieces; the second origin begins with the last piece.
        tasks.spawn(async move {
            let mut pieces: Vec<&[View]> = log.chunks(30).collect();
            if number == 1 {
                pieces.reverse();
            }
            for chunk in pieces.iter().chain(&pieces) {
                origin.record(chunk).await.unwrap();
            }
        });
        let origin = origins[number].clone();
        tasks.spawn({
            let owner = owner.clone();
            async move {
                for _ in 0..40 {
                    let folded = origin.fold_owner(&owner).await;
                    // After five lost races, the list is left to the next fold.
                    assert!(
                        matches!(folded, Ok(()) | Err(FoldError::Busy)),
                        "{folded:?}"
                    );
                }
            }
        });
        let (origin, reply) = (origins[1 - number].clone(), reply.clone());
        tasks.spawn(async move {
            for _ in 0..80 {
                let removed = reply.lock().unwrap().clone();
                let views = origin.views(&owner).await.unwrap().views;
                let back: Vec<&ViewedProduct> = views
                    .iter()
                    .filter(|observed| removed.cover(observed))
                    .collect();
                assert!(back.is_empty(), "{back:?}");
            }
        });
    }
    let (origin, owner, recorded) = (origins[0].clone(), alice.clone(), reply.clone());
    tasks.spawn(async move {
        for n in 0..40 {
            let deleted = [ViewedProduct {
                sku: Sku::from(n * 3),
                at_ms: now,
            }];
            origin.delete_views(&owner, &deleted).await.unwrap();
            let [ViewedProduct { sku, at_ms }] = deleted;
            recorded.lock().unwrap().delete(sku, at_ms);
        }
    });
    let mut connection = server.connection().await.unwrap();
    tasks.spawn(async move {
        for _ in 0..5 {
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
            let _: () = cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
        }
    });
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    // The log is replayed.
    origins[0].record(&log).await.unwrap();
    let removals = reply.lock().unwrap().clone();
    let views = log
        .into_iter()
        .map(|View { sku, at_ms, .. }| ViewedProduct { sku, at_ms });
    let expected = super::pairs(&merge(views, &removals, 0, 200));
    assert_eq!(list(&origins[1], &alice).await, expected);
    assert_eq!(expected.len(), 110);
}
