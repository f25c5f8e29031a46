-- Sales, their stock, claims, orders, payments, reservations, draws and blocked users.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../sqlite has the same tables: change both.

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
    -- Since when it takes no orders and is not put on Redis again.
    archived_at_ms   BIGINT,
    -- Since when Redis holds nothing of it.
    cleared_at_ms    BIGINT,
    -- Since when all of it is archived.
    archive_done_at_ms BIGINT,
    -- What `sales.total` counts of them: a top-up as soon as it is asked for, a withdrawal once it is done.
    topped_up          BIGINT NOT NULL DEFAULT 0,
    withdrawn          BIGINT NOT NULL DEFAULT 0,
    listed             BIGINT NOT NULL DEFAULT 0 CHECK (listed IN (0, 1)),
    -- JSON, as gateways read it; NULL: nothing.
    challenge          TEXT,
    -- NULL: the sale stands alone.
    group_id           VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    group_cap          BIGINT,
    -- NULL: the sale has none. Amounts are in the currency's smallest unit; with one goes a currency.
    sku                VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    unit_amount        BIGINT CHECK (unit_amount >= 0),
    currency           VARCHAR(3) CHARACTER SET ascii COLLATE ascii_bin,
    CHECK ((reserve_from_ms IS NULL) = (reserve_until_ms IS NULL)),
    CHECK ((payment = 'hold') = (pay_within_ms IS NOT NULL))
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The catalogue asks for what has not ended.
CREATE INDEX sales_by_end ON sales (ends_at_ms);

CREATE INDEX sales_by_archive ON sales (archive_done_at_ms, ends_at_ms);

CREATE INDEX sales_by_group ON sales (group_id);

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
    ended_at_ms   BIGINT,
    -- The same columns in the same order: orders are copied whole.
    sku           VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    unit_amount   BIGINT CHECK (unit_amount >= 0),
    currency      VARCHAR(3) CHARACTER SET ascii COLLATE ascii_bin,
    -- NULL: none that is known. The same columns in the same order: orders are copied whole.
    click_link    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    click_id      VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A lost shard is rebuilt from its orders.
CREATE INDEX orders_by_claim ON orders (sale_id, shard, generation);

CREATE INDEX orders_by_deadline ON orders (pay_by_ms);

-- What one user has, where Redis knows it otherwise.
CREATE INDEX orders_by_user ON orders (sale_id, user_id);

CREATE INDEX orders_by_sale_and_time ON orders (sale_id, created_at_ms, id);

CREATE INDEX orders_by_user_and_time ON orders (user_id, created_at_ms, id);

CREATE INDEX orders_by_click ON orders (click_link, created_at_ms);

-- The units in a user's unpaid and paid orders of a sale: the row that orders of one user meet at.
CREATE TABLE buyers (
    sale_id VARCHAR(64) NOT NULL,
    user_id VARCHAR(128) NOT NULL,
    units   BIGINT NOT NULL CHECK (units >= 0),
    -- Orders of the user that were not paid in time.
    expired_holds BIGINT NOT NULL DEFAULT 0,
    -- Until when the user may not buy; NULL: may, and Redis knows it.
    cooldown_until_ms BIGINT,
    -- How long orders that the user cancelled had their units, since that last counted as a hold that expired.
    cancelled_hold_ms BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (sale_id, user_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX buyers_by_cooldown ON buyers (cooldown_until_ms);

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
    failed_checks BIGINT NOT NULL DEFAULT 0,
    -- From when on the user is to be checked.
    check_at_ms   BIGINT NOT NULL DEFAULT 0,
    address       VARCHAR(64) NOT NULL DEFAULT '',
    agent         VARCHAR(512) NOT NULL DEFAULT '',
    -- The name under which a user stands in the list of a draw; empty: the sale has none.
    ticket        VARCHAR(32) NOT NULL DEFAULT '',
    -- 0: the draw has not chosen the user, or not yet.
    admitted      BIGINT NOT NULL DEFAULT 1 CHECK (admitted IN (0, 1)),
    -- Of a winner: 1, 2, 3 …
    place         BIGINT,
    PRIMARY KEY (sale_id, user_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX reservations_by_check ON reservations (risk_state, check_at_ms);

CREATE INDEX reservations_by_ticket ON reservations (sale_id, ticket);

CREATE TABLE blocked_users (
    sale_id VARCHAR(64) NOT NULL,
    user_id VARCHAR(128) NOT NULL,
    reason  VARCHAR(200) NOT NULL,
    at_ms   BIGINT NOT NULL,
    PRIMARY KEY (sale_id, user_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- By shard, so that orders of one sale do not all wait for one row.
CREATE TABLE order_counts (
    sale_id        VARCHAR(64) NOT NULL,
    shard          BIGINT NOT NULL,
    unpaid         BIGINT NOT NULL,
    paid           BIGINT NOT NULL,
    cancelled      BIGINT NOT NULL,
    expired        BIGINT NOT NULL,
    -- Of unpaid and paid orders: those that have taken their units from stock, and those that have not.
    units_deducted BIGINT NOT NULL,
    units_deferred BIGINT NOT NULL,
    -- The generations of unpaid and paid orders, summed up modulo 2^31 - 1: Redis keeps the same sum of the orders that
    -- it knows, and if the two differ it knows others.
    checksum       BIGINT NOT NULL,
    PRIMARY KEY (sale_id, shard)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE idempotency_keys (
    sale_id     VARCHAR(64) NOT NULL,
    user_id     VARCHAR(128) NOT NULL,
    -- As the client gave it, without quotes.
    attempt_key VARCHAR(128) NOT NULL,
    order_id    VARCHAR(96) NOT NULL,
    -- SHA-256 of the request's body, in hex: the key counts for this request only.
    body_sha256 VARCHAR(64) NOT NULL,
    PRIMARY KEY (sale_id, user_id, attempt_key)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE payments (
    -- `<order>.p<number>`: by this name the provider speaks of it.
    id            VARCHAR(112) NOT NULL PRIMARY KEY,
    order_id      VARCHAR(96) NOT NULL,
    user_id       VARCHAR(128) NOT NULL,
    state         VARCHAR(16) NOT NULL
        CHECK (state IN ('started', 'paid', 'failed', 'refund_due', 'refunded')),
    -- Why money must be, or was, given back; empty otherwise.
    reason        VARCHAR(32) NOT NULL DEFAULT '',
    started_at_ms BIGINT NOT NULL,
    decided_at_ms BIGINT,
    -- What the operator who gave money back wrote down, such as the provider's name of the refund.
    reference     VARCHAR(128) NOT NULL DEFAULT ''
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX payments_by_order ON payments (order_id);

CREATE INDEX payments_by_state ON payments (state, decided_at_ms);

-- Each event counts once, however often it is delivered.
CREATE TABLE payment_events (
    event_id    VARCHAR(128) NOT NULL PRIMARY KEY,
    payment_id  VARCHAR(112) NOT NULL,
    -- SHA-256 of what was received, in hex.
    body_sha256 VARCHAR(64) NOT NULL,
    at_ms       BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Decided orders of archived sales: the same columns as `orders`, in the same order.
CREATE TABLE orders_archive (
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
    ended_at_ms   BIGINT,
    sku           VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    unit_amount   BIGINT CHECK (unit_amount >= 0),
    currency      VARCHAR(3) CHARACTER SET ascii COLLATE ascii_bin,
    click_link    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    click_id      VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX orders_archive_by_sale ON orders_archive (sale_id);

CREATE INDEX orders_archive_by_sale_and_time ON orders_archive (sale_id, created_at_ms, id);

CREATE INDEX orders_archive_by_user_and_time ON orders_archive (user_id, created_at_ms, id);

CREATE INDEX orders_archive_by_click ON orders_archive (click_link, created_at_ms);

CREATE TABLE stock_changes (
    sale_id     VARCHAR(64) NOT NULL,
    -- Only grows within a sale: each shard in Redis remembers the last that came.
    number      BIGINT NOT NULL,
    -- By which the operator names it.
    change_key  VARCHAR(128) NOT NULL,
    -- Added; below 0: to be withdrawn, as far as nobody holds them.
    wanted      BIGINT NOT NULL CHECK (wanted <> 0),
    -- How many of them each shard adds or gives, commas between.
    shares      VARCHAR(1024) NOT NULL,
    -- What has come of it in all; NULL: not every shard has answered.
    units       BIGINT,
    asked_at_ms BIGINT NOT NULL,
    done_at_ms  BIGINT,
    PRIMARY KEY (sale_id, number),
    CHECK ((units IS NULL) = (done_at_ms IS NULL))
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE UNIQUE INDEX stock_changes_by_key ON stock_changes (sale_id, change_key);

CREATE INDEX stock_changes_by_end ON stock_changes (done_at_ms);

CREATE TABLE user_list (
    user_id  VARCHAR(128) NOT NULL PRIMARY KEY,
    status   VARCHAR(16) NOT NULL CHECK (status IN ('blocked', 'allowed')),
    reason   VARCHAR(255) NOT NULL,
    -- Who says so, as they name themselves.
    operator VARCHAR(255) NOT NULL,
    at_ms    BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX user_list_by_status ON user_list (status, user_id);

-- Every change of it: only ever appended to.
CREATE TABLE user_list_log (
    id       BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    user_id  VARCHAR(128) NOT NULL,
    -- 'none': the user was taken off it.
    status   VARCHAR(16) NOT NULL CHECK (status IN ('blocked', 'allowed', 'none')),
    reason   VARCHAR(255) NOT NULL,
    operator VARCHAR(255) NOT NULL,
    at_ms    BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX user_list_log_by_user ON user_list_log (user_id, id);

CREATE TABLE payload_schemas (
    sale_id  VARCHAR(64) NOT NULL PRIMARY KEY,
    -- A JSON Schema.
    document TEXT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Apart from the orders, which every search reads; it stays when an order moves to the archive.
CREATE TABLE order_payloads (
    order_id VARCHAR(96) NOT NULL PRIMARY KEY,
    payload  TEXT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE draws (
    sale_id        VARCHAR(64) NOT NULL PRIMARY KEY,
    -- What decides, in hex: secret until the draw is done.
    seed           VARCHAR(64) NOT NULL,
    -- What is told of it before anybody reserves.
    commitment     VARCHAR(64) NOT NULL,
    winners        BIGINT NOT NULL CHECK (winners >= 1),
    -- Since when nobody enters or leaves. The steps behind it are in the order of the columns.
    closed_at_ms   BIGINT,
    entries        BIGINT,
    list_sha256    VARCHAR(64),
    drawn_at_ms    BIGINT,
    -- Since when gateways know the winners.
    admitted_at_ms BIGINT,
    CHECK ((entries IS NULL) = (list_sha256 IS NULL))
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The units in a user's unpaid and paid orders of a group's sales: the row that they meet at.
CREATE TABLE group_buyers (
    group_id VARCHAR(64) NOT NULL,
    user_id  VARCHAR(128) NOT NULL,
    units    BIGINT NOT NULL CHECK (units >= 0),
    PRIMARY KEY (group_id, user_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
