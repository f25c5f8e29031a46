//! SQL: the model of the transactions of links.

use std::collections::{BTreeMap, BTreeSet};

use weir_link::agent::Device;
use weir_link::click::{BatchId, Row};
use weir_link::record::Link;

use super::plan::{Action, CODES, Edit, LIMITED, MADE, UNKNOWN};
use crate::mutation::Mutation;

/// The database.
#[derive(Debug)]
pub(super) struct Sql {
    /// Links that are not deleted.
    links: BTreeMap<u32, Link>,
    /// The history of each code, to validate answers.
    pub(super) past: BTreeMap<u32, Vec<CodeState>>,
    /// Changes that Redis may not have, by code and version, with their time.
    pub(super) unpublished: BTreeMap<(u32, u32), u64>,
    /// Counted clicks.
    clicks: BTreeMap<u32, u64>,
    /// Batches that were counted.
    batches: BTreeSet<String>,
    mutation: Option<Mutation>,
}

/// The state of a code at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeState {
    Nothing,
    Disabled,
    /// A redirect of this version.
    Leading(u32),
}

/// The name of a code.
pub(super) fn code_name(code: u32) -> String {
    format!("code{code}")
}

/// The target of a link, by its version.
pub(super) fn target(code: u32, version: u32) -> String {
    format!("https://t.example/{code}/{version}")
}

impl Sql {
    pub(super) fn new(clicks_max: u64, mutation: Option<Mutation>) -> Self {
        let mut sql = Self {
            links: BTreeMap::new(),
            past: BTreeMap::new(),
            unpublished: BTreeMap::new(),
            clicks: BTreeMap::new(),
            batches: BTreeSet::new(),
            mutation,
        };
        for code in (0..CODES).filter(|code| ![MADE, UNKNOWN].contains(code)) {
            let max_clicks = if LIMITED.contains(&code) {
                clicks_max
            } else {
                0
            };
            sql.put(
                code,
                Link {
                    max_clicks,
                    ..Link::to(target(code, 1))
                },
            );
        }
        for code in [MADE, UNKNOWN] {
            sql.note(code);
        }
        sql
    }

    pub(super) fn link(&self, code: u32) -> Option<Link> {
        self.links.get(&code).cloned()
    }

    fn put(&mut self, code: u32, link: Link) {
        self.links.insert(code, link);
        self.note(code);
    }

    fn note(&mut self, code: u32) {
        let now = self.now(code);
        self.past.entry(code).or_default().push(now);
    }

    /// The current state of a code.
    pub(super) fn now(&self, code: u32) -> CodeState {
        match self.links.get(&code) {
            None => CodeState::Nothing,
            Some(link) if link.is_disabled => CodeState::Disabled,
            Some(link) => CodeState::Leading(link.version),
        }
    }

    /// An owner's edit, with a note that Redis must follow.
    pub(super) fn edit(&mut self, edit: Edit, now_ms: u64) {
        let code = edit.code;
        let version = match (edit.action, self.links.get(&code).cloned()) {
            (Action::Make, _) => {
                self.put(code, Link::to(target(code, 1)));
                1
            }
            (_, None) => return,
            (Action::Delete, Some(link)) => {
                self.links.remove(&code);
                self.note(code);
                link.version + 1
            }
            (action, Some(mut link)) => {
                link.version += 1;
                link.target = target(code, link.version);
                match action {
                    Action::Disable => link.is_disabled = true,
                    Action::Enable => link.is_disabled = false,
                    _ => {}
                }
                let version = link.version;
                self.put(code, link);
                version
            }
        };
        self.unpublished.insert((code, version), now_ms);
    }

    pub(super) fn put_off(&mut self, code: u32, version: u32, now_ms: u64) {
        if let Some(at_ms) = self.unpublished.get_mut(&(code, version)) {
            *at_ms = now_ms;
        }
    }

    pub(super) fn mark_published(&mut self, code: u32, version: u32) {
        self.unpublished.remove(&(code, version));
    }

    /// Changes from before `before_ms` that Redis may not have.
    pub(super) fn unpublished(&self, before_ms: u64) -> Vec<(u32, u32)> {
        let remaining = self.unpublished.iter();
        let remaining = remaining.filter(|(_, at_ms)| **at_ms < before_ms);
        remaining.map(|(change, _)| *change).collect()
    }

    /// Counts batches that were not counted before.
    pub(super) fn count(&mut self, batches: &[(BatchId, Vec<Row>)]) {
        for (id, rows) in batches {
            let is_new = self.batches.insert(id.to_string());
            if !is_new && self.mutation != Some(Mutation::BatchCountedTwice) {
                continue;
            }
            for row in rows.iter().filter(|row| row.agent.device != Device::Bot) {
                *self.clicks.entry(code_of(row)).or_default() += u64::from(row.clicks);
            }
        }
    }

    /// The number of counted clicks of a link.
    pub(super) fn clicks(&self, code: u32) -> u64 {
        self.clicks.get(&code).copied().unwrap_or(0)
    }
}

fn code_of(row: &Row) -> u32 {
    let code = row.link.code.as_str().strip_prefix("code");
    let number = code.and_then(|number| number.parse().ok());
    number.expect("only links of ours are clicked")
}
