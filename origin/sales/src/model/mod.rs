//! Plain types of sales, shared by store, routes and jobs.
//!
//! | module | contents |
//! |---|---|
//! | [`sale`] | fields of a sale, and their validation |
//! | [`price`] | prices and amounts of money |
//! | [`payload`], [`click`] | a buyer's data in an order; the click that led to an order |
//! | [`payment`], [`callback`] | the payment provider, and the signature of its callbacks |
//! | [`site`] | names of sites; the fence of the origin's site |
//! | [`draw_order`] | the algorithm of draws |
//! | [`user_list`] | a sale's lists of users |
//! | `claim_key` | the key of a claim in Redis |

pub mod callback;
pub(crate) mod claim_key;
pub mod click;
pub mod draw_order;
pub mod payload;
pub mod payment;
pub mod price;
pub mod sale;
pub mod site;
pub mod user_list;
