//! Plain types of sales, which store, routes and jobs share.
//!
//! | module | has |
//! |---|---|
//! | [`sale`] | what an operator sets of a sale, and which sales may be made |
//! | [`price`] | prices and sums of money |

pub mod price;
pub mod sale;
