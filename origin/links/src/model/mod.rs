//! Plain types of links and their clicks, and what is computed of them. No SQL, no Redis.

pub mod fields;
pub mod heavy;
pub mod logo;
pub mod qr;
pub mod request;
pub mod stats;
pub mod uniques;
pub mod utm;
pub mod view;
pub mod zone;
