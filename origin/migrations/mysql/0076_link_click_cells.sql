-- The clicks of an hour by country, device and referrer at once, to filter by more than one.
-- The tables of migrations/sqlite are the same: change both.

CREATE TABLE link_click_cells (
    domain   VARCHAR(16) NOT NULL,
    code     VARCHAR(32) NOT NULL,
    hour_ms  BIGINT NOT NULL,
    -- `<country> <device> <referrer>`: the heaviest of the hour.
    cell     VARCHAR(96) NOT NULL,
    clicks   BIGINT NOT NULL CHECK (clicks >= 0),
    -- By how much that may be too many.
    over_max BIGINT NOT NULL CHECK (over_max >= 0),
    PRIMARY KEY (domain, code, hour_ms, cell)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_click_cells_by_age ON link_click_cells (hour_ms);
