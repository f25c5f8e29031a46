-- Sales, their stock, the fate of each claim, orders, reservations and blocked users.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- The tables of migrations/sqlite are the same: change both.
-- Written for what MySQL, MariaDB, TiDB and Vitess have in common: no foreign keys, no partial
-- indexes. Lengths are those of the ids that the origin takes.

CREATE TABLE sales (
    id               VARCHAR(64) NOT NULL PRIMARY KEY,
    title            VARCHAR(200) NOT NULL,
    total            BIGINT NOT NULL CHECK (total >= 0),
    shards           BIGINT NOT NULL CHECK (shards >= 1),
    user_cap         BIGINT NOT NULL CHECK (user_cap >= 1),
    starts_at_ms     BIGINT NOT NULL,
    ends_at_ms       BIGINT NOT NULL CHECK (ends_at_ms > starts_at_ms),
    -- Whether gateways ask for an order token.
    token            BIGINT NOT NULL CHECK (token IN (0, 1)),
    -- Both NULL: nobody needs to reserve.
    reserve_from_ms  BIGINT,
    reserve_until_ms BIGINT,
    payment          VARCHAR(16) NOT NULL CHECK (payment IN ('at_order', 'hold', 'at_payment')),
    -- How long an unpaid order keeps its units; with `hold` only.
    pay_within_ms    BIGINT CHECK (pay_within_ms >= 1),
    -- How long before its start it is warmed by itself; NULL: by hand only.
    warm_before_ms   BIGINT CHECK (warm_before_ms >= 0),
    state            VARCHAR(16) NOT NULL CHECK (state IN ('open', 'shadow', 'drain', 'closed')),
    skip_risk        BIGINT NOT NULL CHECK (skip_risk IN (0, 1)),
    skip_reservation BIGINT NOT NULL CHECK (skip_reservation IN (0, 1)),
    static_page      BIGINT NOT NULL CHECK (static_page IN (0, 1)),
    created_at_ms    BIGINT NOT NULL,
    -- When its stock was first put on Redis; NULL until then. Gateways see only warmed sales.
    warmed_at_ms     BIGINT,
    CHECK ((reserve_from_ms IS NULL) = (reserve_until_ms IS NULL)),
    CHECK ((payment = 'hold') = (pay_within_ms IS NOT NULL))
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The catalogue asks for what has not ended.
CREATE INDEX sales_by_end ON sales (ends_at_ms);

-- Apart from `sales`: the one row of a sale that every order changes.
CREATE TABLE stock (
    sale_id   VARCHAR(64) NOT NULL PRIMARY KEY,
    remaining BIGINT NOT NULL CHECK (remaining >= 0)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A claim's fate is decided once: whoever inserts its row first. An order and a release of one
-- claim can never both be.
CREATE TABLE claim_outcomes (
    claim_id VARCHAR(96) NOT NULL PRIMARY KEY,
    -- A claim on a sale that SQL does not know has a fate, too.
    sale_id  VARCHAR(64) NOT NULL,
    -- Whose claim it was: a claim of another user that bears the same name is not this one.
    user_id  VARCHAR(128) NOT NULL,
    outcome  VARCHAR(16) NOT NULL CHECK (outcome IN ('ordered', 'released')),
    -- 1: released since SQL had no unit behind it, so its units do not come back in Redis.
    void     BIGINT NOT NULL DEFAULT 0 CHECK (void IN (0, 1)),
    at_ms    BIGINT NOT NULL,
    CHECK (void = 0 OR outcome = 'released')
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX claim_outcomes_by_sale ON claim_outcomes (sale_id);

-- An order's id is its claim's.
CREATE TABLE orders (
    id            VARCHAR(96) NOT NULL PRIMARY KEY,
    sale_id       VARCHAR(64) NOT NULL,
    -- With `generation`, which claim of Redis it came from.
    shard         BIGINT NOT NULL,
    generation    BIGINT NOT NULL,
    user_id       VARCHAR(128) NOT NULL,
    quantity      BIGINT NOT NULL CHECK (quantity >= 1),
    status        VARCHAR(16) NOT NULL CHECK (status IN ('unpaid', 'paid', 'cancelled', 'expired')),
    -- 1: its units were taken from `stock`, and given back if it was cancelled or expired.
    deducted      BIGINT NOT NULL CHECK (deducted IN (0, 1)),
    -- Until when it must be paid; NULL once it is decided, so that the index holds open ones only.
    pay_by_ms     BIGINT,
    created_at_ms BIGINT NOT NULL,
    paid_at_ms    BIGINT,
    -- When it was cancelled or expired.
    ended_at_ms   BIGINT
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A lost shard is rebuilt from its orders.
CREATE INDEX orders_by_claim ON orders (sale_id, shard, generation);

CREATE INDEX orders_by_deadline ON orders (pay_by_ms);

-- The units in a user's unpaid and paid orders of a sale: the row that orders of one user meet at.
CREATE TABLE buyers (
    sale_id VARCHAR(64) NOT NULL,
    user_id VARCHAR(128) NOT NULL,
    units   BIGINT NOT NULL CHECK (units >= 0),
    PRIMARY KEY (sale_id, user_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Orders whose last change Redis may not have followed yet. A new order is not here: its claim
-- stays among Redis' own open claims until Redis has followed.
CREATE TABLE unfollowed_orders (
    order_id VARCHAR(96) NOT NULL PRIMARY KEY,
    at_ms    BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX unfollowed_orders_by_age ON unfollowed_orders (at_ms);

-- Each change of a sale's stock, with its reason: only ever appended to.
CREATE TABLE change_log (
    id       BIGINT  NOT NULL AUTO_INCREMENT PRIMARY KEY,
    sale_id  VARCHAR(64) NOT NULL,
    order_id VARCHAR(96) NOT NULL,
    -- Added to `stock.remaining`: negative when units are taken, 0 for an order that takes none.
    units    BIGINT NOT NULL,
    reason   VARCHAR(200) NOT NULL CHECK (reason IN ('order', 'pay', 'cancel', 'expire')),
    at_ms    BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX change_log_by_sale ON change_log (sale_id);

CREATE TABLE reservations (
    sale_id    VARCHAR(64) NOT NULL,
    user_id    VARCHAR(128) NOT NULL,
    at_ms      BIGINT NOT NULL,
    risk_state VARCHAR(16) NOT NULL CHECK (risk_state IN ('pending', 'scored')),
    -- What the risk check said; NULL while it is pending.
    score      BIGINT,
    PRIMARY KEY (sale_id, user_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX reservations_by_risk ON reservations (risk_state, at_ms);

CREATE TABLE blocked_users (
    sale_id VARCHAR(64) NOT NULL,
    user_id VARCHAR(128) NOT NULL,
    reason  VARCHAR(200) NOT NULL,
    at_ms   BIGINT NOT NULL,
    PRIMARY KEY (sale_id, user_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What holds for all sales.
CREATE TABLE settings (
    name  VARCHAR(64) NOT NULL PRIMARY KEY,
    value VARCHAR(255) NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
