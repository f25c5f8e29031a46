-- How many orders a sale has, kept and not counted: a sale may have a million.
-- The tables of migrations/sqlite are the same: change both.

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

INSERT INTO order_counts
    (sale_id, shard, unpaid, paid, cancelled, expired, units_deducted, units_deferred, checksum)
SELECT sale_id, shard,
    SUM(CASE WHEN status = 'unpaid' THEN 1 ELSE 0 END),
    SUM(CASE WHEN status = 'paid' THEN 1 ELSE 0 END),
    SUM(CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END),
    SUM(CASE WHEN status = 'expired' THEN 1 ELSE 0 END),
    SUM(CASE WHEN status IN ('unpaid', 'paid') AND deducted = 1 THEN quantity ELSE 0 END),
    SUM(CASE WHEN status IN ('unpaid', 'paid') AND deducted = 0 THEN quantity ELSE 0 END),
    SUM(CASE WHEN status IN ('unpaid', 'paid') THEN generation % 2147483647 ELSE 0 END) % 2147483647
FROM orders GROUP BY sale_id, shard;

-- What one user has, where Redis knows it otherwise.
CREATE INDEX orders_by_user ON orders (sale_id, user_id);
