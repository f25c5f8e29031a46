-- What an ended sale leaves is archived.
-- The tables of migrations/sqlite are the same: change both.

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
    ended_at_ms   BIGINT
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX orders_archive_by_sale ON orders_archive (sale_id);

-- Since when it takes no orders and is not put on Redis again.
ALTER TABLE sales ADD COLUMN archived_at_ms BIGINT;

-- Since when Redis holds nothing of it.
ALTER TABLE sales ADD COLUMN cleared_at_ms BIGINT;

-- Since when all of it is archived.
ALTER TABLE sales ADD COLUMN archive_done_at_ms BIGINT;

CREATE INDEX sales_by_archive ON sales (archive_done_at_ms, ends_at_ms);
