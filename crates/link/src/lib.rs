//! Short links: their names, what they say, and how they are answered.
//!
//! | module | |
//! |---|---|
//! | [`code`], [`domain`] | their names, and the domains they are under |
//! | [`spelling`], [`punycode`] | which code a path names, and which code somebody may choose |
//! | [`record`], [`preview`] | a link as Redis and the cold store hold it, and what previews of it show |
//! | `segment`, `scramble` | which numbers become codes, and in which order (feature `origin`) |
//! | `target` | where links may lead (feature `origin`) |
//! | [`agent`] | who clicks: device, system, browser, language |
//! | [`answer`], [`rule`] | what whoever clicks a link is answered, and other targets for some |
//! | [`page`], [`site`] | pages in place of a redirect, and what a domain answers beside its links |
//! | [`password`] | the page that asks for a password |
//! | [`cache`] | what a gateway remembers of links |
//! | [`click_buffer`] | clicks as a gateway counts them |
//! | [`click`] | clicks on their way from gateways to the statistics |
//! | [`click_tag`] | the name of a click that travels on to an order |
//! | [`feed`], [`routes`] | the link feed, for edges; routes between gateways and origin |
//! | [`engine`] | the engine of its filter: events in, effects out |
//! | [`redis`] | Redis keys, and typed calls of the scripts in `lua/` |

#![cfg_attr(not(feature = "openapi"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// An enumeration whose variants are words in JSON, in metrics and in SQL.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Its label.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The one with this label.
            pub fn from_label(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.label() == word)
            }
        }
    };
}

pub mod agent;
pub mod answer;
pub mod cache;
pub mod click;
pub mod click_buffer;
pub mod click_tag;
pub mod code;
pub mod domain;
pub mod engine;
pub mod feed;
pub mod page;
pub mod password;
pub mod preview;
pub mod punycode;
pub mod record;
pub mod redis;
pub mod routes;
pub mod rule;
#[cfg(feature = "origin")]
pub mod scramble;
#[cfg(feature = "origin")]
pub mod segment;
pub mod site;
pub mod spelling;
#[cfg(feature = "origin")]
pub mod target;
