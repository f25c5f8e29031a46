-- Clicks on short links: how many, by whom, from where.
-- The tables of migrations/mysql are the same: change both.

-- Batches that were counted: what arrives twice is counted once. Kept for some days.
CREATE TABLE click_batches (
    id    TEXT    NOT NULL PRIMARY KEY,
    at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX click_batches_by_age ON click_batches (at_ms);

-- One row for each hour and each day (UTC) in which a link was clicked.
CREATE TABLE link_clicks (
    domain    TEXT    NOT NULL,
    code      TEXT    NOT NULL,
    span      TEXT    NOT NULL CHECK (span IN ('hour', 'day')),
    -- When the hour or the day begins.
    at_ms     INTEGER NOT NULL,
    clicks    INTEGER NOT NULL CHECK (clicks >= 0),
    -- Different visitors and addresses within it, as Redis' HyperLogLogs had them last.
    visitors  INTEGER NOT NULL CHECK (visitors >= 0),
    addresses INTEGER NOT NULL CHECK (addresses >= 0),
    PRIMARY KEY (domain, code, span, at_ms)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_clicks_by_age ON link_clicks (span, at_ms);

-- The clicks of a day by one thing each: device, system, browser, referrer, region, operator, language.
CREATE TABLE link_click_parts (
    domain TEXT    NOT NULL,
    code   TEXT    NOT NULL,
    day_ms INTEGER NOT NULL,
    part   TEXT    NOT NULL,
    value  TEXT    NOT NULL,
    clicks INTEGER NOT NULL CHECK (clicks >= 0),
    PRIMARY KEY (domain, code, day_ms, part, value)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_click_parts_by_age ON link_click_parts (day_ms);
