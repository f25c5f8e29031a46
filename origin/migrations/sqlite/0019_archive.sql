-- What an ended sale leaves is archived.
-- The tables of migrations/mysql are the same: change both.

-- Decided orders of archived sales: the same columns as `orders`, in the same order.
CREATE TABLE orders_archive (
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

CREATE INDEX orders_archive_by_sale ON orders_archive (sale_id);

-- Since when it takes no orders and is not put on Redis again.
ALTER TABLE sales ADD COLUMN archived_at_ms INTEGER;

-- Since when Redis holds nothing of it.
ALTER TABLE sales ADD COLUMN cleared_at_ms INTEGER;

-- Since when all of it is archived.
ALTER TABLE sales ADD COLUMN archive_done_at_ms INTEGER;

CREATE INDEX sales_by_archive ON sales (archive_done_at_ms, ends_at_ms);
