//! What the origin publishes for edges, and what edges sign.
//!
//! An edge answers what it can know by itself: where a link leads, how a sale stands, who may have an order token. It knows it
//! from *feeds*: documents that the origin signs and that any number of edges read. What needs one place that counts (claims,
//! links with a click limit, exact limits) an edge sends on to a gateway, with its *stamp*.
//!
//! | module | |
//! |---|---|
//! | [`document`] | a signed document: written by the origin, read by edges |
//! | [`routes`] | where feeds are |
//!
//! The link feed is in `weir_link::feed`, the sold-out feed in `weir_sale::feed`, the stamp in [`stamp`](crate::stamp).
//!
//! # What may go wrong
//!
//! | what | what follows |
//! |---|---|
//! | a document was changed on its way | its signature is wrong: what is known stays |
//! | an older document comes | it is [refused](DocumentRejection::Older): nothing goes back |
//! | a page comes twice | it does not begin where the edge stands, and is refused |
//! | no document comes any more | what is known ends ([`document::is_current`]), and requests go on to a gateway |
//! | the edge's clock is wrong | a document from the future counts as none: requests go on |

pub mod document;
pub mod routes;

/// Why an edge rejects a valid document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentRejection {
    /// The edge has this document or a newer one.
    #[error("the document is not newer than the known one")]
    Older,
    /// It does not follow the page that the edge has read.
    #[error("the page does not continue from the edge's position")]
    Elsewhere,
    /// Its time is in the future.
    #[error("the document is from the future: a clock is wrong")]
    Future,
}
