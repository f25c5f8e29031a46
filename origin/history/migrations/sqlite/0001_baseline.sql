-- Browse history: the cold store, deletions and products.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../mysql has the same tables: change both.

-- Lists in the format of the cold store.
CREATE TABLE history_cold (
    -- `weir_history::cold::key`.
    owner_key    TEXT NOT NULL PRIMARY KEY,
    -- `weir_history::cold`.
    value        BLOB NOT NULL,
    -- Grows by 1 with each write. The first one is the time, so that a writer with an outdated version of a deleted
    -- list never overwrites a new list.
    version      INTEGER NOT NULL CHECK (version >= 0),
    -- The time of the latest view. The list is deleted when it is too old.
    newest_at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX history_cold_by_age ON history_cold (newest_at_ms);

-- Views of these products up to this time are deleted.
CREATE TABLE history_deleted (
    -- `weir_history::Owner`.
    owner TEXT NOT NULL,
    sku   TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (owner, sku)
) STRICT;

CREATE INDEX history_deleted_by_age ON history_deleted (at_ms);

-- All views up to this time are deleted.
CREATE TABLE history_cleared (
    owner TEXT NOT NULL PRIMARY KEY,
    at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX history_cleared_by_age ON history_cleared (at_ms);

-- Removals that may be missing in Redis.
CREATE TABLE history_unapplied (
    owner    TEXT NOT NULL,
    -- A unique ID for each removal.
    op       TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    PRIMARY KEY (owner, op)
) STRICT;

CREATE INDEX history_unapplied_by_age ON history_unapplied (since_ms);

-- Progress of copying a day's changed lists to the cold store.
CREATE TABLE history_folds (
    -- Days in UTC since the Unix epoch.
    day            INTEGER NOT NULL,
    -- A subset of the slots.
    part           INTEGER NOT NULL,
    -- The next slot to copy in the part.
    next_slot      INTEGER NOT NULL,
    -- The origin that works on it, and the time up to which no other origin may.
    holder         TEXT NOT NULL,
    lease_until_ms INTEGER NOT NULL,
    done_at_ms     INTEGER,
    PRIMARY KEY (day, part)
) STRICT;

CREATE TABLE history_products (
    sku           TEXT NOT NULL PRIMARY KEY,
    spu           TEXT,
    title         TEXT,
    picture       TEXT,
    changed_at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE history_begins (
    source   TEXT    NOT NULL,
    -- Days in UTC since the Unix epoch.
    day      INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (source, day)
) STRICT, WITHOUT ROWID;
