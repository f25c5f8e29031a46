//! The state of the system, the processes in progress, and their start.

use std::collections::{BTreeMap, BTreeSet};

use weir_history::list::merge;
use weir_history::model::Hot;
use weir_history::{LoadedLists, Removals, Sku, ViewOutcome, ViewedProduct};

const USERS: u64 = 2;
/// Rounds of a join, as the origin runs them: enough for all products.
const ROUNDS: u64 = 4;

/// A user, or the guest with the same number: each guest signs in as one user only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    User(u64),
    Guest(u64),
}

#[derive(Clone, Debug)]
pub struct View {
    pub owner: Owner,
    pub observed: ViewedProduct,
}

/// Durable state.
#[derive(Default)]
pub struct Disk {
    pub removals: BTreeMap<Owner, Removals>,
    pub unapplied: BTreeMap<u64, Owner>,
    pub cold: BTreeMap<Owner, (u64, Vec<ViewedProduct>)>,
    pub next: u64,
}

/// State that may be lost.
#[derive(Clone, Default)]
pub struct Redis {
    pub lists: BTreeMap<Owner, Hot>,
    pub active: BTreeMap<u64, BTreeSet<Owner>>,
    /// The run ID.
    pub run: u64,
}

pub struct World {
    pub random: Random,
    pub max: usize,
    pub has_deletes: bool,
    pub disk: Disk,
    pub redis: Redis,
    /// The content of its file.
    pub saved: Redis,
    pub log: Vec<View>,
    /// The log position up to which views were processed.
    pub handled: usize,
    /// Redis has lost lists that are not restored from the log yet.
    pub is_lost: bool,
    pub now: u64,
    pub day: u64,
    /// Removals that were confirmed to the user: their views must not appear again.
    pub reported: BTreeMap<Owner, Removals>,
    pub processes: Vec<Process>,
}

/// A process and its local data; it advances by one call at a time.
pub enum Process {
    /// The history group: processes the log from this position.
    Replay {
        next: usize,
    },
    Load(Load, ListFollowUp),
    Remove(Owner, Vec<ViewedProduct>, Option<u64>, Option<u64>),
    Fold(Fold),
    Give {
        from: Owner,
        to: Owner,
        views: Vec<ViewedProduct>,
    },
    Apply {
        op: u64,
        owner: Owner,
        removals: Option<Removals>,
    },
}

/// A list that is being read.
pub struct Load {
    pub owner: Owner,
    pub generation: Option<String>,
    pub removals: Option<Removals>,
    pub cold: Option<Vec<ViewedProduct>>,
    /// The views that existed when the reader started.
    pub must_have: Vec<ViewedProduct>,
    pub must_not: Removals,
}

/// The action after reading a list.
pub enum ListFollowUp {
    Show,
    Delete(Sku),
    Clear,
    Join(Owner),
}

pub struct Fold {
    pub owner: Owner,
    pub more: Vec<ViewedProduct>,
    pub hot: Option<Vec<ViewedProduct>>,
    pub removals: Option<Removals>,
    pub stored: Option<(Option<u64>, Vec<ViewedProduct>)>,
    pub then: ThenFolded,
}

#[derive(Clone, Copy)]
pub enum ThenFolded {
    Forget(u64),
    Give(Owner),
    Applied(u64),
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        // Small lists make trimming visible; with deletions, trimmed views are lost permanently.
        let has_deletes = random.below(2) == 0;
        Self {
            random,
            max: if has_deletes { 12 } else { 3 },
            has_deletes,
            disk: Disk::default(),
            redis: Redis::default(),
            saved: Redis::default(),
            log: Vec::new(),
            handled: 0,
            is_lost: false,
            now: 100,
            day: 0,
            reported: BTreeMap::new(),
            processes: Vec::new(),
        }
    }

    pub fn hot(&mut self, owner: Owner) -> &mut Hot {
        let run = self.redis.run;
        let list = self.redis.lists.entry(owner).or_default();
        list.restart(&run.to_string());
        list
    }

    pub fn removals(&self, owner: Owner) -> Removals {
        self.disk.removals.get(&owner).cloned().unwrap_or_default()
    }

    /// Marks an owner as active in the day's set, like a script.
    pub fn note_active(&mut self, owner: Owner) {
        if self.hot(owner).take_active() {
            self.redis.active.entry(self.day).or_default().insert(owner);
        }
    }

    pub fn deliver(&mut self, view: &View) {
        let max = self.max;
        let outcome = self
            .hot(view.owner)
            .view(std::slice::from_ref(&view.observed), max);
        self.note_active(view.owner);
        let covered = self.reported.get(&view.owner);
        let was_told = covered.is_some_and(|removals| removals.cover(&view.observed));
        // Redis may have less data if its list is not loaded; then the list is not shown.
        if was_told && outcome == [ViewOutcome::Latest] {
            assert_eq!(
                self.hot(view.owner).loaded(),
                LoadedLists::Nothing,
                "came back: {view:?}"
            );
        }
    }

    pub fn any_owner(&mut self) -> Owner {
        let number = self.random.below(USERS);
        match self.random.below(3) {
            0 => Owner::Guest(number),
            _ => Owner::User(number),
        }
    }

    pub fn any_user(&mut self) -> Owner {
        Owner::User(self.random.below(USERS))
    }

    /// Starts, advances or ends a process.
    pub fn turn(&mut self) {
        self.now += self.random.below(3);
        match self.random.below(100) {
            0..=24 => self.append(),
            25..=44 => self.handle(),
            45..=49 => self.redeliver(),
            50..=53 => self.begin_load(ListFollowUp::Show),
            54..=56 => self.begin_remove(),
            57..=58 => self.begin_join(),
            59..=61 => self.begin_fold(),
            62 => self.day += 1,
            63 => self.begin_apply(),
            64 => self.lose(),
            65 => self.expire(),
            68 => self.save(),
            66..=67 => self.die(),
            _ => self.go_on(),
        }
    }

    /// Adds a view to the log.
    pub fn append(&mut self) {
        let owner = self.any_owner();
        let sku = Sku::from(self.random.below(8));
        // Clocks differ, and some views arrive late.
        let at_ms = (self.now + self.random.below(12)).saturating_sub(self.random.below(25));
        let product = ViewedProduct { sku, at_ms };
        self.log.push(View {
            owner,
            observed: product,
        });
    }

    pub fn handle(&mut self) {
        if let Some(view) = self.log.get(self.handled).cloned() {
            self.deliver(&view);
            // One time in four, the process crashes before it confirms.
            self.handled += usize::from(self.random.below(4) > 0);
        }
    }

    pub fn redeliver(&mut self) {
        if self.handled > 0 {
            let index = self.random.below(self.handled as u64) as usize;
            let view = self.log[index].clone();
            self.deliver(&view);
        }
    }

    pub fn begin_load(&mut self, then: ListFollowUp) {
        let owner = match then {
            ListFollowUp::Delete(_) | ListFollowUp::Clear => self.any_user(),
            ListFollowUp::Join(Owner::User(number)) => Owner::Guest(number),
            _ => self.any_owner(),
        };
        self.processes.push(Process::Load(Load::new(owner), then));
    }

    pub fn begin_remove(&mut self) {
        match self.random.below(3) {
            0 => self.begin_load(ListFollowUp::Clear),
            _ if self.has_deletes => {
                let sku = Sku::from(self.random.below(8));
                self.begin_load(ListFollowUp::Delete(sku));
            }
            _ => {}
        }
    }

    pub fn begin_join(&mut self) {
        let user = self.any_user();
        self.begin_load(ListFollowUp::Join(user));
    }

    pub fn begin_fold(&mut self) {
        let days: Vec<u64> = self.redis.active.keys().copied().collect();
        let Some(day) = days.into_iter().find(|day| *day < self.day) else {
            return;
        };
        let owners: Vec<Owner> = self.redis.active[&day].iter().copied().collect();
        if owners.is_empty() {
            self.redis.active.remove(&day);
            return;
        }
        let owner = owners[self.random.below(owners.len() as u64) as usize];
        let fold = Fold::new(owner, vec![], ThenFolded::Forget(day));
        self.processes.push(Process::Fold(fold));
    }

    pub fn begin_apply(&mut self) {
        if let Some((op, owner)) = self.disk.unapplied.first_key_value() {
            let (op, owner, removals) = (*op, *owner, None);
            self.processes.push(Process::Apply {
                op,
                owner,
                removals,
            });
        }
    }

    /// Redis loses everything, and the group reads the log again.
    pub fn lose(&mut self) {
        if self.random.below(3) > 0 {
            return;
        }
        // Everything, or all changes since its last file.
        let file = match self.random.below(2) {
            0 => Redis::default(),
            _ => self.saved.clone(),
        };
        let run = self.redis.run + 1;
        self.redis = Redis { run, ..file };
        self.is_lost = true;
        self.processes
            .retain(|process| !matches!(process, Process::Replay { .. }));
        self.processes.push(Process::Replay { next: 0 });
    }

    /// Redis writes its file.
    pub fn save(&mut self) {
        self.saved = self.redis.clone();
    }

    /// Four days without activity pass: the folds have run by then.
    pub fn expire(&mut self) {
        let owner = self.any_owner();
        let is_active = self
            .redis
            .active
            .values()
            .any(|owners| owners.contains(&owner));
        if !is_active && !self.is_lost {
            self.redis.lists.remove(&owner);
        }
    }

    /// An origin crashes: its processes never end. The group starts again.
    pub fn die(&mut self) {
        if self.processes.is_empty() {
            return;
        }
        let index = self.random.below(self.processes.len() as u64) as usize;
        if let Process::Replay { next } = self.processes.swap_remove(index) {
            self.processes.push(Process::Replay { next: next / 2 });
        }
    }

    pub fn go_on(&mut self) {
        if self.processes.is_empty() {
            return;
        }
        let index = self.random.below(self.processes.len() as u64) as usize;
        let process = self.processes.swap_remove(index);
        if let Some(process) = self.step(process) {
            self.processes.push(process);
        }
    }

    /// Completes all processes and pending work.
    pub fn end(&mut self) {
        while let Some(process) = self.processes.pop() {
            self.run(process);
        }
        while self.handled < self.log.len() {
            self.handle();
        }
        for number in 0..USERS {
            // When a full list shrinks, views that had no space come up.
            for _ in 0..ROUNDS {
                let join = ListFollowUp::Join(Owner::User(number));
                self.run(Process::Load(Load::new(Owner::Guest(number)), join));
            }
        }
        while let Some((op, owner)) = self.disk.unapplied.first_key_value() {
            let (op, owner, removals) = (*op, *owner, None);
            self.run(Process::Apply {
                op,
                owner,
                removals,
            });
        }
    }

    pub fn run(&mut self, process: Process) {
        let mut next = Some(process);
        while let Some(process) = next {
            next = self.step(process);
        }
    }

    pub fn list(&mut self, owner: Owner) -> Vec<ViewedProduct> {
        let (removals, max) = (self.removals(owner), self.max);
        let cold = self.disk.cold.get(&owner).map(|(_, views)| views.clone());
        let name = self.new_name();
        let reply = self.hot(owner).read(&name);
        match reply.loaded {
            LoadedLists::All => reply.views,
            _ => {
                let cold = cold.unwrap_or_default();
                let generation = reply.generation.as_deref();
                self.hot(owner)
                    .fill(generation, &removals, Some(&cold), max)
                    .views
            }
        }
    }

    /// Checks that each list matches the log and the removals, now and after Redis has lost it and the folds have run.
    pub fn check_end(&mut self) {
        let expected: Vec<Vec<ViewedProduct>> =
            (0..USERS).map(|number| self.expected(number)).collect();
        for (number, expected) in expected.iter().enumerate() {
            let user = Owner::User(number as u64);
            assert_eq!(&self.list(user), expected, "{user:?}");
            assert_eq!(self.list(Owner::Guest(number as u64)), [], "{number}");
        }
        self.day += 1;
        for day in 0..self.day {
            for owner in self.redis.active.remove(&day).unwrap_or_default() {
                self.run(Process::Fold(Fold::new(
                    owner,
                    vec![],
                    ThenFolded::Forget(day),
                )));
            }
        }
        let run = self.redis.run + 1;
        self.redis = Redis {
            run,
            ..Redis::default()
        };
        for (number, expected) in expected.iter().enumerate() {
            let user = Owner::User(number as u64);
            assert_eq!(&self.list(user), expected, "{user:?} from the cold store");
        }
    }

    pub fn expected(&self, number: u64) -> Vec<ViewedProduct> {
        let is_of = |view: &&View| match view.owner {
            Owner::User(other) | Owner::Guest(other) => other == number,
        };
        let views = self
            .log
            .iter()
            .filter(is_of)
            .map(|view| view.observed.clone());
        merge(views, &self.removals(Owner::User(number)), 0, self.max)
    }
}

impl Load {
    pub fn new(owner: Owner) -> Self {
        Self {
            owner,
            generation: None,
            removals: None,
            cold: None,
            must_have: vec![],
            must_not: Removals::default(),
        }
    }
}

impl Fold {
    pub fn new(owner: Owner, more: Vec<ViewedProduct>, then: ThenFolded) -> Self {
        Self {
            owner,
            more,
            hot: None,
            removals: None,
            stored: None,
            then,
        }
    }
}

/// SplitMix64: the same numbers in every run.
pub struct Random(u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
