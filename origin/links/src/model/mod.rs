//! Plain types and calculations of links and clicks. This module uses neither SQL nor Redis.

pub mod fields;
pub mod labels;
pub mod logo;
pub mod qr;
pub mod request;
pub mod stats;
pub mod top_k;
pub mod uniques;
pub mod utm;
pub mod view;
pub mod zone;
