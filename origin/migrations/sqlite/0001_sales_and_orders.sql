-- Sales, their stock, the fate of each claim, and orders.
-- Times (`…_ms`) are milliseconds since the Unix epoch.

CREATE TABLE sales (
    id            TEXT    NOT NULL PRIMARY KEY,
    title         TEXT    NOT NULL,
    total         INTEGER NOT NULL CHECK (total >= 0),
    shards        INTEGER NOT NULL CHECK (shards >= 1),
    user_cap      INTEGER NOT NULL CHECK (user_cap >= 1),
    starts_at_ms  INTEGER NOT NULL,
    ends_at_ms    INTEGER NOT NULL CHECK (ends_at_ms > starts_at_ms),
    state         TEXT    NOT NULL CHECK (state IN ('open', 'closed')),
    created_at_ms INTEGER NOT NULL,
    -- When its stock was first put on Redis; NULL until then. Gateways see only warmed sales.
    warmed_at_ms  INTEGER
) STRICT;

-- The catalogue asks for what has not ended.
CREATE INDEX sales_by_end ON sales (ends_at_ms);

-- Apart from `sales`: the one row of a sale that every order changes.
CREATE TABLE stock (
    sale_id   TEXT    NOT NULL PRIMARY KEY REFERENCES sales (id),
    remaining INTEGER NOT NULL CHECK (remaining >= 0)
) STRICT;

-- A claim's fate is decided once: whoever inserts its row first. An order and a release of one
-- claim can never both be.
CREATE TABLE claim_outcomes (
    claim_id TEXT    NOT NULL PRIMARY KEY,
    -- No reference to `sales`: a claim on a sale that SQL does not know has a fate, too.
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
    id            TEXT    NOT NULL PRIMARY KEY REFERENCES claim_outcomes (claim_id),
    sale_id       TEXT    NOT NULL REFERENCES sales (id),
    user_id       TEXT    NOT NULL,
    quantity      INTEGER NOT NULL CHECK (quantity >= 1),
    created_at_ms INTEGER NOT NULL
) STRICT;

-- Counting a sale's orders and units reads this index alone.
CREATE INDEX orders_by_sale ON orders (sale_id, quantity);

-- Each change of a sale's stock, with its reason: only ever appended to.
CREATE TABLE change_log (
    id       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    sale_id  TEXT    NOT NULL REFERENCES sales (id),
    order_id TEXT    NOT NULL REFERENCES orders (id),
    -- Added to `stock.remaining`: negative for an order.
    units    INTEGER NOT NULL,
    reason   TEXT    NOT NULL,
    at_ms    INTEGER NOT NULL
) STRICT;
