-- Sales that belong together, and how many units one user may have of all of them.
-- The same as migrations/mysql: change both.

-- NULL: the sale stands alone.
ALTER TABLE sales ADD COLUMN group_id TEXT;
ALTER TABLE sales ADD COLUMN group_cap INTEGER;

CREATE INDEX sales_by_group ON sales (group_id) WHERE group_id IS NOT NULL;

-- The units in a user's unpaid and paid orders of a group's sales: the row that they meet at.
CREATE TABLE group_buyers (
    group_id TEXT    NOT NULL,
    user_id  TEXT    NOT NULL,
    units    INTEGER NOT NULL CHECK (units >= 0),
    PRIMARY KEY (group_id, user_id)
) STRICT, WITHOUT ROWID;
