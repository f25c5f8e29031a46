//! Mistakes that a party of the simulation can be told to make.
//!
//! A simulation that finds nothing proves little until it has shown what it would find. Each of these breaks one rule of
//! the protocol in a simulated party, never in production code; `tests/mutations.rs` shows that each is caught.

use std::fmt;
use std::str::FromStr;

/// A rule of the protocol that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// Redis gives a claim's units back and leaves the shard's epoch as it is.
    EpochNotRaisedAtRelease,
    /// Redis gives an order's units back and leaves the shard's epoch as it is.
    EpochNotRaisedAtCancel,
    /// Redis takes a shard's last unit and leaves its epoch as it is.
    EpochNotRaisedWhenEmpty,
    /// Redis adds units and leaves the shard's epoch as it is.
    EpochNotRaisedAtTopUp,
    /// Redis counts epochs on, without the time as a floor.
    EpochsWithoutTime,
    /// Redis ends a claim when one of its deliveries comes back, although others are out.
    DeliveryNotCounted,
    /// Redis deposits a transfer as often as it is told to.
    TransferDepositedTwice,
    /// Redis takes units for another shard and does not remember that.
    LendNotRecorded,
    /// Redis grants a new claim to a user who holds one, and gives the old one's units back.
    ClaimNotIdempotent,
    /// Redis counts generations from 1, without the time as a floor.
    GenerationsWithoutTime,
    /// Redis counts generations with a floor that is too coarse: they run ahead of it.
    GenerationsInMilliseconds,
    /// A gateway waits for ever for a call to Redis.
    TimeoutForgotten,
    /// A gateway gives a user's claim back when the reply to it is lost.
    UnknownTakenForRefused,
    /// The origin gives a claim back when SQL's answer to an order is lost.
    LostCommitTakenForRollback,
    /// The reconciler gives an overdue claim back without an outcome in SQL.
    ReleaseWithoutOutcome,
    /// SQL makes an order of a claim without looking at its outcome.
    OrderWithoutOutcome,
    /// SQL does not count what a user has.
    CapNotChecked,
    /// Redis does not note which claim it has granted to which attempt.
    AttemptNotNoted,
    /// SQL does not look which order an attempt has become.
    KeyNotBound,
    /// SQL binds an attempt only to an order that it makes itself, not to one that its claim has become before.
    KeyNotBoundAgain,
    /// SQL takes each request with a key for the one that came with it first.
    BodyNotCompared,
    /// SQL takes units that are not there.
    StockNotChecked,
    /// SQL returns the units of an order that is cancelled already.
    CancelledTwice,
    /// SQL returns the units of an order whose money was given back already.
    RefundedAgain,
    /// Redis hears nothing of an order whose money is given back.
    RefundNotFollowed,
    /// SQL does not note that Redis has to follow an order that ended.
    EndNotNoted,
    /// The origin does not check the claim's signature.
    SignatureNotChecked,
    /// The origin never tells Redis that a claim became an order.
    SettleForgotten,
    /// The reconciler takes every open claim for overdue.
    DeadlineIgnored,
    /// The reconciler leaves transfers alone that nobody finishes.
    TransfersForgotten,
    /// A rebuilt shard gets no orders.
    RebuiltWithoutOrders,
    /// A rebuilt shard gets no lists of users who may buy, or may not.
    RebuiltWithoutLists,
    /// Redis lets several rebuild a shard at once.
    RebuildNotFenced,
    /// A sale's stock is put on Redis before its lists are.
    ListsAfterStock,
    /// The origin says of each sale that SQL has nothing left.
    SoldOutToldEarly,
    /// The reconciler does not look at the books when only SQL has changed.
    SqlChangeIgnored,
    /// Nobody puts right which orders Redis knows.
    OrdersNotVerified,
    /// The reconciler repairs no sale as long as an order of another one waits for Redis.
    OtherSaleWaitedFor,
    /// The reconciler leaves a shard alone of which Redis was made to forget a key.
    EvictionNotHealed,
    /// Nobody looks whether gateways have the last catalogue.
    CatalogueNotChecked,
    /// Whatever stands before Redis sends each call again, without knowing what it is.
    CallsRetriedBlindly,
    /// A gateway's host does not tell of streams that end.
    EndsNotTold,
    /// Redis gives a slice of a limit and does not charge it.
    SliceNotCharged,
    /// Redis counts requests in flight until it is told that they ended.
    SlotsNeverExpire,
    /// Redis takes back twice what a request in flight was charged.
    SlotReturnedTwice,
    /// Redis counts by the clock of the gateway that asks.
    GatewaysClocksCount,
    /// Redis tells of a wait that is too short.
    WaitToldTooShort,
    /// Redis shows the rules that were there first.
    RulesNotRead,
    /// Redis changes its stock as often as it is told to.
    StockChangedTwice,
    /// Redis says of units that somebody holds that it has given them up.
    HeldUnitsWithdrawn,
    /// Nobody goes on with a change of the stock whose origin has died.
    ChangeNotFinished,
    /// The reconciler trusts SQL, even if Redis was told of more orders.
    LossNotNoticed,
    /// The reconciler sets a shard's mark to SQL's count while claims are open.
    MarkRaisedUnderClaims,
    /// Redis does not look whether a click has been used before.
    ClicksNotNamed,
    /// The origin reads for a click under another name than the gateway.
    ClickRenamedAtOrigin,
    /// Redis does not give back a click that led nowhere.
    ClickNotReturned,
    /// Redis gives back a click as often as it is told to.
    ClickReturnedTwice,
    /// Redis forgets that a click was given back, and uses it when a late read comes.
    BackForgotten,
    /// The origin puts a limited link into Redis without the clicks that SQL has counted.
    ClicksNotSeeded,
    /// The origin does not tell gateways of changes.
    ChangesNotTold,
    /// Redis numbers changes from 1 on after a loss, and gateways see no difference between the two streams.
    LostStreamNotNoticed,
    /// The origin does not look again for edits that Redis has not followed.
    EditsNotFollowedUp,
    /// SQL counts a batch of clicks as often as it comes.
    BatchCountedTwice,
    /// Redis does not know who is in a waiting room.
    RoomNotCounted,
    /// Redis does not know who has which place in a queue.
    PlacesNotRemembered,
    /// Redis holds a called place for ever that nobody takes up.
    PlacesWaitForEver,
    /// Redis ends a called place after a claim though there was no room.
    HoldsForgotten,
    /// Redis does not hear from gateways how far a queue was.
    GatewaysNotHeard,
    /// Redis begins the queue anew with each call.
    QueueForgotten,
    /// Redis calls as many as there is room for, whatever the pace.
    PaceNotKept,
}

impl Mutation {
    /// Those that simulations of sales find.
    pub const SALES: &[Self] = &[
        Self::EpochNotRaisedAtRelease,
        Self::EpochNotRaisedAtCancel,
        Self::EpochNotRaisedWhenEmpty,
        Self::EpochNotRaisedAtTopUp,
        Self::EpochsWithoutTime,
        Self::DeliveryNotCounted,
        Self::TransferDepositedTwice,
        Self::LendNotRecorded,
        Self::ClaimNotIdempotent,
        Self::GenerationsWithoutTime,
        Self::GenerationsInMilliseconds,
        Self::TimeoutForgotten,
        Self::UnknownTakenForRefused,
        Self::LostCommitTakenForRollback,
        Self::ReleaseWithoutOutcome,
        Self::OrderWithoutOutcome,
        Self::CapNotChecked,
        Self::AttemptNotNoted,
        Self::KeyNotBound,
        Self::KeyNotBoundAgain,
        Self::BodyNotCompared,
        Self::StockNotChecked,
        Self::CancelledTwice,
        Self::RefundedAgain,
        Self::RefundNotFollowed,
        Self::EndNotNoted,
        Self::SignatureNotChecked,
        Self::SettleForgotten,
        Self::DeadlineIgnored,
        Self::TransfersForgotten,
        Self::RebuiltWithoutOrders,
        Self::RebuiltWithoutLists,
        Self::RebuildNotFenced,
        Self::ListsAfterStock,
        Self::SoldOutToldEarly,
        Self::SqlChangeIgnored,
        Self::OrdersNotVerified,
        Self::OtherSaleWaitedFor,
        Self::EvictionNotHealed,
        Self::CatalogueNotChecked,
        Self::StockChangedTwice,
        Self::HeldUnitsWithdrawn,
        Self::ChangeNotFinished,
        Self::LossNotNoticed,
        Self::MarkRaisedUnderClaims,
    ];

    /// Those that simulations of limits find.
    pub const LIMITS: &[Self] = &[
        Self::TimeoutForgotten,
        Self::CallsRetriedBlindly,
        Self::EndsNotTold,
        Self::SliceNotCharged,
        Self::SlotsNeverExpire,
        Self::SlotReturnedTwice,
        Self::GatewaysClocksCount,
        Self::WaitToldTooShort,
        Self::RulesNotRead,
    ];

    /// Those that simulations of links find.
    pub const LINKS: &[Self] = &[
        Self::TimeoutForgotten,
        Self::EndsNotTold,
        Self::ClicksNotNamed,
        Self::ClickRenamedAtOrigin,
        Self::ClickNotReturned,
        Self::ClickReturnedTwice,
        Self::BackForgotten,
        Self::ClicksNotSeeded,
        Self::ChangesNotTold,
        Self::LostStreamNotNoticed,
        Self::EditsNotFollowedUp,
        Self::BatchCountedTwice,
    ];

    /// Those that simulations of waiting rooms find.
    pub const ROOMS: &[Self] = &[
        Self::TimeoutForgotten,
        Self::EndsNotTold,
        Self::RoomNotCounted,
        Self::PlacesNotRemembered,
        Self::PlacesWaitForEver,
        Self::HoldsForgotten,
        Self::GatewaysNotHeard,
        Self::QueueForgotten,
        Self::PaceNotKept,
    ];

    /// Whether Redis shows other epochs than it should.
    pub(crate) fn is_of_epochs(self) -> bool {
        matches!(
            self,
            Self::EpochNotRaisedAtRelease
                | Self::EpochNotRaisedAtCancel
                | Self::EpochNotRaisedWhenEmpty
                | Self::EpochNotRaisedAtTopUp
                | Self::EpochsWithoutTime
        )
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl FromStr for Mutation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut all = [Self::SALES, Self::LIMITS, Self::LINKS, Self::ROOMS]
            .into_iter()
            .flatten()
            .copied();
        all.find(|mutation| mutation.to_string() == name)
            .ok_or_else(|| format!("there is no mutation {name}"))
    }
}
