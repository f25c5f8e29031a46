-- Short links: the cold store, segments of numbers, and clicks.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../sqlite has the same tables: change both.

-- A link. Written behind Redis, from the origins' logs; edits are written here first.
CREATE TABLE links (
    domain        VARCHAR(16) NOT NULL,
    code          VARCHAR(32) NOT NULL,
    -- As in Redis: `weir_core::link::record`.
    record        MEDIUMTEXT NOT NULL,
    -- 1, and one more with every edit.
    version       BIGINT NOT NULL CHECK (version >= 1),
    -- A JSON list of texts.
    tags          TEXT NOT NULL,
    -- How long it lives after its last click; 0: for ever.
    life_ms       BIGINT NOT NULL CHECK (life_ms >= 0),
    -- When it ends whatever is clicked; NULL: never.
    ends_at_ms    BIGINT,
    created_at_ms BIGINT NOT NULL,
    changed_at_ms BIGINT NOT NULL,
    -- When it ends if nobody clicks, as far as it is known here: clicks are told later. NULL: never.
    expires_at_ms BIGINT,
    -- NULL: it is not deleted. A deleted link keeps its name for the quarantine.
    deleted_at_ms BIGINT,
    -- How many clicks a link had when its clicks were limited.
    clicks_before_max BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, code)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Clean-up goes through the ended ones by slices of time.
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

-- What a link was before and after each edit; a link that was never edited has no rows.
CREATE TABLE link_history (
    domain  VARCHAR(16) NOT NULL,
    code    VARCHAR(32) NOT NULL,
    version BIGINT NOT NULL,
    action  VARCHAR(16) NOT NULL CHECK (action IN ('create', 'edit', 'disable', 'enable', 'delete')),
    record  MEDIUMTEXT NOT NULL,
    tags    TEXT NOT NULL,
    at_ms   BIGINT NOT NULL,
    PRIMARY KEY (domain, code, version)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_history_at ON link_history (at_ms);

-- Changes that Redis may not have followed.
CREATE TABLE link_unpublished (
    domain  VARCHAR(16) NOT NULL,
    code    VARCHAR(32) NOT NULL,
    version BIGINT NOT NULL,
    at_ms   BIGINT NOT NULL,
    PRIMARY KEY (domain, code, version)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- How far each origin's log is in `links`, written in the transaction that writes the links.
CREATE TABLE link_logs (
    id      VARCHAR(64) NOT NULL PRIMARY KEY,
    file_no BIGINT NOT NULL,
    at_byte BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Whoever inserts a segment may hand out its numbers: nobody gets one twice, whatever Redis says.
CREATE TABLE link_segments (
    digits         BIGINT NOT NULL,
    round_no       BIGINT NOT NULL,
    first_index    BIGINT NOT NULL,
    numbers        BIGINT NOT NULL CHECK (numbers >= 1),
    reserved_at_ms BIGINT NOT NULL,
    PRIMARY KEY (digits, round_no, first_index)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_segments_by_index ON link_segments (digits, first_index);

-- Rounds through the numbers of a length, the first (0) left out.
CREATE TABLE link_rounds (
    digits       BIGINT NOT NULL,
    round_no     BIGINT NOT NULL,
    opened_at_ms BIGINT NOT NULL,
    PRIMARY KEY (digits, round_no)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Numbers whose codes people have chosen: segments leave them out.
CREATE TABLE link_customs (
    digits       BIGINT NOT NULL,
    number_index BIGINT NOT NULL,
    domain       VARCHAR(16) NOT NULL,
    PRIMARY KEY (digits, number_index, domain)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Every domain that ever was: it may have links.
CREATE TABLE link_domains (
    id VARCHAR(64) NOT NULL PRIMARY KEY
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

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
    -- Clicks of programs that come by themselves: they are not among the others.
    bots      BIGINT NOT NULL DEFAULT 0,
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
    -- By how much the clicks of a value may be too many: it took the place of another one (the Space-Saving sketch).
    over_max BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, code, day_ms, part, value)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_click_parts_by_age ON link_click_parts (day_ms);

-- One row, of id 1. Whoever inserts it has seeded the domains, from the file of --links.
CREATE TABLE link_domain_documents (
    id            BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    -- 1, and one more with every change.
    version       BIGINT NOT NULL CHECK (version >= 1),
    -- `weir_link::domain::DomainsConfig`, as JSON.
    document      LONGTEXT NOT NULL,
    changed_at_ms BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE link_feed (
    domain VARCHAR(16) NOT NULL,
    code   VARCHAR(32) NOT NULL,
    -- Its number. NULL: it has changed since, and gets the next one before anybody reads on.
    seq    BIGINT,
    PRIMARY KEY (domain, code)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE UNIQUE INDEX link_feed_by_seq ON link_feed (seq);

-- One row, of id 1: the feed's name, and its last number. Who gives numbers locks it first.
CREATE TABLE link_feed_head (
    id     BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    source VARCHAR(32) NOT NULL,
    seq    BIGINT NOT NULL CHECK (seq >= 0)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Only links that were clicked have a row: a click may be counted before its link is in `links`.
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
    -- `<country> <device> <referrer>`: the heaviest of the hour.
    cell     VARCHAR(96) NOT NULL,
    clicks   BIGINT NOT NULL CHECK (clicks >= 0),
    -- By how much that may be too many.
    over_max BIGINT NOT NULL CHECK (over_max >= 0),
    PRIMARY KEY (domain, code, hour_ms, cell)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_click_cells_by_age ON link_click_cells (hour_ms);
