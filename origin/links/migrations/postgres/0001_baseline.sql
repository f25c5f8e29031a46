-- Short links: the cold store, segments of numbers, and clicks.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../sqlite and ../mysql have the same tables: change all.

-- Links. New ones are written to Redis first, then here from the origins' logs. Edits are written here first.
CREATE TABLE links (
    domain        TEXT COLLATE "C" NOT NULL,
    code          TEXT COLLATE "C" NOT NULL,
    -- The record in Redis: `weir_link::record`.
    record        TEXT COLLATE "C" NOT NULL,
    -- Starts at 1 and grows by 1 with each edit.
    version       BIGINT NOT NULL CHECK (version >= 1),
    -- The labels, as a JSON object.
    labels        TEXT COLLATE "C" NOT NULL,
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
);

-- The clean-up reads ended links by time.
CREATE INDEX links_by_end ON links (expires_at_ms);

CREATE INDEX links_by_age ON links (created_at_ms, domain, code);

CREATE TABLE link_tags (
    tag           TEXT COLLATE "C" NOT NULL,
    created_at_ms BIGINT NOT NULL,
    domain        TEXT COLLATE "C" NOT NULL,
    code          TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tag, created_at_ms, domain, code)
);

CREATE INDEX link_tags_by_link ON link_tags (domain, code);

-- The state of a link before and after each edit. A link without edits has no rows.
CREATE TABLE link_history (
    domain  TEXT COLLATE "C" NOT NULL,
    code    TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    action  TEXT COLLATE "C" NOT NULL CHECK (action IN ('create', 'edit', 'disable', 'enable', 'delete')),
    record  TEXT COLLATE "C" NOT NULL,
    labels  TEXT COLLATE "C" NOT NULL,
    at_ms   BIGINT NOT NULL,
    PRIMARY KEY (domain, code, version)
);

CREATE INDEX link_history_at ON link_history (at_ms);

-- Changes that may be missing in Redis.
CREATE TABLE link_unpublished (
    domain  TEXT COLLATE "C" NOT NULL,
    code    TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    at_ms   BIGINT NOT NULL,
    PRIMARY KEY (domain, code, version)
);

-- The position up to which each origin's log is in `links`, written in the same transaction as the links.
CREATE TABLE link_logs (
    id      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    file_no BIGINT NOT NULL,
    at_byte BIGINT NOT NULL
);

-- The origin that inserts a segment assigns its numbers. This makes numbers unique, even after data loss in Redis.
CREATE TABLE link_segments (
    digits         BIGINT NOT NULL,
    round_no       BIGINT NOT NULL,
    first_index    BIGINT NOT NULL,
    numbers        BIGINT NOT NULL CHECK (numbers >= 1),
    reserved_at_ms BIGINT NOT NULL,
    PRIMARY KEY (digits, round_no, first_index)
);

CREATE INDEX link_segments_by_index ON link_segments (digits, first_index);

-- Rounds through the numbers of a length, except the first (0).
CREATE TABLE link_rounds (
    digits       BIGINT NOT NULL,
    round_no     BIGINT NOT NULL,
    opened_at_ms BIGINT NOT NULL,
    PRIMARY KEY (digits, round_no)
);

-- Numbers whose codes users have chosen. Segments skip them.
CREATE TABLE link_customs (
    digits       BIGINT NOT NULL,
    number_index BIGINT NOT NULL,
    domain       TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (digits, number_index, domain)
);

-- Every domain that has ever existed, because it may have links.
CREATE TABLE link_domains (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY
);

-- Counted batches, stored for some days: a repeated batch counts only once.
CREATE TABLE click_batches (
    id    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    at_ms BIGINT NOT NULL
);

CREATE INDEX click_batches_by_age ON click_batches (at_ms);

-- One row for each hour and each day (UTC) with clicks on a link.
CREATE TABLE link_clicks (
    domain    TEXT COLLATE "C" NOT NULL,
    code      TEXT COLLATE "C" NOT NULL,
    span      TEXT COLLATE "C" NOT NULL CHECK (span IN ('hour', 'day')),
    -- The start of the hour or the day.
    at_ms     BIGINT NOT NULL,
    clicks    BIGINT NOT NULL CHECK (clicks >= 0),
    -- Distinct visitors and addresses, from the last read of Redis' HyperLogLogs.
    visitors  BIGINT NOT NULL CHECK (visitors >= 0),
    addresses BIGINT NOT NULL CHECK (addresses >= 0),
    -- Clicks of bots, which the other columns do not include.
    bots      BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, code, span, at_ms)
);

CREATE INDEX link_clicks_by_age ON link_clicks (span, at_ms);

-- The clicks of a day by one dimension: device, system, browser, referrer, region, operator or language.
CREATE TABLE link_click_parts (
    domain TEXT COLLATE "C" NOT NULL,
    code   TEXT COLLATE "C" NOT NULL,
    day_ms BIGINT NOT NULL,
    part   TEXT COLLATE "C" NOT NULL,
    value  TEXT COLLATE "C" NOT NULL,
    clicks BIGINT NOT NULL CHECK (clicks >= 0),
    -- The maximum error: the count may be too high by this number, because the value replaced another one (Space-Saving
    -- sketch).
    over_max BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, code, day_ms, part, value)
);

CREATE INDEX link_click_parts_by_age ON link_click_parts (day_ms);

-- One row, with ID 1. The origin that inserts it seeds the domains from the file of --links.
CREATE TABLE link_domain_documents (
    id            BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    -- Starts at 1 and grows by 1 with each change.
    version       BIGINT NOT NULL CHECK (version >= 1),
    -- `weir_link::domain::DomainsConfig`, as JSON.
    document      TEXT COLLATE "C" NOT NULL,
    changed_at_ms BIGINT NOT NULL
);

CREATE TABLE link_feed (
    domain TEXT COLLATE "C" NOT NULL,
    code   TEXT COLLATE "C" NOT NULL,
    -- Its sequence number. NULL: it has changed, and gets the next number before the next read.
    seq    BIGINT,
    PRIMARY KEY (domain, code)
);

CREATE UNIQUE INDEX link_feed_by_seq ON link_feed (seq);

-- One row, with ID 1: the feed's name and last sequence number. Writers lock it before they assign numbers.
CREATE TABLE link_feed_head (
    id     BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    source TEXT COLLATE "C" NOT NULL,
    seq    BIGINT NOT NULL CHECK (seq >= 0)
);

-- Only links with clicks have a row. A click may be counted before its link is in `links`.
CREATE TABLE link_totals (
    domain TEXT COLLATE "C" NOT NULL,
    code   TEXT COLLATE "C" NOT NULL,
    clicks BIGINT NOT NULL CHECK (clicks >= 0),
    PRIMARY KEY (domain, code)
);

CREATE INDEX link_totals_by_clicks ON link_totals (clicks, domain, code);

CREATE TABLE link_click_cells (
    domain   TEXT COLLATE "C" NOT NULL,
    code     TEXT COLLATE "C" NOT NULL,
    hour_ms  BIGINT NOT NULL,
    -- `<country> <device> <referrer>`: the most frequent of the hour.
    cell     TEXT COLLATE "C" NOT NULL,
    clicks   BIGINT NOT NULL CHECK (clicks >= 0),
    -- The maximum error of the count, which may be too high by this number.
    over_max BIGINT NOT NULL CHECK (over_max >= 0),
    PRIMARY KEY (domain, code, hour_ms, cell)
);

CREATE INDEX link_click_cells_by_age ON link_click_cells (hour_ms);

-- Small documents of a team: shared reports and UTM templates.
CREATE TABLE link_team_items (
    kind          TEXT COLLATE "C" NOT NULL CHECK (kind IN ('report', 'utm')),
    -- The name of a template; of a report, the SHA-256 of its token.
    name          TEXT COLLATE "C" NOT NULL,
    -- The tenant; empty: the platform.
    owner         TEXT COLLATE "C" NOT NULL,
    -- JSON.
    body          TEXT COLLATE "C" NOT NULL,
    created_at_ms BIGINT NOT NULL,
    PRIMARY KEY (kind, name, owner)
);

CREATE INDEX link_team_items_by_owner ON link_team_items (kind, owner, created_at_ms);
