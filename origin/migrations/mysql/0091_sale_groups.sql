-- Sales that belong together, and how many units one user may have of all of them.
-- The same as migrations/sqlite: change both.

-- NULL: the sale stands alone.
ALTER TABLE sales ADD COLUMN group_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
ALTER TABLE sales ADD COLUMN group_cap BIGINT;

CREATE INDEX sales_by_group ON sales (group_id);

-- The units in a user's unpaid and paid orders of a group's sales: the row that they meet at.
CREATE TABLE group_buyers (
    group_id VARCHAR(64) NOT NULL,
    user_id  VARCHAR(128) NOT NULL,
    units    BIGINT NOT NULL CHECK (units >= 0),
    PRIMARY KEY (group_id, user_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
