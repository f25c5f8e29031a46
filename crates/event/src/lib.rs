//! Behaviour events: content, identity, time and topics.
//!
//! | module | |
//! |---|---|
//! | [`limits`] | limits of one request |
//! | [`name`] | ids, types, customers, visitors, keys and topics |
//! | [`batch`] | splits a body into events |
//! | [`event`] | one event as its client sent it |
//! | [`pixel`] | one event as the query of a tracking pixel |
//! | [`answer`] | the response with a verdict per event |
//! | [`consent`], [`address`], [`sample`] | consent, truncated addresses, sampling |
//! | [`stamps`] | gateway metadata of a request: written by the filter, read by the origin |
//! | [`clock`] | event times |
//! | [`fingerprint`] | hashes that distinguish events |
//! | [`routes`] | routing to topics |
//! | [`envelope`] | the binary format of an event in the log |
//! | [`partition`], [`row_key`] | partitions of the log, and row keys of a store |
//! | [`window`] | the last N, a count within a window, A and then B |
//! | [`engine`] | the engine of its filter: events in, effects out |
//!
//! From a body to the log:
//!
//! ```
//! use weir_event::batch::Batch;
//! use weir_event::consent::Consent;
//! use weir_event::envelope::{EventAttribution, Envelope};
//! use weir_event::routes::Routes;
//! use weir_event::stamps::{Kind, Stamps};
//! use weir_event::{clock, name::KeyName};
//!
//! let stamps = Stamps {
//!     key: KeyName::new("shop-web")?,
//!     kind: Kind::Browser,
//!     received_ms: 1_700_000_000_000,
//!     address: None,
//!     consent: Consent::Full,
//! };
//! let batch = Batch::read(br#"[{"type":"view","attributes":{"sku":"a1"}}]"#)?;
//! for sent in &batch.events {
//!     let event = sent.read()?;
//!     let customer = event.customer_for(stamps.kind, None, None)?;
//!     let at_ms = clock::occurred_ms(event.at_ms, batch.sent_at_ms, stamps.received_ms, clock::DAY_MS)?;
//!     let topics = Routes::default().topics(&event);
//!     let envelope = Envelope::new(event, &stamps, EventAttribution { customer, at_ms, topics });
//!     assert_eq!(Envelope::decode(&envelope.encode())?, envelope);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(feature = "openapi"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// Defines an enumeration whose variants have labels in JSON, headers and metrics.
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
            pub fn from_label(word: &[u8]) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.label().as_bytes() == word)
            }
        }
    };
}

pub mod address;
pub mod answer;
pub mod batch;
pub mod clock;
pub mod consent;
pub mod engine;
pub mod envelope;
pub mod event;
pub mod fingerprint;
mod json;
pub mod limits;
pub mod name;
pub mod partition;
pub mod pixel;
pub mod routes;
pub mod row_key;
pub mod sample;
pub mod stamps;
pub mod window;
