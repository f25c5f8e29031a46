-- The clicks of an hour by country, device and referrer at once, to filter by more than one.
-- The tables of migrations/mysql are the same: change both.

CREATE TABLE link_click_cells (
    domain   TEXT NOT NULL,
    code     TEXT NOT NULL,
    hour_ms  INTEGER NOT NULL,
    -- `<country> <device> <referrer>`: the heaviest of the hour.
    cell     TEXT NOT NULL,
    clicks   INTEGER NOT NULL CHECK (clicks >= 0),
    -- By how much that may be too many.
    over_max INTEGER NOT NULL CHECK (over_max >= 0),
    PRIMARY KEY (domain, code, hour_ms, cell)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_click_cells_by_age ON link_click_cells (hour_ms);
