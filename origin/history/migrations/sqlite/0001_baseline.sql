-- Browse history: the cold store, deletions and products.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../mysql has the same tables: change both.

-- A list as the cold store keeps it.
CREATE TABLE history_cold (
    -- `weir_history::cold::key`.
    owner_key    TEXT NOT NULL PRIMARY KEY,
    -- `weir_history::cold`.
    value        BLOB NOT NULL,
    -- One more with every write. The first one is the time: who had read a list that is gone writes over no other.
    version      INTEGER NOT NULL CHECK (version >= 0),
    -- The list's latest view: it is gone when that has become too old.
    newest_at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX history_cold_by_age ON history_cold (newest_at_ms);

-- Views of these products up to then are away.
CREATE TABLE history_deleted (
    -- `weir_history::Owner`.
    owner TEXT NOT NULL,
    sku   TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (owner, sku)
) STRICT;

CREATE INDEX history_deleted_by_age ON history_deleted (at_ms);

-- All views up to then are away.
CREATE TABLE history_cleared (
    owner TEXT NOT NULL PRIMARY KEY,
    at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX history_cleared_by_age ON history_cleared (at_ms);

-- Removals that Redis may not have followed.
CREATE TABLE history_unapplied (
    owner    TEXT NOT NULL,
    -- One of its own for each removal.
    op       TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    PRIMARY KEY (owner, op)
) STRICT;

CREATE INDEX history_unapplied_by_age ON history_unapplied (since_ms);

-- How far the lists that changed on a day are copied to the cold store.
CREATE TABLE history_folds (
    -- Of UTC, counted from the epoch.
    day            INTEGER NOT NULL,
    -- A part of the slots.
    part           INTEGER NOT NULL,
    -- The next slot of the part.
    next_slot      INTEGER NOT NULL,
    -- Who works on it, and until when nobody else may.
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
    -- Of UTC, counted from the epoch.
    day      INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (source, day)
) STRICT, WITHOUT ROWID;
