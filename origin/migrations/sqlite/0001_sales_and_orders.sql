-- Sales, their stock, the fate of each claim, orders, reservations and blocked users.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- The tables of migrations/mysql are the same: change both.

CREATE TABLE sales (
    id               TEXT    NOT NULL PRIMARY KEY,
    title            TEXT    NOT NULL,
    total            INTEGER NOT NULL CHECK (total >= 0),
    shards           INTEGER NOT NULL CHECK (shards >= 1),
    user_cap         INTEGER NOT NULL CHECK (user_cap >= 1),
    starts_at_ms     INTEGER NOT NULL,
    ends_at_ms       INTEGER NOT NULL CHECK (ends_at_ms > starts_at_ms),
    -- Whether gateways ask for an order token.
    token            INTEGER NOT NULL CHECK (token IN (0, 1)),
    -- Both NULL: nobody needs to reserve.
    reserve_from_ms  INTEGER,
    reserve_until_ms INTEGER,
    payment          TEXT    NOT NULL CHECK (payment IN ('at_order', 'hold', 'at_payment')),
    -- How long an unpaid order keeps its units; with `hold` only.
    pay_within_ms    INTEGER CHECK (pay_within_ms >= 1),
    -- How long before its start it is warmed by itself; NULL: by hand only.
    warm_before_ms   INTEGER CHECK (warm_before_ms >= 0),
    state            TEXT    NOT NULL CHECK (state IN ('open', 'shadow', 'drain', 'closed')),
    skip_risk        INTEGER NOT NULL CHECK (skip_risk IN (0, 1)),
    skip_reservation INTEGER NOT NULL CHECK (skip_reservation IN (0, 1)),
    static_page      INTEGER NOT NULL CHECK (static_page IN (0, 1)),
    created_at_ms    INTEGER NOT NULL,
    -- When its stock was first put on Redis; NULL until then. Gateways see only warmed sales.
    warmed_at_ms     INTEGER,
    CHECK ((reserve_from_ms IS NULL) = (reserve_until_ms IS NULL)),
    CHECK ((payment = 'hold') = (pay_within_ms IS NOT NULL))
) STRICT;

-- The catalogue asks for what has not ended.
CREATE INDEX sales_by_end ON sales (ends_at_ms);

-- Apart from `sales`: the one row of a sale that every order changes.
CREATE TABLE stock (
    sale_id   TEXT    NOT NULL PRIMARY KEY,
    remaining INTEGER NOT NULL CHECK (remaining >= 0)
) STRICT;

-- A claim's fate is decided once: whoever inserts its row first. An order and a release of one
-- claim can never both be.
CREATE TABLE claim_outcomes (
    claim_id TEXT    NOT NULL PRIMARY KEY,
    -- A claim on a sale that SQL does not know has a fate, too.
    sale_id  TEXT    NOT NULL,
    -- Whose claim it was: a claim of another user that bears the same name is not this one.
    user_id  TEXT    NOT NULL,
    outcome  TEXT    NOT NULL CHECK (outcome IN ('ordered', 'released')),
    -- 1: released since SQL had no unit behind it, so its units do not come back in Redis.
    void     INTEGER NOT NULL DEFAULT 0 CHECK (void IN (0, 1)),
    at_ms    INTEGER NOT NULL,
    CHECK (void = 0 OR outcome = 'released')
) STRICT;

CREATE INDEX claim_outcomes_by_sale ON claim_outcomes (sale_id);

-- An order's id is its claim's.
CREATE TABLE orders (
    id            TEXT    NOT NULL PRIMARY KEY,
    sale_id       TEXT    NOT NULL,
    -- With `generation`, which claim of Redis it came from.
    shard         INTEGER NOT NULL,
    generation    INTEGER NOT NULL,
    user_id       TEXT    NOT NULL,
    quantity      INTEGER NOT NULL CHECK (quantity >= 1),
    status        TEXT    NOT NULL CHECK (status IN ('unpaid', 'paid', 'cancelled', 'expired')),
    -- 1: its units were taken from `stock`, and given back if it was cancelled or expired.
    deducted      INTEGER NOT NULL CHECK (deducted IN (0, 1)),
    -- Until when it must be paid; NULL once it is decided, so that the index holds open ones only.
    pay_by_ms     INTEGER,
    created_at_ms INTEGER NOT NULL,
    paid_at_ms    INTEGER,
    -- When it was cancelled or expired.
    ended_at_ms   INTEGER
) STRICT;

-- A lost shard is rebuilt from its orders.
CREATE INDEX orders_by_claim ON orders (sale_id, shard, generation);

CREATE INDEX orders_by_deadline ON orders (pay_by_ms) WHERE pay_by_ms IS NOT NULL;

-- The units in a user's unpaid and paid orders of a sale: the row that orders of one user meet at.
CREATE TABLE buyers (
    sale_id TEXT    NOT NULL,
    user_id TEXT    NOT NULL,
    units   INTEGER NOT NULL CHECK (units >= 0),
    PRIMARY KEY (sale_id, user_id)
) STRICT, WITHOUT ROWID;

-- Orders whose last change Redis may not have followed yet. A new order is not here: its claim
-- stays among Redis' own open claims until Redis has followed.
CREATE TABLE unfollowed_orders (
    order_id TEXT    NOT NULL PRIMARY KEY,
    at_ms    INTEGER NOT NULL
) STRICT;

CREATE INDEX unfollowed_orders_by_age ON unfollowed_orders (at_ms);

-- Each change of a sale's stock, with its reason: only ever appended to.
CREATE TABLE change_log (
    id       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    sale_id  TEXT    NOT NULL,
    order_id TEXT    NOT NULL,
    -- Added to `stock.remaining`: negative when units are taken, 0 for an order that takes none.
    units    INTEGER NOT NULL,
    reason   TEXT    NOT NULL CHECK (reason IN ('order', 'pay', 'cancel', 'expire')),
    at_ms    INTEGER NOT NULL
) STRICT;

CREATE INDEX change_log_by_sale ON change_log (sale_id);

CREATE TABLE reservations (
    sale_id    TEXT    NOT NULL,
    user_id    TEXT    NOT NULL,
    at_ms      INTEGER NOT NULL,
    risk_state TEXT    NOT NULL CHECK (risk_state IN ('pending', 'scored')),
    -- What the risk check said; NULL while it is pending.
    score      INTEGER,
    PRIMARY KEY (sale_id, user_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX reservations_by_risk ON reservations (risk_state, at_ms);

CREATE TABLE blocked_users (
    sale_id TEXT    NOT NULL,
    user_id TEXT    NOT NULL,
    reason  TEXT    NOT NULL,
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (sale_id, user_id)
) STRICT, WITHOUT ROWID;

-- What holds for all sales.
CREATE TABLE settings (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
