//! Whose list it is: a user's, or a guest's until it joins a user's.

use alloc::string::String;
use core::fmt;

use weir_base::id::{IdError, UserId};

/// What stands before a guest's name. A user whose own name begins so is spelt otherwise.
const GUEST: &str = "g:";

/// A user or a guest, by a text that no other has. The text has no braces, so it may stand in the hash tag of a key.
///
/// A brace or a `%` of a name is written as `%7B`, `%7D`, `%25`, and the first letter of a user's name that begins with
/// `g:` as `%67`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(String);

impl Owner {
    /// The longest text, in bytes.
    pub const LEN_MAX: usize = 3 * UserId::LEN_MAX + GUEST.len();

    /// A user that somebody has signed in as.
    pub fn user(user: &UserId) -> Self {
        let name = user.as_str();
        match name.strip_prefix(GUEST) {
            Some(rest) => Self(["%67:", &escaped(rest)].concat()),
            None => Self(escaped(name)),
        }
    }

    /// A browser that nobody has signed in with, by the name that it gave itself: 1 to 128 visible ASCII characters.
    ///
    /// # Errors
    /// Says what is wrong with the name.
    pub fn guest(visitor: &str) -> Result<Self, IdError> {
        let visitor = UserId::new(visitor)?;
        Ok(Self([GUEST, &escaped(visitor.as_str())].concat()))
    }

    /// One that was written as a text before.
    ///
    /// # Errors
    /// When the text is not one that [`Owner::as_str`] gives.
    pub fn from_text(text: &str) -> Result<Self, IdError> {
        let refused = IdError::Byte { at: 0 };
        let owner = match text.strip_prefix(GUEST) {
            Some(rest) => Self::guest(&unescaped(rest).ok_or(refused)?)?,
            None => Self::user(&UserId::new(unescaped(text).ok_or(refused)?)?),
        };
        // One owner, one text.
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
    for piece in pieces {
        let (code, rest) = piece.split_at_checked(2)?;
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
    fn a_user_is_no_guest_whatever_its_name() {
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
        fn each_has_one_text_fit_for_a_hash_tag(name in "[!-~]{1,128}", other in "(g:)?[!-~{}%]{1,20}") {
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
        fn what_is_read_is_written_the_same(text in "(g:|%67:)?[!-~]{0,20}") {
            if let Ok(owner) = Owner::from_text(&text) {
                prop_assert_eq!(owner.as_str(), text);
            }
        }
    }
}
