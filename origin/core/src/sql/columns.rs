//! Column lists: one list of fields and columns generates the `INSERT`, the `UPDATE`, their parameters, and the row
//! reader.
//!
//! ```
//! use weir_origin_core::sql::{Columns, Plain, insert_into};
//!
//! struct Note {
//!     title: String,
//!     read_at_ms: Option<u64>,
//! }
//!
//! weir_origin_core::columns!(Note {
//!     title: Plain["title"],
//!     read_at_ms: Plain["read_at_ms"],
//! });
//!
//! assert_eq!(
//!     insert_into::<Note>("notes", &["id"]),
//!     "INSERT INTO notes (title, read_at_ms, id) VALUES (?, ?, ?)"
//! );
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Error;

use super::database::{Row, Statement, damaged};

/// A struct whose fields are columns; see [`columns!`](crate::columns).
pub trait Columns: Sized {
    /// The columns, in the order in which [`bind`](Self::bind) binds them.
    const NAMES: &'static [&'static str];

    /// Binds the values of all columns.
    fn bind<'a>(&'a self, statement: Statement<'a>) -> Statement<'a>;

    /// Reads all columns of a row.
    ///
    /// # Errors
    /// When a column is missing, of another type or out of range.
    fn read(row: &Row) -> Result<Self, Error>;
}

/// How a field is stored in its columns.
pub trait Codec<T> {
    /// Binds one value per column of the field.
    fn bind<'a>(value: &'a T, statement: Statement<'a>) -> Statement<'a>;

    /// Reads the field from these columns.
    ///
    /// # Errors
    /// As for [`Columns::read`].
    fn read(row: &Row, names: &[&str]) -> Result<T, Error>;
}

/// Implements [`Columns`]: each field with its [`Codec`] and the names of its columns.
#[macro_export]
macro_rules! columns {
    ($type:ty { $($field:ident: $codec:ty [$($name:literal),+]),+ $(,)? }) => {
        impl $crate::sql::Columns for $type {
            const NAMES: &'static [&'static str] = &[$($($name),+),+];

            fn bind<'a>(
                &'a self,
                statement: $crate::sql::Statement<'a>,
            ) -> $crate::sql::Statement<'a> {
                $(let statement = <$codec as $crate::sql::Codec<_>>::bind(&self.$field, statement);)+
                statement
            }

            fn read(row: &$crate::sql::Row) -> Result<Self, $crate::sql::RowError> {
                Ok(Self {
                    $($field: <$codec as $crate::sql::Codec<_>>::read(row, &[$($name),+])?),+
                })
            }
        }
    };
}

/// `INSERT INTO <table> (…) VALUES (…)` with these columns, followed by `others`.
pub fn insert_into<C: Columns>(table: &str, others: &[&str]) -> String {
    let names = [C::NAMES, others].concat();
    let (columns, values) = (names.join(", "), vec!["?"; names.len()].join(", "));
    format!("INSERT INTO {table} ({columns}) VALUES ({values})")
}

/// `UPDATE <table> SET …` with these columns, followed by `others`, without a condition.
pub fn update<C: Columns>(table: &str, others: &[&str]) -> String {
    let names = [C::NAMES, others].concat();
    format!("UPDATE {table} SET {} = ?", names.join(" = ?, "))
}

/// Codec for one column of the field's own type: text, number or flag. Optional values may be NULL.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

/// Codec for one column with JSON text; `None` is NULL.
#[derive(Clone, Copy, Debug)]
pub struct Json;

macro_rules! plain {
    ($($type:ty: |$statement:ident, $value:ident| $bind:expr, $read:ident;)+) => {$(
        impl Codec<$type> for Plain {
            fn bind<'a>($value: &'a $type, $statement: Statement<'a>) -> Statement<'a> {
                $bind
            }

            fn read(row: &Row, names: &[&str]) -> Result<$type, Error> {
                row.$read(names.concat().as_str())
            }
        }
    )+};
}

plain! {
    String: |statement, value| statement.text(value), text;
    Option<String>: |statement, value| statement.maybe_text(value.as_deref()), maybe_text;
    u64: |statement, value| statement.number(*value), number;
    u32: |statement, value| statement.number(*value), number;
    Option<u64>: |statement, value| statement.maybe(*value), maybe;
    bool: |statement, value| statement.number(*value), flag;
}

impl<T: Serialize + DeserializeOwned> Codec<Option<T>> for Json {
    fn bind<'a>(value: &'a Option<T>, statement: Statement<'a>) -> Statement<'a> {
        let text = value.as_ref().map(serde_json::to_string);
        // Values from requests always serialize; otherwise store NULL.
        statement.maybe_owned_text(text.and_then(Result::ok))
    }

    fn read(row: &Row, names: &[&str]) -> Result<Option<T>, Error> {
        let column = names.concat();
        let text = row.maybe_text(&column)?;
        let read = text.map(|text| serde_json::from_str(&text));
        read.transpose().map_err(|error| damaged(&column, error))
    }
}
