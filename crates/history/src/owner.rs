//! Owners of lists: users, and guests until their list is joined to a user's.

use alloc::string::String;
use core::fmt;

use weir_base::id::{IdError, UserId};

/// The prefix of guests. A user with the same prefix is escaped.
const GUEST: &str = "g:";

/// A user or a guest, as a unique text. The text has no braces, so a key's hash tag may contain it.
///
/// A brace or `%` in a name is written as `%7B`, `%7D` or `%25`. The first letter of a user's name with the prefix `g:`
/// is written as `%67`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(String);

impl Owner {
    /// Maximum length of the text, in bytes.
    pub const LEN_MAX: usize = 3 * UserId::LEN_MAX + GUEST.len();

    /// A signed-in user.
    pub fn user(user: &UserId) -> Self {
        let name = user.as_str();
        match name.strip_prefix(GUEST) {
            Some(rest) => Self(["%67:", &escaped(rest)].concat()),
            None => Self(escaped(name)),
        }
    }

    /// A browser without a signed-in user, by its visitor id: 1 to 128 visible ASCII characters.
    ///
    /// # Errors
    /// If the name is invalid.
    pub fn guest(visitor: &str) -> Result<Self, IdError> {
        let visitor = UserId::new(visitor)?;
        Ok(Self([GUEST, &escaped(visitor.as_str())].concat()))
    }

    /// Parses an owner's text.
    ///
    /// # Errors
    /// If the text is not an output of [`Owner::as_str`].
    pub fn from_text(text: &str) -> Result<Self, IdError> {
        let refused = IdError::Byte { at: 0 };
        let owner = match text.strip_prefix(GUEST) {
            Some(rest) => Self::guest(&unescaped(rest).ok_or(refused)?)?,
            None => Self::user(&UserId::new(unescaped(text).ok_or(refused)?)?),
        };
        // Each owner has one text.
        if owner.0 == text {
            Ok(owner)
        } else {
            Err(refused)
        }
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for char in name.chars() {
        match char {
            '%' => text.push_str("%25"),
            '{' => text.push_str("%7B"),
            '}' => text.push_str("%7D"),
            other => text.push(other),
        }
    }
    text
}

fn unescaped(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut name = String::from(pieces.next()?);
    for chunk in pieces {
        let (code, rest) = chunk.split_at_checked(2)?;
        name.push(match code {
            "25" => '%',
            "7B" => '{',
            "7D" => '}',
            "67" => 'g',
            _ => return None,
        });
        name.push_str(rest);
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn user(name: &str) -> Owner {
        Owner::user(&UserId::new(name).unwrap())
    }

    #[test]
    fn user_never_equals_a_guest_of_any_name() {
        assert_eq!(user("alice").as_str(), "alice");
        assert_eq!(Owner::guest("v1").unwrap().as_str(), "g:v1");
        assert_eq!(user("g:v1").as_str(), "%67:v1");
        assert_eq!(user("%67:v1").as_str(), "%2567:v1");
        assert_eq!(user("}{").as_str(), "%7D%7B");
        assert_eq!(Owner::guest(""), Err(IdError::Empty));
        for none in ["", "a{b", "%", "%6", "%67", "%41", "g:", "a b", "%67x"] {
            assert!(Owner::from_text(none).is_err(), "{none}");
        }
    }

    proptest! {
        #[test]
        fn each_owner_has_one_text_valid_as_a_hash_tag(name in "[!-~]{1,128}", other in "(g:)?[!-~{}%]{1,20}") {
            let owners = [user(&name), Owner::guest(&name).unwrap(), user(&other)];
            for owner in &owners {
                let has_brace = owner.as_str().contains(['{', '}']);
                prop_assert!(!has_brace);
                prop_assert!(owner.as_str().len() <= Owner::LEN_MAX);
                prop_assert_eq!(&Owner::from_text(owner.as_str()).unwrap(), owner);
            }
            prop_assert_ne!(&owners[0], &owners[1]);
            prop_assert_eq!(owners[0] == owners[2], name == other);
        }

        #[test]
        fn parsed_owner_text_is_written_unchanged(text in "(g:|%67:)?[!-~]{0,20}") {
            if let Ok(owner) = Owner::from_text(&text) {
                prop_assert_eq!(owner.as_str(), text);
            }
        }
    }
}
