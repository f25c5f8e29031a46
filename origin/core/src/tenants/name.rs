//! Names of tenants, and of the objects that belong to them.

use std::fmt;

use serde::Serialize;

/// Separates a tenant's name from the rest. Tenant names neither contain it nor end with a hyphen, so the first
/// separator ends the tenant's name.
const SEPARATOR: &str = "--";

/// A tenant's name: 1 to [`TenantName::LEN_MAX`] of `a-z`, `0-9` and single hyphens inside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TenantName(String);

impl TenantName {
    /// Maximum bytes of a name. With the separator it leaves 42 bytes for a sale's own name and 26 for a room's.
    pub const LEN_MAX: usize = 20;

    /// Parses a name; `None` if it is invalid.
    pub fn new(text: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = (1..=Self::LEN_MAX).contains(&text.len())
            && text.bytes().all(allowed)
            && !text.starts_with('-')
            && !text.ends_with('-')
            && !text.contains(SEPARATOR);
        is_name.then(|| Self(text.to_owned()))
    }

    /// The tenant name in an object's name. The tenant need not exist.
    pub fn owner_of(name: &str) -> Option<Self> {
        let (tenant, rest) = name.split_once(SEPARATOR)?;
        Self::new(tenant).filter(|_| !rest.is_empty())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Prefix of the names of all its objects.
    pub fn prefix(&self) -> String {
        format!("{}{SEPARATOR}", self.0)
    }

    /// Whether an object with this name belongs to the tenant.
    pub fn owns(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.0.as_str());
        let rest = rest.and_then(|rest| rest.strip_prefix(SEPARATOR));
        rest.is_some_and(|rest| !rest.is_empty())
    }
}

impl fmt::Display for TenantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A range of names in byte order, as SQL compares them: all names, or those of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameRange {
    from: String,
    to: String,
}

impl NameRange {
    /// The first name; empty: all names.
    pub fn first(&self) -> &str {
        &self.from
    }

    /// The exclusive end.
    pub fn end(&self) -> &str {
        &self.to
    }

    /// Whether the range contains `name`.
    pub fn has(&self, name: &str) -> bool {
        self.from.is_empty() || (self.from.as_str()..self.to.as_str()).contains(&name)
    }
}

impl From<&TenantName> for NameRange {
    fn from(name: &TenantName) -> Self {
        Self {
            from: name.prefix(),
            // `.` follows `-` in byte order.
            to: format!("{name}-."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantName {
        TenantName::new(name).unwrap()
    }

    #[test]
    fn name_is_short_and_has_only_single_inner_hyphens() {
        for good in ["a", "7", "acme", "acme-2", "a-b-c", &"x".repeat(20)] {
            assert_eq!(tenant(good).as_str(), good);
        }
        for bad in [
            "",
            "-a",
            "a-",
            "a--b",
            "A",
            "a_b",
            "a.b",
            "ü",
            &"x".repeat(21),
        ] {
            assert_eq!(TenantName::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn tenant_name_is_the_prefix_before_the_first_separator() {
        let names = [
            ("acme--a", Some("acme")),
            ("acme--x--y", Some("acme")),
            ("acme---a", Some("acme")),
            ("acme-x--a", Some("acme-x")),
            ("acme", None),
            ("acme-", None),
            ("acme--", None),
            ("acme-a", None),
            ("--a", None),
            ("Acme--a", None),
            ("acme--x.3.1", Some("acme")),
        ];
        let tenants = [tenant("acme"), tenant("acme-x"), tenant("acm"), tenant("x")];
        for (name, owner) in names {
            let found = TenantName::owner_of(name);
            assert_eq!(found.as_ref().map(TenantName::as_str), owner, "{name}");
            for one in &tenants {
                let is_own = owner == Some(one.as_str());
                assert_eq!(one.owns(name), is_own, "{one} {name}");
                // No object has the first name of a range, which is only the prefix.
                let is_in = NameRange::from(one).has(name) && name != one.prefix();
                assert_eq!(is_in, is_own, "{one} {name}");
            }
            assert!(NameRange::default().has(name));
        }
    }
}
