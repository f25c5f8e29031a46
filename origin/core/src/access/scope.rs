//! Permissions of keys: areas to read and write, and roles as predefined sets of permissions.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A part of the admin routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// Sales, their orders and payments.
    Sales,
    /// Waiting rooms.
    Rooms,
    /// Limits.
    Limits,
    /// Short links and their domains.
    Links,
    /// Events, their groups, customers and visitors.
    Events,
    /// Browse history and products.
    History,
    /// Vehicle fitment.
    Fitment,
    /// Keys, and the audit trail.
    Access,
}

impl Area {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Sales,
        Self::Rooms,
        Self::Limits,
        Self::Links,
        Self::Events,
        Self::History,
        Self::Fitment,
        Self::Access,
    ];

    /// The label in scopes.
    pub fn label(self) -> &'static str {
        match self {
            Self::Sales => "sales",
            Self::Rooms => "rooms",
            Self::Limits => "limits",
            Self::Links => "links",
            Self::Events => "events",
            Self::History => "history",
            Self::Fitment => "fitment",
            Self::Access => "access",
        }
    }
}

/// An access level. Write does not include read: a program that creates links does not need to list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Read access.
    Read,
    /// Write access.
    Write,
}

impl Level {
    /// The label in scopes.
    pub fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// A permission, written as `sales:read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// The area.
    pub area: Area,
    /// The access level.
    pub level: Level,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.area.label(), self.level.label())
    }
}

/// Error of an invalid scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} must be one of sales, rooms, limits, links, events, history, fitment and access, with :read or :write"
)]
pub struct NoScope(String);

impl FromStr for Scope {
    type Err = NoScope;

    fn from_str(text: &str) -> Result<Self, NoScope> {
        let mut all = all_scopes();
        let found = all.find(|scope| scope.to_string() == text);
        found.ok_or_else(|| NoScope(text.chars().take(40).collect()))
    }
}

fn all_scopes() -> impl Iterator<Item = Scope> {
    let levels = [Level::Read, Level::Write];
    let of = move |area| levels.map(|level| Scope { area, level });
    Area::ALL.into_iter().flat_map(of)
}

/// A predefined set of scopes. Later versions may add areas to a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, utoipa::ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum Role {
    /// Reads everything except keys and the audit trail.
    Viewer,
    /// Reads everything, and changes everything except keys.
    Operator,
    /// Reads and changes everything.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// The label of the role.
    pub fn label(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The role with this label.
    pub fn from_label(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.label() == word)
    }

    /// The permissions of the role.
    pub fn scopes(self) -> Scopes {
        let may = |scope: &Scope| match self {
            Self::Viewer => scope.level == Level::Read && scope.area != Area::Access,
            Self::Operator => scope.level == Level::Read || scope.area != Area::Access,
            Self::Admin => true,
        };
        Scopes(all_scopes().filter(may).collect())
    }
}

/// A set of permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes(BTreeSet<Scope>);

impl Scopes {
    /// Whether the set contains `scope`.
    pub fn has(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }

    /// Returns the first permission of `other` that this set lacks.
    pub fn lacks(&self, other: &Self) -> Option<Scope> {
        other.0.difference(&self.0).next().copied()
    }

    /// Returns the permissions in these areas.
    pub fn of_areas(&self, areas: &[Area]) -> Self {
        let is_of = |scope: &&Scope| areas.contains(&scope.area);
        Self(self.0.iter().filter(is_of).copied().collect())
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The permissions as labels.
    pub fn words(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(role: Role) -> Vec<String> {
        role.scopes().words()
    }

    #[test]
    fn scope_text_round_trips() {
        for scope in all_scopes() {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        for wrong in [
            "",
            "sales",
            "sales:",
            "sales:own",
            ":read",
            "Sales:read",
            "sales:read ",
        ] {
            assert!(wrong.parse::<Scope>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn roles_are_cumulative_and_only_admins_issue_keys() {
        let (viewer, operator) = (Role::Viewer.scopes(), Role::Operator.scopes());
        let admin = Role::Admin.scopes();
        assert_eq!(operator.lacks(&viewer), None);
        assert_eq!(admin.lacks(&operator), None);
        assert!(
            words(Role::Viewer)
                .iter()
                .all(|word| word.ends_with(":read"))
        );
        assert!(!words(Role::Viewer).contains(&"access:read".to_owned()));
        assert!(words(Role::Operator).contains(&"access:read".to_owned()));
        let more = operator.lacks(&admin).map(|scope| scope.to_string());
        assert_eq!(more.as_deref(), Some("access:write"));
        assert_eq!(words(Role::Admin).len(), 2 * Area::ALL.len());
    }
}
