-- Clicks on short links: how many, by whom, from where.
-- The tables of migrations/sqlite are the same: change both.

-- Batches that were counted: what arrives twice is counted once. Kept for some days.
CREATE TABLE click_batches (
    id    VARCHAR(64) NOT NULL PRIMARY KEY,
    at_ms BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX click_batches_by_age ON click_batches (at_ms);

-- One row for each hour and each day (UTC) in which a link was clicked.
CREATE TABLE link_clicks (
    domain    VARCHAR(16) NOT NULL,
    code      VARCHAR(32) NOT NULL,
    span      VARCHAR(4) NOT NULL CHECK (span IN ('hour', 'day')),
    -- When the hour or the day begins.
    at_ms     BIGINT NOT NULL,
    clicks    BIGINT NOT NULL CHECK (clicks >= 0),
    -- Different visitors and addresses within it, as Redis' HyperLogLogs had them last.
    visitors  BIGINT NOT NULL CHECK (visitors >= 0),
    addresses BIGINT NOT NULL CHECK (addresses >= 0),
    PRIMARY KEY (domain, code, span, at_ms)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_clicks_by_age ON link_clicks (span, at_ms);

-- The clicks of a day by one thing each: device, system, browser, referrer, region, operator, language.
CREATE TABLE link_click_parts (
    domain VARCHAR(16) NOT NULL,
    code   VARCHAR(32) NOT NULL,
    day_ms BIGINT NOT NULL,
    part   VARCHAR(16) NOT NULL,
    value  VARCHAR(64) NOT NULL,
    clicks BIGINT NOT NULL CHECK (clicks >= 0),
    PRIMARY KEY (domain, code, day_ms, part, value)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_click_parts_by_age ON link_click_parts (day_ms);
