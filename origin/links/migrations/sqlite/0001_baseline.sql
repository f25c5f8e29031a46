-- Short links: the cold store, segments of numbers, and clicks.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../mysql has the same tables: change both.

-- A link. Written behind Redis, from the origins' logs; edits are written here first.
CREATE TABLE links (
    domain        TEXT NOT NULL,
    code          TEXT NOT NULL,
    -- As in Redis: `weir_core::link::record`.
    record        TEXT NOT NULL,
    -- 1, and one more with every edit.
    version       INTEGER NOT NULL CHECK (version >= 1),
    -- A JSON list of texts.
    tags          TEXT NOT NULL,
    -- How long it lives after its last click; 0: for ever.
    life_ms       INTEGER NOT NULL CHECK (life_ms >= 0),
    -- When it ends whatever is clicked; NULL: never.
    ends_at_ms    INTEGER,
    created_at_ms INTEGER NOT NULL,
    changed_at_ms INTEGER NOT NULL,
    -- When it ends if nobody clicks, as far as it is known here: clicks are told later. NULL: never.
    expires_at_ms INTEGER,
    -- NULL: it is not deleted. A deleted link keeps its name for the quarantine.
    deleted_at_ms INTEGER,
    -- How many clicks a link had when its clicks were limited.
    clicks_before_max INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, code)
) STRICT, WITHOUT ROWID;

-- Clean-up goes through the ended ones by slices of time.
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

-- What a link was before and after each edit; a link that was never edited has no rows.
CREATE TABLE link_history (
    domain  TEXT NOT NULL,
    code    TEXT NOT NULL,
    version INTEGER NOT NULL,
    action  TEXT NOT NULL CHECK (action IN ('create', 'edit', 'disable', 'enable', 'delete')),
    record  TEXT NOT NULL,
    tags    TEXT NOT NULL,
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (domain, code, version)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_history_at ON link_history (at_ms);

-- Changes that Redis may not have followed.
CREATE TABLE link_unpublished (
    domain  TEXT NOT NULL,
    code    TEXT NOT NULL,
    version INTEGER NOT NULL,
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (domain, code, version)
) STRICT, WITHOUT ROWID;

-- How far each origin's log is in `links`, written in the transaction that writes the links.
CREATE TABLE link_logs (
    id      TEXT NOT NULL PRIMARY KEY,
    file_no INTEGER NOT NULL,
    at_byte INTEGER NOT NULL
) STRICT;

-- Whoever inserts a segment may hand out its numbers: nobody gets one twice, whatever Redis says.
CREATE TABLE link_segments (
    digits         INTEGER NOT NULL,
    round_no       INTEGER NOT NULL,
    first_index    INTEGER NOT NULL,
    numbers        INTEGER NOT NULL CHECK (numbers >= 1),
    reserved_at_ms INTEGER NOT NULL,
    PRIMARY KEY (digits, round_no, first_index)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_segments_by_index ON link_segments (digits, first_index);

-- Rounds through the numbers of a length, the first (0) left out.
CREATE TABLE link_rounds (
    digits       INTEGER NOT NULL,
    round_no     INTEGER NOT NULL,
    opened_at_ms INTEGER NOT NULL,
    PRIMARY KEY (digits, round_no)
) STRICT, WITHOUT ROWID;

-- Numbers whose codes people have chosen: segments leave them out.
CREATE TABLE link_customs (
    digits       INTEGER NOT NULL,
    number_index INTEGER NOT NULL,
    domain       TEXT NOT NULL,
    PRIMARY KEY (digits, number_index, domain)
) STRICT, WITHOUT ROWID;

-- Every domain that ever was: it may have links.
CREATE TABLE link_domains (
    id TEXT NOT NULL PRIMARY KEY
) STRICT;

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
    -- Clicks of programs that come by themselves: they are not among the others.
    bots      INTEGER NOT NULL DEFAULT 0,
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
    -- By how much the clicks of a value may be too many: it took the place of another one (the Space-Saving sketch).
    over_max INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, code, day_ms, part, value)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_click_parts_by_age ON link_click_parts (day_ms);

-- One row, of id 1. Whoever inserts it has seeded the domains, from the file of --links.
CREATE TABLE link_domain_documents (
    id            INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    -- 1, and one more with every change.
    version       INTEGER NOT NULL CHECK (version >= 1),
    -- `weir_link::domain::DomainsConfig`, as JSON.
    document      TEXT NOT NULL,
    changed_at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE link_feed (
    domain TEXT NOT NULL,
    code   TEXT NOT NULL,
    -- Its number. NULL: it has changed since, and gets the next one before anybody reads on.
    seq    INTEGER,
    PRIMARY KEY (domain, code)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX link_feed_by_seq ON link_feed (seq);

-- One row, of id 1: the feed's name, and its last number. Who gives numbers locks it first.
CREATE TABLE link_feed_head (
    id     INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    source TEXT    NOT NULL,
    seq    INTEGER NOT NULL CHECK (seq >= 0)
) STRICT;

-- Only links that were clicked have a row: a click may be counted before its link is in `links`.
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
    -- `<country> <device> <referrer>`: the heaviest of the hour.
    cell     TEXT NOT NULL,
    clicks   INTEGER NOT NULL CHECK (clicks >= 0),
    -- By how much that may be too many.
    over_max INTEGER NOT NULL CHECK (over_max >= 0),
    PRIMARY KEY (domain, code, hour_ms, cell)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_click_cells_by_age ON link_click_cells (hour_ms);
