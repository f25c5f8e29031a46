//! Settings of access.

use std::time::Duration;

use clap::Args;

/// Default idle timeout of a session, in minutes.
const SESSION_MINUTES: u32 = 60;

/// Default retention of audit entries, in days.
const AUDIT_DAYS: u32 = 400;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The flags of access.
#[derive(Clone, Debug, Args)]
pub struct AccessConfig {
    /// End a console session after this many minutes without activity; at most 12 hours in total
    #[arg(long, env = "WEIR_SESSION_MINUTES", default_value_t = SESSION_MINUTES, value_parser = clap::value_parser!(u32).range(1..=720))]
    pub session_minutes: u32,

    /// Keep audit trail entries for this many days; 0: forever
    #[arg(long, env = "WEIR_AUDIT_DAYS", default_value_t = AUDIT_DAYS)]
    pub audit_days: u32,
}

/// Settings derived from the flags.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Idle timeout of a session.
    pub session: Duration,
    /// Retention of audit entries, in milliseconds; `None`: unlimited.
    pub audit_ms: Option<u64>,
}

impl AccessConfig {
    /// Converts the flags to settings.
    pub fn settings(&self) -> Settings {
        let days = u64::from(self.audit_days);
        Settings {
            session: Duration::from_secs(u64::from(self.session_minutes) * 60),
            audit_ms: (days > 0).then_some(days * DAY_MS),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        AccessConfig {
            session_minutes: SESSION_MINUTES,
            audit_days: AUDIT_DAYS,
        }
        .settings()
    }
}
