//! Known defects of the protocol.
//!
//! The simulation finds them, as the review under faults did on the real stack. Until they are mended, a schedule that
//! runs into one does not fail; it is counted. Whoever mends one takes it off [`KNOWN_DEFECTS`]: from then on it fails
//! like any other. `--unexcused C3` does the same for one run.

use std::fmt;
use std::str::FromStr;

/// A defect: `C` by its number in the review under faults, `S` found here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    /// After Redis lost its last writes, an epoch comes twice. A gateway that has seen it before takes a shard with
    /// units for an empty one, and says `sold_out` as long as nothing else changes.
    C3,
    /// After Redis lost data, gateways say `sold_out` until the units are put back: a rebuilt shard has 0 units, which
    /// looks sold out.
    C4,
    /// If an order that Redis has lost is cancelled or expires, only SQL changes: the reconciler sees no reason to read
    /// the books for up to 60 rounds.
    C5,
    /// What Redis loses besides units is not restored unless the shard is cold: an order that ended comes back, or one
    /// that stands is forgotten, and the user's cap is wrong there.
    C6,
    /// A gateway whose clock is set back while a breaker is open keeps it open for the length of the step.
    C7,
    /// After Redis lost its last writes, a generation comes twice, and with it a claim's id: where a shard grants more than
    /// one claim in a millisecond its sequence runs ahead of the time, which is the floor after a loss. Found by this
    /// simulation. SQL refuses the second claim, and its user has to try again.
    S1,
    /// Two origins rebuild one shard at once: the second wipes what the first has restored, just before that one puts the
    /// shard to use, and may then restore nothing more. Its users' orders are forgotten there. Found by this simulation.
    /// SQL refuses who would have more than the cap.
    S2,
    /// Redis that lost its last writes has more units than before, at the same epoch: what is lost is the claim that took
    /// them, which raises none. A gateway that has seen the shard empty goes on saying `sold_out`. Found by this
    /// simulation. As [`Defect::C3`], but epochs that never repeat would not mend it.
    S3,
}

/// What the protocol of today does not survive.
pub const KNOWN_DEFECTS: &[Defect] = &Defect::ALL;

impl Defect {
    /// Every defect.
    pub const ALL: [Self; 8] = [
        Self::C3,
        Self::C4,
        Self::C5,
        Self::C6,
        Self::C7,
        Self::S1,
        Self::S2,
        Self::S3,
    ];
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl FromStr for Defect {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|defect| defect.to_string() == name)
            .ok_or_else(|| format!("there is no known defect {name}"))
    }
}
