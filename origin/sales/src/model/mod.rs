//! Plain types of sales, which store, routes and jobs share.
//!
//! | module | has |
//! |---|---|
//! | [`sale`] | what an operator sets of a sale, and which sales may be made |
//! | [`price`] | prices and sums of money |
//! | [`payload`], [`click`] | what a buyer says with an order; the click that the order came of |
//! | [`payment`], [`callback`] | the payment provider, and the signature of its callbacks |
//! | [`draw_order`] | who wins a draw |
//! | [`user_list`] | lists of users of a sale |
//! | `claim_key` | the name of a claim in Redis |

pub mod callback;
pub(crate) mod claim_key;
pub mod click;
pub mod draw_order;
pub mod payload;
pub mod payment;
pub mod price;
pub mod sale;
pub mod user_list;
