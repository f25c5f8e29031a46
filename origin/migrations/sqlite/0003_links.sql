-- Short links: the cold store, and who may hand out which numbers.
-- The tables of migrations/mysql are the same: change both.

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
