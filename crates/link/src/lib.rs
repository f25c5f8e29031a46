//! Short links: names, records and responses.
//!
//! | module | |
//! |---|---|
//! | [`code`], [`domain`] | names of links, and link domains |
//! | [`spelling`], [`punycode`] | parsing of codes in paths, and custom codes |
//! | [`record`], [`preview`] | the record of a link in Redis and the cold store, and its preview |
//! | `segment`, `scramble` | allocation and order of generated codes (feature `origin`) |
//! | `target` | checks of targets (feature `origin`) |
//! | [`agent`] | classification of clients: device, system, browser, language |
//! | [`answer`], [`rule`] | the response to a visit, and targeting rules |
//! | [`page`], [`site`] | HTML pages, and responses of a domain besides its links |
//! | [`password`] | the password page |
//! | [`cache`] | a gateway's link cache |
//! | [`click_buffer`] | a gateway's buffer of clicks |
//! | [`click`] | batches of clicks for the statistics |
//! | [`click_tag`] | signed click IDs |
//! | [`feed`], [`routes`] | the link feed, for edges; routes between gateways and origin |
//! | [`engine`] | the engine of its filter: events in, effects out |
//! | [`redis`] | Redis keys, and typed calls of the scripts in `lua/` |

#![cfg_attr(not(feature = "openapi"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// Defines an enumeration whose variants have labels in JSON, metrics and SQL.
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
            /// All variants.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Its label.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The variant with this label.
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
