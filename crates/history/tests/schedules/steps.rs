//! The steps of origins, one call at a time.

use std::collections::BTreeSet;

use weir_history::list::merge;
use weir_history::{LoadedLists, Removals, Sku, ViewedProduct};

use super::world::{Fold, ListFollowUp, Load, Owner, Process, ThenFolded, View, World};

impl World {
    pub fn step(&mut self, process: Process) -> Option<Process> {
        match process {
            Process::Replay { next } => self.replay(next),
            Process::Load(load, then) => self.load(load, then),
            Process::Remove(owner, removed, cleared_ms, op) => {
                self.remove(owner, removed, cleared_ms, op)
            }
            Process::Fold(fold) => self.fold(fold),
            Process::Give { from, to, views } => self.give(from, to, views),
            Process::Apply {
                op,
                owner,
                removals,
            } => self.apply(op, owner, removals),
        }
    }

    pub fn replay(&mut self, next: usize) -> Option<Process> {
        if next >= self.handled {
            self.is_lost = false;
            return None;
        }
        let view = self.log[next].clone();
        self.deliver(&view);
        Some(Process::Replay { next: next + 1 })
    }

    pub fn load(&mut self, mut load: Load, then: ListFollowUp) -> Option<Process> {
        let (owner, max) = (load.owner, self.max);
        if load.generation.is_none() {
            load.must_not = self.reported.get(&owner).cloned().unwrap_or_default();
            load.must_have = match self.is_lost {
                true => vec![],
                false => self.delivered(owner),
            };
            let name = self.new_name();
            let reply = self.hot(owner).read(&name);
            load.generation = reply.generation;
            let is_full = reply.views.len() >= max;
            let is_ready = reply.loaded == LoadedLists::All
                || (reply.loaded == LoadedLists::Removals && is_full);
            return match is_ready {
                true => self.then(load, reply.views, then),
                false => Some(Process::Load(load, then)),
            };
        }
        let Some(removals) = &load.removals else {
            load.removals = Some(self.removals(owner));
            return Some(Process::Load(load, then));
        };
        let Some(cold) = load.cold.clone() else {
            let cold = self.disk.cold.get(&owner).map(|(_, views)| views.clone());
            load.cold = Some(cold.unwrap_or_default());
            return Some(Process::Load(load, then));
        };
        let removals = removals.clone();
        let generation = load.generation.clone();
        let filled = self
            .hot(owner)
            .fill(generation.as_deref(), &removals, Some(&cold), max);
        match filled.loaded {
            // The list was lost in the meantime.
            LoadedLists::Nothing => Some(Process::Load(Load::new(owner), then)),
            _ => self.then(load, filled.views, then),
        }
    }

    pub fn new_name(&mut self) -> String {
        self.disk.next += 1;
        self.disk.next.to_string()
    }

    /// The views of this owner that the group has processed.
    pub fn delivered(&self, owner: Owner) -> Vec<ViewedProduct> {
        let handled = self.log[..self.handled].iter();
        let own = handled.filter(|view| view.owner == owner);
        own.map(|view| view.observed.clone()).collect()
    }

    pub fn then(
        &mut self,
        load: Load,
        views: Vec<ViewedProduct>,
        then: ListFollowUp,
    ) -> Option<Process> {
        let owner = load.owner;
        self.check_shown(&load, &views);
        let newest_ms = views.first().map_or(0, |observed| observed.at_ms);
        match then {
            ListFollowUp::Show => None,
            ListFollowUp::Delete(sku) => {
                let existing = views.iter().find(|observed| observed.sku == sku);
                let at_ms = existing.map_or(self.now, |observed| observed.at_ms.max(self.now));
                Some(Process::Remove(
                    owner,
                    vec![ViewedProduct { sku, at_ms }],
                    None,
                    None,
                ))
            }
            ListFollowUp::Clear => Some(Process::Remove(
                owner,
                vec![],
                Some(newest_ms.max(self.now)),
                None,
            )),
            ListFollowUp::Join(_) if views.is_empty() => None,
            ListFollowUp::Join(to) => {
                Some(Process::Fold(Fold::new(to, views, ThenFolded::Give(owner))))
            }
        }
    }

    pub fn check_shown(&self, load: &Load, views: &[ViewedProduct]) {
        let names: BTreeSet<&Sku> = views.iter().map(|observed| &observed.sku).collect();
        assert_eq!(names.len(), views.len(), "shown twice");
        for observed in views {
            assert!(!load.must_not.cover(observed), "came back: {observed:?}");
            let is_of = |view: &&View| match (load.owner, view.owner) {
                (Owner::User(a), Owner::Guest(b)) => a == b,
                (a, b) => a == b,
            };
            let is_there = self
                .log
                .iter()
                .filter(is_of)
                .any(|view| view.observed == *observed);
            assert!(is_there, "nobody has seen {observed:?}");
        }
        // Skipped if Redis lost its lists during this read: they are restored from the log.
        if !self.has_deletes || self.is_lost || load.must_have.is_empty() {
            return;
        }
        let removals = self.removals(load.owner);
        for observed in load
            .must_have
            .iter()
            .filter(|observed| !removals.cover(observed))
        {
            let is_shown = |product: &ViewedProduct| {
                product.sku == observed.sku && product.at_ms >= observed.at_ms
            };
            assert!(
                views.iter().any(is_shown),
                "lost: {:?} {observed:?}",
                load.owner
            );
        }
    }

    pub fn remove(
        &mut self,
        owner: Owner,
        removed: Vec<ViewedProduct>,
        cleared_ms: Option<u64>,
        op: Option<u64>,
    ) -> Option<Process> {
        let Some(op) = op else {
            let removals = self.disk.removals.entry(owner).or_default();
            if let Some(at_ms) = cleared_ms {
                removals.cleared_ms = removals.cleared_ms.max(at_ms);
                removals.deleted.retain(|_, deleted_ms| *deleted_ms > at_ms);
            }
            removed
                .iter()
                .for_each(|observed| removals.delete(observed.sku.clone(), observed.at_ms));
            self.disk.next += 1;
            let op = self.disk.next;
            self.disk.unapplied.insert(op, owner);
            return Some(Process::Remove(owner, removed, cleared_ms, Some(op)));
        };
        let max = self.max;
        match cleared_ms {
            Some(at_ms) => self.hot(owner).clear(at_ms),
            None => self.hot(owner).delete(&removed, 0, max),
        };
        self.note_active(owner);
        // The user gets the response now. A late update of Redis' progress does no harm.
        let reply = self.reported.entry(owner).or_default();
        reply.cleared_ms = reply.cleared_ms.max(cleared_ms.unwrap_or(0));
        removed
            .iter()
            .for_each(|observed| reply.delete(observed.sku.clone(), observed.at_ms));
        if self.random.below(4) > 0 {
            self.disk.unapplied.remove(&op);
        }
        None
    }

    pub fn fold(&mut self, mut fold: Fold) -> Option<Process> {
        let owner = fold.owner;
        let Some(hot) = &fold.hot else {
            fold.hot = Some(self.hot(owner).views());
            return Some(Process::Fold(fold));
        };
        let Some(removals) = &fold.removals else {
            fold.removals = Some(self.removals(owner));
            return Some(Process::Fold(fold));
        };
        let Some((version, cold)) = &fold.stored else {
            let stored = self.disk.cold.get(&owner).cloned();
            fold.stored = Some(match stored {
                Some((version, views)) => (Some(version), views),
                None => (None, vec![]),
            });
            return Some(Process::Fold(fold));
        };
        let views = hot.iter().chain(cold).chain(&fold.more).cloned();
        let merged = merge(views, removals, 0, self.max);
        let is_theirs = self.disk.cold.get(&owner).map(|(version, _)| *version) != *version;
        if merged != *cold && is_theirs {
            return Some(Process::Fold(Fold::new(owner, fold.more, fold.then)));
        }
        if merged != *cold {
            self.disk.next += 1;
            match merged.is_empty() {
                true => self.disk.cold.remove(&owner),
                false => self.disk.cold.insert(owner, (self.disk.next, merged)),
            };
        }
        match fold.then {
            ThenFolded::Forget(day) => {
                if let Some(owners) = self.redis.active.get_mut(&day) {
                    owners.remove(&owner);
                }
                None
            }
            ThenFolded::Give(from) => {
                let (to, views) = (owner, fold.more);
                Some(Process::Give { from, to, views })
            }
            ThenFolded::Applied(op) => {
                self.disk.unapplied.remove(&op);
                None
            }
        }
    }

    pub fn give(&mut self, from: Owner, to: Owner, views: Vec<ViewedProduct>) -> Option<Process> {
        let max = self.max;
        self.hot(to).view(&views, max);
        self.note_active(to);
        Some(Process::Remove(from, views, None, None))
    }

    pub fn apply(&mut self, op: u64, owner: Owner, removals: Option<Removals>) -> Option<Process> {
        let Some(removals) = removals else {
            let removals = Some(self.removals(owner));
            return Some(Process::Apply {
                op,
                owner,
                removals,
            });
        };
        let max = self.max;
        self.hot(owner).fill(None, &removals, None, max);
        Some(Process::Fold(Fold::new(
            owner,
            vec![],
            ThenFolded::Applied(op),
        )))
    }
}
