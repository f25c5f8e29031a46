//! The tables of all domains. Each domain's crate keeps the history of its own.

use crate::sql::Migrations;
use crate::{events, fitment, history, links, rooms, sales};

/// Of every domain; the shared tables first.
pub const ALL: &[Migrations] = &[
    weir_origin_core::MIGRATIONS,
    sales::MIGRATIONS,
    links::MIGRATIONS,
    rooms::MIGRATIONS,
    events::MIGRATIONS,
    history::MIGRATIONS,
    fitment::MIGRATIONS,
];
