-- Short links: the cold store, segments of numbers, and clicks.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../sqlite has the same tables: change both.

-- Links. New ones are written to Redis first, then here from the origins' logs. Edits are written here first.
CREATE TABLE links (
    domain        VARCHAR(16) NOT NULL,
    code          VARCHAR(32) NOT NULL,
    -- The record in Redis: `weir_link::record`.
    record        MEDIUMTEXT NOT NULL,
    -- Starts at 1 and grows by 1 with each edit.
    version       BIGINT NOT NULL CHECK (version >= 1),
    -- The labels, as a JSON object.
    labels        TEXT NOT NULL,
    -- The lifetime after its last click; 0: unlimited.
    life_ms       BIGINT NOT NULL CHECK (life_ms >= 0),
    -- The time at which it ends, regardless of clicks; NULL: never.
    ends_at_ms    BIGINT,
    created_at_ms BIGINT NOT NULL,
    changed_at_ms BIGINT NOT NULL,
    -- The time at which it expires without further clicks, as known here: recent clicks may be missing. NULL: never.
    expires_at_ms BIGINT,
    -- NULL: not deleted. A deleted link keeps its name during the quarantine.
    deleted_at_ms BIGINT,
    -- The number of clicks before the link got its click limit.
    clicks_before_max BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, code)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The clean-up reads ended links by time.
CREATE INDEX links_by_end ON links (expires_at_ms);

CREATE INDEX links_by_age ON links (created_at_ms, domain, code);

CREATE TABLE link_tags (
    tag           VARCHAR(64) NOT NULL,
    created_at_ms BIGINT NOT NULL,
    domain        VARCHAR(16) NOT NULL,
    code          VARCHAR(32) NOT NULL,
    PRIMARY KEY (tag, created_at_ms, domain, code)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_tags_by_link ON link_tags (domain, code);

-- The state of a link before and after each edit. A link without edits has no rows.
CREATE TABLE link_history (
    domain  VARCHAR(16) NOT NULL,
    code    VARCHAR(32) NOT NULL,
    version BIGINT NOT NULL,
    action  VARCHAR(16) NOT NULL CHECK (action IN ('create', 'edit', 'disable', 'enable', 'delete')),
    record  MEDIUMTEXT NOT NULL,
    labels  TEXT NOT NULL,
    at_ms   BIGINT NOT NULL,
    PRIMARY KEY (domain, code, version)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_history_at ON link_history (at_ms);

-- Changes that may be missing in Redis.
CREATE TABLE link_unpublished (
    domain  VARCHAR(16) NOT NULL,
    code    VARCHAR(32) NOT NULL,
    version BIGINT NOT NULL,
    at_ms   BIGINT NOT NULL,
    PRIMARY KEY (domain, code, version)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The position up to which each origin's log is in `links`, written in the same transaction as the links.
CREATE TABLE link_logs (
    id      VARCHAR(64) NOT NULL PRIMARY KEY,
    file_no BIGINT NOT NULL,
    at_byte BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The origin that inserts a segment assigns its numbers. This makes numbers unique, even after data loss in Redis.
CREATE TABLE link_segments (
    digits         BIGINT NOT NULL,
    round_no       BIGINT NOT NULL,
    first_index    BIGINT NOT NULL,
    numbers        BIGINT NOT NULL CHECK (numbers >= 1),
    reserved_at_ms BIGINT NOT NULL,
    PRIMARY KEY (digits, round_no, first_index)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_segments_by_index ON link_segments (digits, first_index);

-- Rounds through the numbers of a length, except the first (0).
CREATE TABLE link_rounds (
    digits       BIGINT NOT NULL,
    round_no     BIGINT NOT NULL,
    opened_at_ms BIGINT NOT NULL,
    PRIMARY KEY (digits, round_no)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Numbers whose codes users have chosen. Segments skip them.
CREATE TABLE link_customs (
    digits       BIGINT NOT NULL,
    number_index BIGINT NOT NULL,
    domain       VARCHAR(16) NOT NULL,
    PRIMARY KEY (digits, number_index, domain)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Every domain that has ever existed, because it may have links.
CREATE TABLE link_domains (
    id VARCHAR(64) NOT NULL PRIMARY KEY
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Counted batches, stored for some days: a repeated batch counts only once.
CREATE TABLE click_batches (
    id    VARCHAR(64) NOT NULL PRIMARY KEY,
    at_ms BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX click_batches_by_age ON click_batches (at_ms);

-- One row for each hour and each day (UTC) with clicks on a link.
CREATE TABLE link_clicks (
    domain    VARCHAR(16) NOT NULL,
    code      VARCHAR(32) NOT NULL,
    span      VARCHAR(4) NOT NULL CHECK (span IN ('hour', 'day')),
    -- The start of the hour or the day.
    at_ms     BIGINT NOT NULL,
    clicks    BIGINT NOT NULL CHECK (clicks >= 0),
    -- Distinct visitors and addresses, from the last read of Redis' HyperLogLogs.
    visitors  BIGINT NOT NULL CHECK (visitors >= 0),
    addresses BIGINT NOT NULL CHECK (addresses >= 0),
    -- Clicks of bots, which the other columns do not include.
    bots      BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, code, span, at_ms)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_clicks_by_age ON link_clicks (span, at_ms);

-- The clicks of a day by one dimension: device, system, browser, referrer, region, operator or language.
CREATE TABLE link_click_parts (
    domain VARCHAR(16) NOT NULL,
    code   VARCHAR(32) NOT NULL,
    day_ms BIGINT NOT NULL,
    part   VARCHAR(16) NOT NULL,
    value  VARCHAR(64) NOT NULL,
    clicks BIGINT NOT NULL CHECK (clicks >= 0),
    -- The maximum error: the count may be too high by this number, because the value replaced another one (Space-Saving
    -- sketch).
    over_max BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, code, day_ms, part, value)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_click_parts_by_age ON link_click_parts (day_ms);

-- One row, with ID 1. The origin that inserts it seeds the domains from the file of --links.
CREATE TABLE link_domain_documents (
    id            BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    -- Starts at 1 and grows by 1 with each change.
    version       BIGINT NOT NULL CHECK (version >= 1),
    -- `weir_link::domain::DomainsConfig`, as JSON.
    document      LONGTEXT NOT NULL,
    changed_at_ms BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE link_feed (
    domain VARCHAR(16) NOT NULL,
    code   VARCHAR(32) NOT NULL,
    -- Its sequence number. NULL: it has changed, and gets the next number before the next read.
    seq    BIGINT,
    PRIMARY KEY (domain, code)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE UNIQUE INDEX link_feed_by_seq ON link_feed (seq);

-- One row, with ID 1: the feed's name and last sequence number. Writers lock it before they assign numbers.
CREATE TABLE link_feed_head (
    id     BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    source VARCHAR(32) NOT NULL,
    seq    BIGINT NOT NULL CHECK (seq >= 0)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Only links with clicks have a row. A click may be counted before its link is in `links`.
CREATE TABLE link_totals (
    domain VARCHAR(16) NOT NULL,
    code   VARCHAR(32) NOT NULL,
    clicks BIGINT NOT NULL CHECK (clicks >= 0),
    PRIMARY KEY (domain, code)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_totals_by_clicks ON link_totals (clicks, domain, code);

CREATE TABLE link_click_cells (
    domain   VARCHAR(16) NOT NULL,
    code     VARCHAR(32) NOT NULL,
    hour_ms  BIGINT NOT NULL,
    -- `<country> <device> <referrer>`: the most frequent of the hour.
    cell     VARCHAR(96) NOT NULL,
    clicks   BIGINT NOT NULL CHECK (clicks >= 0),
    -- The maximum error of the count, which may be too high by this number.
    over_max BIGINT NOT NULL CHECK (over_max >= 0),
    PRIMARY KEY (domain, code, hour_ms, cell)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_click_cells_by_age ON link_click_cells (hour_ms);

-- Small documents of a team: shared reports and UTM templates.
CREATE TABLE link_team_items (
    kind          VARCHAR(16) NOT NULL CHECK (kind IN ('report', 'utm')),
    -- The name of a template; of a report, the SHA-256 of its token.
    name          VARCHAR(64) NOT NULL,
    -- The tenant; empty: the platform.
    owner         VARCHAR(20) NOT NULL,
    -- JSON.
    body          TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    PRIMARY KEY (kind, name, owner)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_team_items_by_owner ON link_team_items (kind, owner, created_at_ms);
