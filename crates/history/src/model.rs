//! A Rust model of the scripts for one owner's keys.
//!
//! Tests run the same steps on the model and on a real Redis, and compare every reply. Simulations use the model alone.
//! The caller handles expiry: keys expire together, which gives [`Hot::default`].

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::{LoadedLists, Removals, Sku, ViewOutcome, ViewedProduct};

/// The keys of one owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hot {
    views: BTreeMap<Sku, u64>,
    deleted: BTreeMap<Sku, u64>,
    /// `None`: the key does not exist.
    marker: Option<Marker>,
    count: Option<Count>,
    /// Whether the day's set of active owners contains the owner.
    is_active: bool,
    /// The run ID of this Redis process.
    run: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Marker {
    cleared_ms: u64,
    loaded: LoadedLists,
    generation: Option<String>,
}

/// A reader's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListReply {
    /// The loaded parts.
    pub loaded: LoadedLists,
    /// The generation of the list; `None` if it has none.
    pub generation: Option<String>,
    /// The views, the newest first.
    pub views: Vec<ViewedProduct>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Count {
    Promised(String),
    Known(u64),
}

impl Hot {
    /// `history_view.lua`.
    pub fn view(&mut self, views: &[ViewedProduct], max: usize) -> Vec<ViewOutcome> {
        let cleared_ms = self.cleared_ms();
        let mut outcomes = Vec::new();
        for ViewedProduct { sku, at_ms } in views {
            let deleted_ms = self.deleted.get(sku).copied();
            let known_ms = self.views.get(sku).copied();
            outcomes.push(if *at_ms <= cleared_ms.max(deleted_ms.unwrap_or(0)) {
                ViewOutcome::Removed
            } else if known_ms.is_some_and(|known_ms| *at_ms <= known_ms) {
                ViewOutcome::Known
            } else {
                self.views.insert(sku.clone(), *at_ms);
                ViewOutcome::Latest
            });
        }
        if outcomes.contains(&ViewOutcome::Latest) {
            self.trim(max);
            self.changed();
        }
        outcomes
    }

    /// `history_delete.lua`. Returns the number of removed views.
    pub fn delete(&mut self, deleted: &[ViewedProduct], forget_ms: u64, max: usize) -> usize {
        let was_full = self.views.len() >= max;
        let mut removed = 0;
        for ViewedProduct { sku, at_ms } in deleted {
            if self
                .views
                .get(sku)
                .is_some_and(|existing| existing <= at_ms)
            {
                self.views.remove(sku);
                removed += 1;
            }
            if *at_ms > self.cleared_ms() {
                let existing = self.deleted.entry(sku.clone()).or_default();
                *existing = (*at_ms).max(*existing);
            }
        }
        self.deleted.retain(|_, at_ms| *at_ms > forget_ms);
        if was_full
            && removed > 0
            && let Some(marker) = &mut self.marker
            && marker.loaded == LoadedLists::All
        {
            marker.loaded = LoadedLists::Removals;
        }
        self.changed();
        removed
    }

    /// `history_clear.lua`. Returns the number of removed views.
    pub fn clear(&mut self, at_ms: u64) -> usize {
        let cleared_ms = self.cleared_ms().max(at_ms);
        self.marker.get_or_insert_default().cleared_ms = cleared_ms;
        let before = self.views.len();
        self.views.retain(|_, at_ms| *at_ms > cleared_ms);
        self.deleted.retain(|_, at_ms| *at_ms > cleared_ms);
        self.changed();
        before - self.views.len()
    }

    /// `history_fill.lua`. Returns the list afterwards.
    pub fn fill(
        &mut self,
        generation: Option<&str>,
        removals: &Removals,
        cold: Option<&[ViewedProduct]>,
        max: usize,
    ) -> ListReply {
        let cleared_ms = self.cleared_ms().max(removals.cleared_ms);
        self.views.retain(|_, at_ms| *at_ms > cleared_ms);
        self.deleted.retain(|_, at_ms| *at_ms > cleared_ms);
        for (sku, at_ms) in &removals.deleted {
            if *at_ms > cleared_ms {
                let existing = self.deleted.entry(sku.clone()).or_default();
                *existing = (*at_ms).max(*existing);
                if self
                    .views
                    .get(sku)
                    .is_some_and(|existing| existing <= at_ms)
                {
                    self.views.remove(sku);
                }
            }
        }
        for ViewedProduct { sku, at_ms } in cold.unwrap_or_default() {
            let deleted_ms = self.deleted.get(sku).copied();
            if *at_ms > cleared_ms.max(deleted_ms.unwrap_or(0)) {
                let existing = self.views.entry(sku.clone()).or_default();
                *existing = (*at_ms).max(*existing);
            }
        }
        self.trim(max);
        let comes = match cold {
            Some(_) => LoadedLists::All,
            None => LoadedLists::Removals,
        };
        let marker = self.marker.get_or_insert_default();
        marker.cleared_ms = cleared_ms;
        if generation.is_some() && marker.generation.as_deref() == generation {
            marker.loaded = marker.loaded.max(comes);
        }
        self.count = None;
        let mut reply = self.list_reply();
        if generation.is_some() && reply.generation.as_deref() != generation {
            reply.loaded = LoadedLists::Nothing;
        }
        reply
    }

    /// Another Redis process takes over the keys, from a file or as a promoted replica.
    pub fn restart(&mut self, run: &str) {
        self.run = run.into();
    }

    /// `history_read.lua`. `name`: the new generation for a list without one.
    pub fn read(&mut self, name: &str) -> ListReply {
        self.forget_other_run();
        let run = &self.run;
        let marker = self.marker.get_or_insert_default();
        let new = || [run.as_str(), ".", name].concat();
        marker.generation.get_or_insert_with(new);
        self.list_reply()
    }

    /// Data that was loaded under another Redis process may lack removals.
    fn forget_other_run(&mut self) {
        let run = [self.run.as_str(), "."].concat();
        let Some(marker) = &mut self.marker else {
            return;
        };
        let generation = marker.generation.as_ref();
        if generation.is_some_and(|generation| !generation.starts_with(&run)) {
            (marker.loaded, marker.generation) = (LoadedLists::Nothing, None);
            self.count = None;
        }
    }

    /// The views, the newest first.
    pub fn views(&self) -> Vec<ViewedProduct> {
        let observed = |(sku, at_ms): (&Sku, &u64)| ViewedProduct {
            sku: sku.clone(),
            at_ms: *at_ms,
        };
        let mut list: Vec<ViewedProduct> = self.views.iter().map(observed).collect();
        list.sort_unstable_by(ViewedProduct::newest_first);
        list
    }

    /// The loaded parts that the next reader gets.
    pub fn loaded(&self) -> LoadedLists {
        let mut read = self.clone();
        read.forget_other_run();
        read.loaded_lists()
    }

    /// The loaded parts according to the marker.
    fn loaded_lists(&self) -> LoadedLists {
        self.marker
            .as_ref()
            .map_or(LoadedLists::Nothing, |marker| marker.loaded)
    }

    fn list_reply(&self) -> ListReply {
        let marker = self.marker.as_ref();
        ListReply {
            loaded: self.loaded_lists(),
            generation: marker.and_then(|marker| marker.generation.clone()),
            views: self.views(),
        }
    }

    /// `history_read.lua` for a count. Returns the stored count or the list. The first reader without a count promises
    /// to store it.
    pub fn read_count(&mut self, generation: &str, promise: &str) -> Result<u64, ListReply> {
        self.forget_other_run();
        match &self.count {
            Some(Count::Known(count)) => return Ok(*count),
            Some(Count::Promised(_)) => {}
            None => self.count = Some(Count::Promised(promise.into())),
        }
        Err(self.read(generation))
    }

    /// `history_count.lua`. Returns whether the count was stored. It is refused if the list has changed since the
    /// promise.
    pub fn put_count(&mut self, promise: &str, count: u64) -> bool {
        let is_ours = matches!(&self.count, Some(Count::Promised(theirs)) if theirs == promise);
        if is_ours {
            self.count = Some(Count::Known(count));
        }
        is_ours
    }

    /// Clears the active mark, like the fold of a day. Returns whether it was set.
    pub fn take_active(&mut self) -> bool {
        core::mem::take(&mut self.is_active)
    }

    /// Sets the active mark, like every change.
    pub fn set_active(&mut self) {
        self.is_active = true;
    }

    fn cleared_ms(&self) -> u64 {
        self.marker.as_ref().map_or(0, |marker| marker.cleared_ms)
    }

    fn changed(&mut self) {
        self.count = None;
        self.set_active();
    }

    fn trim(&mut self, max: usize) {
        for observed in self.views().iter().skip(max) {
            self.views.remove(&observed.sku);
        }
    }
}
