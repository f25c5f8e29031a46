-- Short links: the cold store, segments of numbers, and clicks.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../mysql has the same tables: change both.

-- Links. New ones are written to Redis first, then here from the origins' logs. Edits are written here first.
CREATE TABLE links (
    domain        TEXT NOT NULL,
    code          TEXT NOT NULL,
    -- The record in Redis: `weir_link::record`.
    record        TEXT NOT NULL,
    -- Starts at 1 and grows by 1 with each edit.
    version       INTEGER NOT NULL CHECK (version >= 1),
    -- The labels, as a JSON object.
    labels        TEXT NOT NULL,
    -- The lifetime after its last click; 0: unlimited.
    life_ms       INTEGER NOT NULL CHECK (life_ms >= 0),
    -- The time at which it ends, regardless of clicks; NULL: never.
    ends_at_ms    INTEGER,
    created_at_ms INTEGER NOT NULL,
    changed_at_ms INTEGER NOT NULL,
    -- The time at which it expires without further clicks, as known here: recent clicks may be missing. NULL: never.
    expires_at_ms INTEGER,
    -- NULL: not deleted. A deleted link keeps its name during the quarantine.
    deleted_at_ms INTEGER,
    -- The number of clicks before the link got its click limit.
    clicks_before_max INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, code)
) STRICT, WITHOUT ROWID;

-- The clean-up reads ended links by time.
CREATE INDEX links_by_end ON links (expires_at_ms);

CREATE INDEX links_by_age ON links (created_at_ms, domain, code);

CREATE TABLE link_tags (
    tag           TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    domain        TEXT NOT NULL,
    code          TEXT NOT NULL,
    PRIMARY KEY (tag, created_at_ms, domain, code)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_tags_by_link ON link_tags (domain, code);

-- The state of a link before and after each edit. A link without edits has no rows.
CREATE TABLE link_history (
    domain  TEXT NOT NULL,
    code    TEXT NOT NULL,
    version INTEGER NOT NULL,
    action  TEXT NOT NULL CHECK (action IN ('create', 'edit', 'disable', 'enable', 'delete')),
    record  TEXT NOT NULL,
    labels  TEXT NOT NULL,
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (domain, code, version)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_history_at ON link_history (at_ms);

-- Changes that may be missing in Redis.
CREATE TABLE link_unpublished (
    domain  TEXT NOT NULL,
    code    TEXT NOT NULL,
    version INTEGER NOT NULL,
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (domain, code, version)
) STRICT, WITHOUT ROWID;

-- The position up to which each origin's log is in `links`, written in the same transaction as the links.
CREATE TABLE link_logs (
    id      TEXT NOT NULL PRIMARY KEY,
    file_no INTEGER NOT NULL,
    at_byte INTEGER NOT NULL
) STRICT;

-- The origin that inserts a segment assigns its numbers. This makes numbers unique, even after data loss in Redis.
CREATE TABLE link_segments (
    digits         INTEGER NOT NULL,
    round_no       INTEGER NOT NULL,
    first_index    INTEGER NOT NULL,
    numbers        INTEGER NOT NULL CHECK (numbers >= 1),
    reserved_at_ms INTEGER NOT NULL,
    PRIMARY KEY (digits, round_no, first_index)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_segments_by_index ON link_segments (digits, first_index);

-- Rounds through the numbers of a length, except the first (0).
CREATE TABLE link_rounds (
    digits       INTEGER NOT NULL,
    round_no     INTEGER NOT NULL,
    opened_at_ms INTEGER NOT NULL,
    PRIMARY KEY (digits, round_no)
) STRICT, WITHOUT ROWID;

-- Numbers whose codes users have chosen. Segments skip them.
CREATE TABLE link_customs (
    digits       INTEGER NOT NULL,
    number_index INTEGER NOT NULL,
    domain       TEXT NOT NULL,
    PRIMARY KEY (digits, number_index, domain)
) STRICT, WITHOUT ROWID;

-- Every domain that has ever existed, because it may have links.
CREATE TABLE link_domains (
    id TEXT NOT NULL PRIMARY KEY
) STRICT;

-- Counted batches, stored for some days: a repeated batch counts only once.
CREATE TABLE click_batches (
    id    TEXT    NOT NULL PRIMARY KEY,
    at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX click_batches_by_age ON click_batches (at_ms);

-- One row for each hour and each day (UTC) with clicks on a link.
CREATE TABLE link_clicks (
    domain    TEXT    NOT NULL,
    code      TEXT    NOT NULL,
    span      TEXT    NOT NULL CHECK (span IN ('hour', 'day')),
    -- The start of the hour or the day.
    at_ms     INTEGER NOT NULL,
    clicks    INTEGER NOT NULL CHECK (clicks >= 0),
    -- Distinct visitors and addresses, from the last read of Redis' HyperLogLogs.
    visitors  INTEGER NOT NULL CHECK (visitors >= 0),
    addresses INTEGER NOT NULL CHECK (addresses >= 0),
    -- Clicks of bots, which the other columns do not include.
    bots      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, code, span, at_ms)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_clicks_by_age ON link_clicks (span, at_ms);

-- The clicks of a day by one dimension: device, system, browser, referrer, region, operator or language.
CREATE TABLE link_click_parts (
    domain TEXT    NOT NULL,
    code   TEXT    NOT NULL,
    day_ms INTEGER NOT NULL,
    part   TEXT    NOT NULL,
    value  TEXT    NOT NULL,
    clicks INTEGER NOT NULL CHECK (clicks >= 0),
    -- The maximum error: the count may be too high by this number, because the value replaced another one (Space-Saving
    -- sketch).
    over_max INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, code, day_ms, part, value)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_click_parts_by_age ON link_click_parts (day_ms);

-- One row, with ID 1. The origin that inserts it seeds the domains from the file of --links.
CREATE TABLE link_domain_documents (
    id            INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    -- Starts at 1 and grows by 1 with each change.
    version       INTEGER NOT NULL CHECK (version >= 1),
    -- `weir_link::domain::DomainsConfig`, as JSON.
    document      TEXT NOT NULL,
    changed_at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE link_feed (
    domain TEXT NOT NULL,
    code   TEXT NOT NULL,
    -- Its sequence number. NULL: it has changed, and gets the next number before the next read.
    seq    INTEGER,
    PRIMARY KEY (domain, code)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX link_feed_by_seq ON link_feed (seq);

-- One row, with ID 1: the feed's name and last sequence number. Writers lock it before they assign numbers.
CREATE TABLE link_feed_head (
    id     INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    source TEXT    NOT NULL,
    seq    INTEGER NOT NULL CHECK (seq >= 0)
) STRICT;

-- Only links with clicks have a row. A click may be counted before its link is in `links`.
CREATE TABLE link_totals (
    domain TEXT NOT NULL,
    code   TEXT NOT NULL,
    clicks INTEGER NOT NULL CHECK (clicks >= 0),
    PRIMARY KEY (domain, code)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_totals_by_clicks ON link_totals (clicks, domain, code);

CREATE TABLE link_click_cells (
    domain   TEXT NOT NULL,
    code     TEXT NOT NULL,
    hour_ms  INTEGER NOT NULL,
    -- `<country> <device> <referrer>`: the most frequent of the hour.
    cell     TEXT NOT NULL,
    clicks   INTEGER NOT NULL CHECK (clicks >= 0),
    -- The maximum error of the count, which may be too high by this number.
    over_max INTEGER NOT NULL CHECK (over_max >= 0),
    PRIMARY KEY (domain, code, hour_ms, cell)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_click_cells_by_age ON link_click_cells (hour_ms);

-- Small documents of a team: shared reports and UTM templates.
CREATE TABLE link_team_items (
    kind          TEXT NOT NULL CHECK (kind IN ('report', 'utm')),
    -- The name of a template; of a report, the SHA-256 of its token.
    name          TEXT NOT NULL,
    -- The tenant; empty: the platform.
    owner         TEXT NOT NULL,
    -- JSON.
    body          TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (kind, name, owner)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_team_items_by_owner ON link_team_items (kind, owner, created_at_ms);
