-- Sales that anybody may see in the list of sales.
-- The tables of migrations/sqlite are the same: change both.

ALTER TABLE sales ADD COLUMN listed BIGINT NOT NULL DEFAULT 0 CHECK (listed IN (0, 1));
