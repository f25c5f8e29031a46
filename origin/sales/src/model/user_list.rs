//! A sale's lists of users.

/// A list of users of a sale. SQL has the lists, and Redis follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserList {
    /// Users with a reservation.
    Reserved,
    /// Users who cannot buy.
    Blocked,
}
