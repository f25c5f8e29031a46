-- Changes of a running sale's stock: units that are added, and units that are withdrawn.
-- The tables of migrations/sqlite are the same: change both.

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

-- What `sales.total` counts of them: a top-up as soon as it is asked for, a withdrawal once it is done.
ALTER TABLE sales ADD COLUMN topped_up BIGINT NOT NULL DEFAULT 0;

ALTER TABLE sales ADD COLUMN withdrawn BIGINT NOT NULL DEFAULT 0;
