//! Lists of users of a sale.

/// The lists of users of a sale: SQL has them, and Redis follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserList {
    /// Who has reserved.
    Reserved,
    /// Who may not buy.
    Blocked,
}
