//! Refusals of Redis, and whether a refusal proves that nothing has run.
//!
//! # Definite refusals by form
//!
//! ```text
//! OOM command not allowed when used memory > 'maxmemory'.
//! OOM command not allowed when used memory > 'maxmemory'. script: 9282…270a, on @user_script:1.
//! ERR Error running script (call to f_9282…270a): @user_script:1: … -OOM command not allowed …
//! ```
//!
//! 1. An error without a script name occurs before the command. Redis checks login, permissions, slots, memory and its
//!    role first, and then runs EVALSHA or refuses it as a whole. Every kind is definite.
//! 2. Since version 7, Redis appends `script: <digest>, on @user_script:<line>.` to an error of a script that has
//!    started, and Valkey `script: on @user_script:<line>.` Weir's scripts declare no flags (`#!lua`), so Redis starts them on a replica or when its memory is full,
//!    and refuses their first write. `READONLY`, `OOM`, `MISCONF` and `NOREPLICAS` are definite in this form, too:
//!    Redis checks them only until the script has written (`SCRIPT_WRITE_DIRTY` in `script.c`), and lets a script that
//!    has written finish. Every other kind may occur after a write: a user who may call `HSET` but not `SET` gets the
//!    error of `SET` after `HSET` has run.
//! 3. The form of versions before 7 proves nothing.
//!
//! A script that catches an error with `pcall` and returns it turns form 2 into form 1. Weir's scripts do not.
//! `crates/scripts/tests/refusals.rs` tests all of this on a real Redis.

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalKind {
    /// The server is a replica.
    ReadOnly,
    /// Its memory is full.
    OutOfMemory,
    /// The user lacks a permission.
    NoPermission,
    /// The user or the password is wrong.
    WrongPassword,
    /// No password was given.
    NoPassword,
    /// The server loads its data.
    Loading,
    /// The server cannot save to disk, and accepts no writes.
    CannotSave,
    /// Too few replicas are connected.
    NoReplicas,
    /// Slots of the cluster have no server.
    ClusterDown,
    /// A replica has lost its primary.
    PrimaryDown,
    /// The script is unknown, even after EVAL.
    UnknownScript,
    /// A script blocks the server.
    Busy,
    /// The keys belong to another server of the cluster.
    WrongNode,
    /// Too many clients are connected.
    TooManyClients,
    /// The proxy in front has no server.
    NoServer,
}

/// The forms in which Redis 7.0 and newer versions refuse a command within a script.
const NO_PERMISSION_IN_SCRIPT: [&str; 2] = [
    "ERR The user executing the script can't",
    "ERR ACL failure in script:",
];

/// The prefixes of errors by kind. A prefix ends at a space, or with the error.
const BEGINNINGS: [(&str, RefusalKind); 21] = [
    ("READONLY", RefusalKind::ReadOnly),
    ("OOM", RefusalKind::OutOfMemory),
    ("NOPERM", RefusalKind::NoPermission),
    (NO_PERMISSION_IN_SCRIPT[0], RefusalKind::NoPermission),
    (NO_PERMISSION_IN_SCRIPT[1], RefusalKind::NoPermission),
    ("WRONGPASS", RefusalKind::WrongPassword),
    // A password for a Redis without one.
    ("ERR AUTH", RefusalKind::WrongPassword),
    ("NOAUTH", RefusalKind::NoPassword),
    ("LOADING", RefusalKind::Loading),
    ("MISCONF", RefusalKind::CannotSave),
    ("NOREPLICAS", RefusalKind::NoReplicas),
    ("CLUSTERDOWN", RefusalKind::ClusterDown),
    ("MASTERDOWN", RefusalKind::PrimaryDown),
    ("NOSCRIPT", RefusalKind::UnknownScript),
    ("BUSY", RefusalKind::Busy),
    ("MOVED", RefusalKind::WrongNode),
    ("ASK", RefusalKind::WrongNode),
    ("CROSSSLOT", RefusalKind::WrongNode),
    ("TRYAGAIN", RefusalKind::WrongNode),
    (
        "ERR max number of clients reached",
        RefusalKind::TooManyClients,
    ),
    // Envoy's redis_proxy.
    ("no upstream host", RefusalKind::NoServer),
];

/// The suffix of errors from a script that has started, since Redis 7.
const IN_SCRIPT: &str = " script: ";

/// The prefix of script errors before Redis 7.
const OLD_IN_SCRIPT: &str = "ERR Error running script";

impl RefusalKind {
    /// All kinds.
    pub const ALL: [Self; 15] = [
        Self::ReadOnly,
        Self::OutOfMemory,
        Self::NoPermission,
        Self::WrongPassword,
        Self::NoPassword,
        Self::Loading,
        Self::CannotSave,
        Self::NoReplicas,
        Self::ClusterDown,
        Self::PrimaryDown,
        Self::UnknownScript,
        Self::Busy,
        Self::WrongNode,
        Self::TooManyClients,
        Self::NoServer,
    ];

    /// The kind of an error reply, without its `-`; `None` if it is none of these.
    pub fn from_error(error: &str) -> Option<Self> {
        let error = match error.strip_prefix(OLD_IN_SCRIPT) {
            Some(script) => script.split_once(" -")?.1,
            None => error,
        };
        let begins = |(beginning, _): &&(&str, Self)| {
            let rest = error.strip_prefix(beginning);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        BEGINNINGS.iter().find(begins).map(|(_, kind)| *kind)
    }

    /// Whether `error`, which is of this kind, proves that nothing has run: see the [module](self).
    pub fn is_definite(self, error: &str) -> bool {
        let names_script = error.contains("script:")
            || error.contains("user_script")
            || NO_PERMISSION_IN_SCRIPT
                .iter()
                .any(|begin| error.starts_with(begin));
        let is_before_writes = matches!(
            self,
            Self::ReadOnly | Self::OutOfMemory | Self::CannotSave | Self::NoReplicas
        );
        !names_script || (is_before_writes && has_script_form(error))
    }

    /// The value of the label `reason` in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::ReadOnly => "readonly",
            Self::OutOfMemory => "oom",
            Self::NoPermission => "noperm",
            Self::WrongPassword => "wrongpass",
            Self::NoPassword => "noauth",
            Self::Loading => "loading",
            Self::CannotSave => "misconf",
            Self::NoReplicas => "noreplicas",
            Self::ClusterDown => "clusterdown",
            Self::PrimaryDown => "masterdown",
            Self::UnknownScript => "noscript",
            Self::Busy => "busy",
            Self::WrongNode => "moved",
            Self::TooManyClients => "maxclients",
            Self::NoServer => "no_server",
        }
    }

    /// The remedy for operators.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::ReadOnly => "this Redis is a replica; use the address of the primary",
            Self::OutOfMemory => "Redis is full; free memory or raise maxmemory",
            Self::NoPermission => {
                "an ACL forbids the command; give the user the rules in docs/redis.md (ACL SETUSER)"
            }
            Self::WrongPassword => "correct the user or the password",
            Self::NoPassword => "Redis requires a password; set one",
            Self::Loading => "Redis is loading its data; wait until it has finished",
            Self::CannotSave => "Redis cannot write to its disk; repair the disk",
            Self::NoReplicas => {
                "Redis has too few replicas; start them, or lower min-replicas-to-write"
            }
            Self::ClusterDown => {
                "the Redis Cluster is incomplete; start the missing nodes (CLUSTER INFO)"
            }
            Self::PrimaryDown => "this Redis is a replica without its primary; start the primary",
            Self::UnknownScript => "a client removes scripts from Redis; find it (SCRIPT FLUSH)",
            Self::Busy => "a script blocks Redis; stop it (SCRIPT KILL)",
            Self::WrongNode => "this is a node of a Redis Cluster; set the topology to cluster",
            Self::TooManyClients => {
                "Redis has too many connections; close some, or raise maxclients"
            }
            Self::NoServer => "the proxy has no healthy Redis; start Redis, or correct its address",
        }
    }

    /// Whether it usually resolves without an operator.
    pub const fn is_passing(self) -> bool {
        matches!(
            self,
            Self::Loading | Self::ClusterDown | Self::PrimaryDown | Self::Busy | Self::WrongNode
        )
    }
}

/// Whether an error ends with ` script: <40 hex digits>, on @user_script:<line>.` Valkey has no digest and no comma.
fn has_script_form(error: &str) -> bool {
    let Some((_, place)) = error.split_once(IN_SCRIPT) else {
        return false;
    };
    let Some((digest, line)) = place.split_once("on @user_script:") else {
        return false;
    };
    let digest = digest.strip_suffix(", ").unwrap_or(digest);
    let is_digest = digest.is_empty()
        || digest.len() == 40 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    let line = line.strip_suffix('.').unwrap_or_default();
    is_digest && !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    const PLACE: &str = " script: 9282fe9cd1ad17b421df71a1d74837df7d50241a, on @user_script:1.";

    #[test]
    fn refusal_kind_is_read_from_the_error_prefix() {
        for (error, kind) in [
            ("READONLY You can't write", Some(RefusalKind::ReadOnly)),
            ("OOM", Some(RefusalKind::OutOfMemory)),
            (
                "BUSY Redis is busy running a script",
                Some(RefusalKind::Busy),
            ),
            ("BUSYGROUP Consumer Group name already exists", None),
            ("BUSYKEY Target key name already exists.", None),
            ("ASKING", None),
            ("WRONGTYPE Operation against a key", None),
            ("ERR READONLY", None),
            (
                "ERR max number of clients reached",
                Some(RefusalKind::TooManyClients),
            ),
            ("no upstream host", Some(RefusalKind::NoServer)),
            (
                "ERR The user executing the script can't run this command or subcommand script: x",
                Some(RefusalKind::NoPermission),
            ),
            (
                "ERR Error running script (call to f_x): @user_script:1: @user_script: 1: -OOM no",
                Some(RefusalKind::OutOfMemory),
            ),
            ("ERR Error running script (call to f_x): boom", None),
            ("", None),
        ] {
            assert_eq!(RefusalKind::from_error(error), kind, "{error}");
        }
    }

    #[test]
    fn each_refusal_kind_has_a_prefix_a_label_and_a_remedy() {
        for (index, kind) in RefusalKind::ALL.into_iter().enumerate() {
            let same = |other: &RefusalKind| other.label() == kind.label();
            assert_eq!(RefusalKind::ALL.iter().position(same), Some(index));
            assert!(BEGINNINGS.iter().any(|(_, its)| *its == kind), "{kind:?}");
            assert!(!kind.remedy().is_empty());
        }
    }

    #[test]
    fn refusal_before_the_script_runs_is_definite() {
        for (beginning, kind) in BEGINNINGS {
            let is_definite = !NO_PERMISSION_IN_SCRIPT.contains(&beginning);
            assert_eq!(kind.is_definite(beginning), is_definite, "{beginning}");
        }
    }

    #[test]
    fn refusal_of_the_first_write_of_a_script_is_definite() {
        for (word, is_definite) in [
            ("READONLY", true),
            ("OOM", true),
            ("MISCONF", true),
            ("NOREPLICAS", true),
            ("NOPERM", false),
            ("MOVED 1 a:1", false),
            ("CLUSTERDOWN", false),
            ("TRYAGAIN", false),
        ] {
            for place in [PLACE, " script: on @user_script:1."] {
                let error = format!("{word} no.{place}");
                let kind = RefusalKind::from_error(&error).unwrap();
                assert_eq!(kind.is_definite(&error), is_definite, "{error}");
            }
        }
    }

    #[test]
    fn refusal_in_another_form_has_unknown_outcome() {
        let digest = "9282fe9cd1ad17b421df71a1d74837df7d50241a";
        for error in [
            format!("OOM no. script: f_{digest}, on @user_script:1."),
            format!("OOM no. script: {digest}, on @enable_strict_lua:8."),
            format!("OOM no. script: {digest}, on @user_script:."),
            format!("OOM no. script: {digest}, on @user_script:1"),
            format!("OOM no. script:{digest}"),
            "OOM no. @user_script".into(),
            "ERR Error running script (call to f_x): @user_script:1: -OOM no".into(),
        ] {
            let kind = RefusalKind::from_error(&error).unwrap();
            assert!(!kind.is_definite(&error), "{error}");
        }
    }
}
