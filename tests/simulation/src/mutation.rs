//! Mistakes that a party of the simulation can be configured to make.
//!
//! A simulation that finds nothing proves little unless it demonstrably finds mistakes. Each mutation violates one rule
//! of the protocol in a simulated party, never in production code. `tests/mutations.rs` shows that each is detected.

use std::fmt;
use std::str::FromStr;

/// A violated rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// Redis releases a claim's units without raising the shard's epoch.
    EpochNotRaisedAtRelease,
    /// Redis returns an order's units without raising the shard's epoch.
    EpochNotRaisedAtCancel,
    /// Redis takes a shard's last unit without raising its epoch.
    EpochNotRaisedWhenEmpty,
    /// Redis adds units without raising the shard's epoch.
    EpochNotRaisedAtTopUp,
    /// Redis increments epochs without the time as a floor.
    EpochsWithoutTime,
    /// Redis ends a claim when one of its deliveries is released, although others are in progress.
    DeliveryNotCounted,
    /// Redis applies a repeated transfer again.
    TransferDepositedTwice,
    /// Redis takes units for another shard without recording it.
    LendNotRecorded,
    /// Redis grants a new claim to a user who holds one, and releases the old one.
    ClaimNotIdempotent,
    /// Redis counts generations from 1, without the time as a floor.
    GenerationsWithoutTime,
    /// Redis counts generations with a coarse floor, so that they run ahead of it.
    GenerationsInMilliseconds,
    /// A gateway waits without a timeout for a call to Redis.
    TimeoutForgotten,
    /// A gateway releases a user's claim when its reply is lost.
    UnknownTakenForRefused,
    /// The origin releases a claim when SQL's reply to an order is lost.
    LostCommitTakenForRollback,
    /// The reconciler releases an overdue claim without an outcome in SQL.
    ReleaseWithoutOutcome,
    /// SQL turns a claim into an order without checking its outcome.
    OrderWithoutOutcome,
    /// SQL does not count a user's units.
    CapNotChecked,
    /// Redis does not store the claim of an attempt.
    AttemptNotNoted,
    /// SQL does not check whether an attempt is already an order.
    KeyNotBound,
    /// SQL binds an attempt only to an order that it creates, not to one that its claim became before.
    KeyNotBoundAgain,
    /// SQL accepts a request with a used key but a different body.
    BodyNotCompared,
    /// SQL takes units that do not exist.
    StockNotChecked,
    /// SQL returns the units of an order that is already cancelled.
    CancelledTwice,
    /// SQL returns the units of an order that is already refunded.
    RefundedAgain,
    /// The origin does not report a refunded order to Redis.
    RefundNotFollowed,
    /// SQL does not record that Redis must follow an ended order.
    EndNotNoted,
    /// The origin does not verify the claim's signature.
    SignatureNotChecked,
    /// The origin never reports to Redis that a claim became an order.
    SettleForgotten,
    /// The reconciler treats every open claim as overdue.
    DeadlineIgnored,
    /// The reconciler ignores unfinished transfers.
    TransfersForgotten,
    /// A rebuilt shard gets no orders.
    RebuiltWithoutOrders,
    /// A rebuilt shard gets no lists of reserved and blocked users.
    RebuiltWithoutLists,
    /// Redis allows concurrent rebuilds of a shard.
    RebuildNotFenced,
    /// A sale's stock is written to Redis before its lists.
    ListsAfterStock,
    /// The origin publishes every sale as sold out.
    SoldOutToldEarly,
    /// The reconciler does not check the balance when only SQL has changed.
    SqlChangeIgnored,
    /// The origin does not correct the orders in Redis.
    OrdersNotVerified,
    /// The reconciler repairs no sale while an order of another one waits for Redis.
    OtherSaleWaitedFor,
    /// The reconciler ignores a shard from which Redis evicted a key.
    EvictionNotHealed,
    /// The origin does not check whether Redis has the last catalogue.
    CatalogueNotChecked,
    /// A proxy before Redis resends each call without knowing its type.
    CallsRetriedBlindly,
    /// A gateway's host does not report the ends of streams.
    EndsNotTold,
    /// Redis grants a slice of a limit without charging it.
    SliceNotCharged,
    /// Redis counts requests in flight until their end is reported.
    SlotsNeverExpire,
    /// Redis returns the charge of a request in flight twice.
    SlotReturnedTwice,
    /// Redis uses the clock of the calling gateway.
    GatewaysClocksCount,
    /// Redis returns a wait that is too short.
    WaitToldTooShort,
    /// Redis returns the first version of the rules.
    RulesNotRead,
    /// Redis applies a repeated stock change again.
    StockChangedTwice,
    /// Redis reports held units as withdrawn.
    HeldUnitsWithdrawn,
    /// The origin does not continue a stock change whose origin has died.
    ChangeNotFinished,
    /// The reconciler trusts SQL, even if Redis has received more orders.
    LossNotNoticed,
    /// The reconciler sets a shard's mark to SQL's count while claims are open.
    MarkRaisedUnderClaims,
    /// Failing a site moves its units without closing its fence.
    FenceNotRaised,
    /// SQL turns claims of closed fences into orders.
    FenceNotChecked,
    /// Closing a fence does not end its transfers.
    RebuiltBeforeTransfersEnd,
    /// SQL counts the outcome of a transfer that closing its fence has ended.
    LateOutcomeCounts,
    /// SQL counts a repeated outcome of a transfer again.
    OutcomeCountsTwice,
    /// The outcome of a transfer does not reduce the source's allotment.
    AllotmentNotMoved,
    /// A site that returns gets its closed fence again.
    FenceReused,
    /// Draining a site closes its fence at once.
    DrainRefusesHolders,
    /// SQL does not record which fence fills its shards before a sale is warm.
    FillerNotRecorded,
    /// The origin returns the units of cancelled orders to the shards of a closed fence.
    ClosedFenceFollowed,
    /// A site's catalogue says that a sale is sold out if the site has no unit.
    SoldOutOfOneSite,
    /// Redis does not check whether a click ID was used before.
    ClicksNotNamed,
    /// The origin reads for a click with a different ID than the gateway.
    ClickRenamedAtOrigin,
    /// Redis does not return a click that led nowhere.
    ClickNotReturned,
    /// Redis returns a click again for a repeated call.
    ClickReturnedTwice,
    /// Redis forgets that a click was returned, and uses it for a late read.
    BackForgotten,
    /// The origin writes a limited link to Redis without the clicks counted in SQL.
    ClicksNotSeeded,
    /// The origin does not announce changes to gateways.
    ChangesNotTold,
    /// Redis numbers changes from 1 after a loss, so that gateways cannot distinguish the two streams.
    LostStreamNotNoticed,
    /// The origin does not retry edits that Redis has not followed.
    EditsNotFollowedUp,
    /// SQL counts a repeated batch of clicks again.
    BatchCountedTwice,
    /// Redis does not record active visitors of a waiting room.
    RoomNotCounted,
    /// Redis does not record the positions of visitors in a queue.
    PlacesNotRemembered,
    /// Redis holds an unused admitted position permanently.
    PlacesWaitForEver,
    /// Redis expires an admitted position after its claim time although there was no capacity.
    HoldsForgotten,
    /// Redis ignores the queue state that gateways report.
    GatewaysNotHeard,
    /// Redis resets the queue at each call.
    QueueForgotten,
    /// Redis admits up to the capacity, ignoring the pace.
    PaceNotKept,
}

impl Mutation {
    /// Mutations that simulations of sales detect.
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

    /// Mutations that simulations of two sites detect.
    pub const SITES: &[Self] = &[
        Self::FenceNotRaised,
        Self::FenceNotChecked,
        Self::RebuiltBeforeTransfersEnd,
        Self::LateOutcomeCounts,
        Self::OutcomeCountsTwice,
        Self::AllotmentNotMoved,
        Self::FenceReused,
        Self::DrainRefusesHolders,
        Self::FillerNotRecorded,
        Self::ClosedFenceFollowed,
        Self::SoldOutOfOneSite,
    ];

    /// Mutations that simulations of limits detect.
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

    /// Mutations that simulations of links detect.
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

    /// Mutations that simulations of waiting rooms detect.
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

    /// Whether Redis returns wrong epochs.
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
        let mut all = [
            Self::SALES,
            Self::SITES,
            Self::LIMITS,
            Self::LINKS,
            Self::ROOMS,
        ]
        .into_iter()
        .flatten()
        .copied();
        all.find(|mutation| mutation.to_string() == name)
            .ok_or_else(|| format!("there is no mutation {name}"))
    }
}
