//! Status of consumer groups.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use utoipa::ToSchema;

/// State of a consumer group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupState {
    /// It has not started.
    #[default]
    Starting,
    /// It processes events.
    Running,
    /// An operator has paused it.
    Paused,
    /// Its target is unavailable: it retries the same batch.
    Outage,
}

impl GroupState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Starting, Self::Running, Self::Paused, Self::Outage];

    /// Its label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Outage => "outage",
        }
    }
}

/// The current report of a group's runner.
#[derive(Debug, Default)]
pub struct Status(Mutex<GroupReport>);

/// A group's state and current error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupReport {
    /// Its state.
    pub state: GroupState,
    /// The current error.
    pub error: Option<String>,
}

impl Status {
    /// Returns the current report.
    pub fn get(&self) -> GroupReport {
        self.lock_report().clone()
    }

    pub(super) fn set(&self, state: GroupState) {
        *self.lock_report() = GroupReport { state, error: None };
    }

    pub(super) fn outage(&self, error: impl Into<String>) {
        *self.lock_report() = GroupReport {
            state: GroupState::Outage,
            error: Some(error.into()),
        };
    }

    fn lock_report(&self) -> MutexGuard<'_, GroupReport> {
        // Each change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
