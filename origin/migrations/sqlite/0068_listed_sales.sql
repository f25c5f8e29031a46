-- Sales that anybody may see in the list of sales.
-- The tables of migrations/mysql are the same: change both.

ALTER TABLE sales ADD COLUMN listed INTEGER NOT NULL DEFAULT 0 CHECK (listed IN (0, 1));
