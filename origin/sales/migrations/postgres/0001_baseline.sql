-- Sales, their stock, claims, orders, payments, reservations, draws and blocked users.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../sqlite and ../mysql have the same tables: change all.

CREATE TABLE sales (
    id               TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    title            TEXT COLLATE "C" NOT NULL,
    total            BIGINT NOT NULL CHECK (total >= 0),
    shards           BIGINT NOT NULL CHECK (shards >= 1),
    user_cap         BIGINT NOT NULL CHECK (user_cap >= 1),
    starts_at_ms     BIGINT NOT NULL,
    ends_at_ms       BIGINT NOT NULL CHECK (ends_at_ms > starts_at_ms),
    -- Whether gateways require an order token.
    token            BIGINT NOT NULL CHECK (token IN (0, 1)),
    -- Both NULL: no reservation is required.
    reserve_from_ms  BIGINT,
    reserve_until_ms BIGINT,
    payment          TEXT COLLATE "C" NOT NULL CHECK (payment IN ('at_order', 'hold', 'at_payment')),
    -- How long an unpaid order keeps its units; only with `hold`.
    pay_within_ms    BIGINT CHECK (pay_within_ms >= 1),
    -- How long before its start it is warmed automatically; NULL: only manually.
    warm_before_ms   BIGINT CHECK (warm_before_ms >= 0),
    state            TEXT COLLATE "C" NOT NULL CHECK (state IN ('open', 'shadow', 'drain', 'closed')),
    skip_risk        BIGINT NOT NULL CHECK (skip_risk IN (0, 1)),
    skip_reservation BIGINT NOT NULL CHECK (skip_reservation IN (0, 1)),
    static_page      BIGINT NOT NULL CHECK (static_page IN (0, 1)),
    created_at_ms    BIGINT NOT NULL,
    -- The time at which its stock was first loaded to Redis; NULL before. Gateways see only warmed sales.
    warmed_at_ms     BIGINT,
    -- The time since which it accepts no orders and is not loaded to Redis.
    archived_at_ms   BIGINT,
    -- The time since which Redis contains none of its data.
    cleared_at_ms    BIGINT,
    -- The time since which it is completely archived.
    archive_done_at_ms BIGINT,
    -- The parts of stock changes that `sales.total` includes: an addition when it is requested, a withdrawal when it is
    -- done.
    topped_up          BIGINT NOT NULL DEFAULT 0,
    withdrawn          BIGINT NOT NULL DEFAULT 0,
    listed             BIGINT NOT NULL DEFAULT 0 CHECK (listed IN (0, 1)),
    -- JSON for gateways; NULL: none.
    challenge          TEXT COLLATE "C",
    -- NULL: the sale belongs to no group.
    group_id           TEXT COLLATE "C",
    group_cap          BIGINT,
    -- NULL: none. Amounts are in the currency's smallest unit. An amount requires a currency.
    sku                TEXT COLLATE "C",
    unit_amount        BIGINT CHECK (unit_amount >= 0),
    currency           TEXT COLLATE "C",
    CHECK ((reserve_from_ms IS NULL) = (reserve_until_ms IS NULL)),
    CHECK ((payment = 'hold') = (pay_within_ms IS NOT NULL))
);

-- The catalogue reads sales that have not ended.
CREATE INDEX sales_by_end ON sales (ends_at_ms);

CREATE INDEX sales_by_archive ON sales (archive_done_at_ms, ends_at_ms);

CREATE INDEX sales_by_group ON sales (group_id) WHERE group_id IS NOT NULL;

-- Separate from `sales`: the only row of a sale that every order changes.
CREATE TABLE stock (
    sale_id   TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    remaining BIGINT NOT NULL CHECK (remaining >= 0)
);

-- The outcome of a claim is decided once, by the first INSERT of its row. So a claim never becomes both an order and a
-- release.
CREATE TABLE claim_outcomes (
    claim_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- Claims on sales that are unknown to SQL have outcomes, too.
    sale_id  TEXT COLLATE "C" NOT NULL,
    -- The claim's user: a claim of another user with the same ID is a different claim.
    user_id  TEXT COLLATE "C" NOT NULL,
    outcome  TEXT COLLATE "C" NOT NULL CHECK (outcome IN ('ordered', 'released')),
    -- 1: released because SQL had no units for it, so its units do not return to the stock in Redis.
    void     BIGINT NOT NULL DEFAULT 0 CHECK (void IN (0, 1)),
    at_ms    BIGINT NOT NULL,
    CHECK (void = 0 OR outcome = 'released')
);

CREATE INDEX claim_outcomes_by_sale ON claim_outcomes (sale_id);

-- The ID of an order is the ID of its claim.
CREATE TABLE orders (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    sale_id       TEXT COLLATE "C" NOT NULL,
    -- Identifies the claim in Redis, together with `generation`.
    shard         BIGINT NOT NULL,
    generation    BIGINT NOT NULL,
    user_id       TEXT COLLATE "C" NOT NULL,
    quantity      BIGINT NOT NULL CHECK (quantity >= 1),
    status        TEXT COLLATE "C" NOT NULL CHECK (status IN ('unpaid', 'paid', 'cancelled', 'expired')),
    -- 1: its units were taken from `stock`. They are returned when it is cancelled or expires.
    deducted      BIGINT NOT NULL CHECK (deducted IN (0, 1)),
    -- The deadline of the payment; NULL for decided orders, so that the index contains only open ones.
    pay_by_ms     BIGINT,
    created_at_ms BIGINT NOT NULL,
    paid_at_ms    BIGINT,
    -- The time of its cancellation or expiry.
    ended_at_ms   BIGINT,
    -- `orders_archive` has the same columns in the same order, because orders are copied as whole rows.
    sku           TEXT COLLATE "C",
    unit_amount   BIGINT CHECK (unit_amount >= 0),
    currency      TEXT COLLATE "C",
    -- NULL: unknown. `orders_archive` has the same columns in the same order, because orders are copied as whole rows.
    click_link    TEXT COLLATE "C",
    click_id      TEXT COLLATE "C"
);

-- For the rebuild of a lost shard.
CREATE INDEX orders_by_claim ON orders (sale_id, shard, generation);

CREATE INDEX orders_by_deadline ON orders (pay_by_ms) WHERE pay_by_ms IS NOT NULL;

-- For the orders of one user, if Redis has different data.
CREATE INDEX orders_by_user ON orders (sale_id, user_id);

CREATE INDEX orders_by_sale_and_time ON orders (sale_id, created_at_ms, id);

CREATE INDEX orders_by_user_and_time ON orders (user_id, created_at_ms, id);

CREATE INDEX orders_by_click ON orders (click_link, created_at_ms) WHERE click_link IS NOT NULL;

-- The units in a user's unpaid and paid orders of a sale. Orders of one user lock this row.
CREATE TABLE buyers (
    sale_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    units   BIGINT NOT NULL CHECK (units >= 0),
    -- Orders of the user that expired without payment.
    expired_holds BIGINT NOT NULL DEFAULT 0,
    -- The user may not buy before this time; NULL: no block, and Redis has applied that.
    cooldown_until_ms BIGINT,
    -- The total time that units were in orders that the user cancelled, since it last counted as an expired hold.
    cancelled_hold_ms BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (sale_id, user_id)
);

CREATE INDEX buyers_by_cooldown ON buyers (cooldown_until_ms) WHERE cooldown_until_ms IS NOT NULL;

-- Orders whose last change may be missing in Redis. New orders are not listed: their claims stay in the open claims of
-- Redis until Redis has applied the order.
CREATE TABLE unfollowed_orders (
    order_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    at_ms    BIGINT NOT NULL
);

CREATE INDEX unfollowed_orders_by_age ON unfollowed_orders (at_ms);

-- Each change of a sale's stock, with its reason: append-only.
CREATE TABLE change_log (
    id       BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    sale_id  TEXT COLLATE "C" NOT NULL,
    order_id TEXT COLLATE "C" NOT NULL,
    -- The change of `stock.remaining`: negative if units are taken, 0 for an order that takes none.
    units    BIGINT NOT NULL,
    reason   TEXT COLLATE "C" NOT NULL CHECK (reason IN ('order', 'pay', 'cancel', 'expire')),
    at_ms    BIGINT NOT NULL
);

CREATE INDEX change_log_by_sale ON change_log (sale_id);

CREATE TABLE reservations (
    sale_id    TEXT COLLATE "C" NOT NULL,
    user_id    TEXT COLLATE "C" NOT NULL,
    at_ms      BIGINT NOT NULL,
    risk_state TEXT COLLATE "C" NOT NULL CHECK (risk_state IN ('pending', 'scored')),
    -- The result of the risk check; NULL while it is pending.
    score      BIGINT,
    failed_checks BIGINT NOT NULL DEFAULT 0,
    -- The earliest time of the next check.
    check_at_ms   BIGINT NOT NULL DEFAULT 0,
    address       TEXT COLLATE "C" NOT NULL DEFAULT '',
    agent         TEXT COLLATE "C" NOT NULL DEFAULT '',
    -- The user's ticket in the list of a draw; empty: the sale has no draw.
    ticket        TEXT COLLATE "C" NOT NULL DEFAULT '',
    -- 0: the draw has not chosen the user (yet).
    admitted      BIGINT NOT NULL DEFAULT 1 CHECK (admitted IN (0, 1)),
    -- For winners: 1, 2, 3, …
    place         BIGINT,
    PRIMARY KEY (sale_id, user_id)
);

CREATE INDEX reservations_by_check ON reservations (risk_state, check_at_ms);

CREATE INDEX reservations_by_ticket ON reservations (sale_id, ticket);

CREATE TABLE blocked_users (
    sale_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    reason  TEXT COLLATE "C" NOT NULL,
    at_ms   BIGINT NOT NULL,
    PRIMARY KEY (sale_id, user_id)
);

-- By shard, so that orders of one sale do not all lock the same row.
CREATE TABLE order_counts (
    sale_id        TEXT COLLATE "C" NOT NULL,
    shard          BIGINT NOT NULL,
    unpaid         BIGINT NOT NULL,
    paid           BIGINT NOT NULL,
    cancelled      BIGINT NOT NULL,
    expired        BIGINT NOT NULL,
    -- Units in unpaid and paid orders: those taken from stock, and those not taken.
    units_deducted BIGINT NOT NULL,
    units_deferred BIGINT NOT NULL,
    -- The sum of the generations of unpaid and paid orders modulo 2^31 - 1. Redis computes the same sum over its
    -- orders. Different sums mean different orders.
    checksum       BIGINT NOT NULL,
    PRIMARY KEY (sale_id, shard)
);

CREATE TABLE idempotency_keys (
    sale_id     TEXT COLLATE "C" NOT NULL,
    user_id     TEXT COLLATE "C" NOT NULL,
    -- The client's key without quotes.
    attempt_key TEXT COLLATE "C" NOT NULL,
    order_id    TEXT COLLATE "C" NOT NULL,
    -- SHA-256 of the request's body, in hex: the key is valid only for this request.
    body_sha256 TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (sale_id, user_id, attempt_key)
);

CREATE TABLE payments (
    -- `<order>.p<number>`: the payment's ID at the provider.
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    order_id      TEXT COLLATE "C" NOT NULL,
    user_id       TEXT COLLATE "C" NOT NULL,
    state         TEXT COLLATE "C" NOT NULL
        CHECK (state IN ('started', 'paid', 'failed', 'refund_due', 'refunded')),
    -- The reason for a due or finished refund; otherwise empty.
    reason        TEXT COLLATE "C" NOT NULL DEFAULT '',
    started_at_ms BIGINT NOT NULL,
    decided_at_ms BIGINT,
    -- The operator's note about the refund, such as the provider's reference.
    reference     TEXT COLLATE "C" NOT NULL DEFAULT ''
);

CREATE INDEX payments_by_order ON payments (order_id);

CREATE INDEX payments_by_state ON payments (state, decided_at_ms);

-- Received events of the provider, to count repeated deliveries once.
CREATE TABLE payment_events (
    event_id    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    payment_id  TEXT COLLATE "C" NOT NULL,
    -- SHA-256 of the received body, in hex.
    body_sha256 TEXT COLLATE "C" NOT NULL,
    at_ms       BIGINT NOT NULL
);

-- Decided orders of archived sales: the same columns as in `orders`, in the same order.
CREATE TABLE orders_archive (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    sale_id       TEXT COLLATE "C" NOT NULL,
    -- Identifies the claim in Redis, together with `generation`.
    shard         BIGINT NOT NULL,
    generation    BIGINT NOT NULL,
    user_id       TEXT COLLATE "C" NOT NULL,
    quantity      BIGINT NOT NULL CHECK (quantity >= 1),
    status        TEXT COLLATE "C" NOT NULL CHECK (status IN ('unpaid', 'paid', 'cancelled', 'expired')),
    -- 1: its units were taken from `stock`. They are returned when it is cancelled or expires.
    deducted      BIGINT NOT NULL CHECK (deducted IN (0, 1)),
    -- The deadline of the payment; NULL for decided orders, so that the index contains only open ones.
    pay_by_ms     BIGINT,
    created_at_ms BIGINT NOT NULL,
    paid_at_ms    BIGINT,
    -- The time of its cancellation or expiry.
    ended_at_ms   BIGINT,
    sku           TEXT COLLATE "C",
    unit_amount   BIGINT CHECK (unit_amount >= 0),
    currency      TEXT COLLATE "C",
    click_link    TEXT COLLATE "C",
    click_id      TEXT COLLATE "C"
);

CREATE INDEX orders_archive_by_sale ON orders_archive (sale_id);

CREATE INDEX orders_archive_by_sale_and_time ON orders_archive (sale_id, created_at_ms, id);

CREATE INDEX orders_archive_by_user_and_time ON orders_archive (user_id, created_at_ms, id);

CREATE INDEX orders_archive_by_click ON orders_archive (click_link, created_at_ms) WHERE click_link IS NOT NULL;

CREATE TABLE stock_changes (
    sale_id     TEXT COLLATE "C" NOT NULL,
    -- Grows within a sale. Each shard in Redis stores the last one.
    number      BIGINT NOT NULL,
    -- The operator's idempotency key.
    change_key  TEXT COLLATE "C" NOT NULL,
    -- Units to add; negative: units to withdraw from those that are not held.
    requested      BIGINT NOT NULL CHECK (requested <> 0),
    -- The units of each shard, separated by commas.
    shares      TEXT COLLATE "C" NOT NULL,
    -- The units changed in total; NULL until every shard has answered.
    units       BIGINT,
    asked_at_ms BIGINT NOT NULL,
    done_at_ms  BIGINT,
    PRIMARY KEY (sale_id, number),
    CHECK ((units IS NULL) = (done_at_ms IS NULL))
);

CREATE UNIQUE INDEX stock_changes_by_key ON stock_changes (sale_id, change_key);

CREATE INDEX stock_changes_by_end ON stock_changes (done_at_ms);

CREATE TABLE user_list (
    user_id  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    status   TEXT COLLATE "C" NOT NULL CHECK (status IN ('blocked', 'allowed')),
    reason   TEXT COLLATE "C" NOT NULL,
    -- The operator's name, as given by the operator.
    operator TEXT COLLATE "C" NOT NULL,
    at_ms    BIGINT NOT NULL
);

CREATE INDEX user_list_by_status ON user_list (status, user_id);

-- Every change of the list: append-only.
CREATE TABLE user_list_log (
    id       BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    user_id  TEXT COLLATE "C" NOT NULL,
    -- 'none': the user was removed from the list.
    status   TEXT COLLATE "C" NOT NULL CHECK (status IN ('blocked', 'allowed', 'none')),
    reason   TEXT COLLATE "C" NOT NULL,
    operator TEXT COLLATE "C" NOT NULL,
    at_ms    BIGINT NOT NULL
);

CREATE INDEX user_list_log_by_user ON user_list_log (user_id, id);

CREATE TABLE payload_schemas (
    sale_id  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- A JSON Schema.
    document TEXT COLLATE "C" NOT NULL
);

-- Separate from the orders, which every search reads. The row stays when an order moves to the archive.
CREATE TABLE order_payloads (
    order_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    payload  TEXT COLLATE "C" NOT NULL
);

CREATE TABLE draws (
    sale_id        TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- The seed of the draw, in hex: secret until the draw is done.
    seed           TEXT COLLATE "C" NOT NULL,
    -- The commitment to the seed, published before the first reservation.
    commitment     TEXT COLLATE "C" NOT NULL,
    winners        BIGINT NOT NULL CHECK (winners >= 1),
    -- The time since which reservations are closed. The following columns are the further steps, in order.
    closed_at_ms   BIGINT,
    entries        BIGINT,
    list_sha256    TEXT COLLATE "C",
    drawn_at_ms    BIGINT,
    -- The time since which gateways have the winners.
    admitted_at_ms BIGINT,
    CHECK ((entries IS NULL) = (list_sha256 IS NULL))
);

-- The units in a user's unpaid and paid orders of a group's sales. Orders of one user lock this row.
CREATE TABLE group_buyers (
    group_id TEXT COLLATE "C" NOT NULL,
    user_id  TEXT COLLATE "C" NOT NULL,
    units    BIGINT NOT NULL CHECK (units >= 0),
    PRIMARY KEY (group_id, user_id)
);
