//! Documents that the origin publishes for edges, and requests that edges sign.
//!
//! An edge answers some requests itself: redirects of links, states of sales, order tokens. It reads the data from
//! *feeds*: documents signed by the origin, for any number of edges. Requests that need a shared count (claims, links
//! with a click limit, exact limits) go to a gateway, with the edge's *stamp*.
//!
//! | module | |
//! |---|---|
//! | [`document`] | a signed document: written by the origin, read by edges |
//! | [`routes`] | paths of the feeds |
//!
//! The link feed is in `weir_link::feed`, the sold-out feed in `weir_sale::feed`, the stamp in [`stamp`](crate::stamp).
//!
//! # Failures
//!
//! | failure | result |
//! |---|---|
//! | a document was modified | the signature is invalid: the edge keeps its data |
//! | an older document arrives | the edge [rejects](DocumentRejection::Older) it |
//! | a page arrives twice | it does not follow the edge's cursor, so the edge rejects it |
//! | documents stop arriving | the edge's data expires ([`document::is_current`]), and requests go to a gateway |
//! | the edge's clock is wrong | the edge rejects documents from the future, and requests go to a gateway |

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
