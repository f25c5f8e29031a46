-- Browse history: the cold store, deletions and products.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../sqlite and ../mysql have the same tables: change all.

-- Lists in the format of the cold store.
CREATE TABLE history_cold (
    -- `weir_history::cold::key`.
    owner_key    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- `weir_history::cold`.
    value        BYTEA NOT NULL,
    -- Grows by 1 with each write. The first one is the time, so that a writer with an outdated version of a deleted
    -- list never overwrites a new list.
    version      BIGINT NOT NULL CHECK (version >= 0),
    -- The time of the latest view. The list is deleted when it is too old.
    newest_at_ms BIGINT NOT NULL
);

CREATE INDEX history_cold_by_age ON history_cold (newest_at_ms);

-- Views of these products up to this time are deleted.
CREATE TABLE history_deleted (
    -- `weir_history::Owner`.
    owner TEXT COLLATE "C" NOT NULL,
    sku   TEXT COLLATE "C" NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (owner, sku)
);

CREATE INDEX history_deleted_by_age ON history_deleted (at_ms);

-- All views up to this time are deleted.
CREATE TABLE history_cleared (
    owner TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    at_ms BIGINT NOT NULL
);

CREATE INDEX history_cleared_by_age ON history_cleared (at_ms);

-- Removals that may be missing in Redis.
CREATE TABLE history_unapplied (
    owner    TEXT COLLATE "C" NOT NULL,
    -- A unique ID for each removal.
    op       TEXT COLLATE "C" NOT NULL,
    since_ms BIGINT NOT NULL,
    PRIMARY KEY (owner, op)
);

CREATE INDEX history_unapplied_by_age ON history_unapplied (since_ms);

-- Progress of copying a day's changed lists to the cold store.
CREATE TABLE history_folds (
    -- Days in UTC since the Unix epoch.
    day            BIGINT NOT NULL,
    -- A subset of the slots.
    part           BIGINT NOT NULL,
    -- The next slot to copy in the part.
    next_slot      BIGINT NOT NULL,
    -- The origin that works on it, and the time up to which no other origin may.
    holder         TEXT COLLATE "C" NOT NULL,
    lease_until_ms BIGINT NOT NULL,
    done_at_ms     BIGINT,
    PRIMARY KEY (day, part)
);

CREATE TABLE history_products (
    sku           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    spu           TEXT COLLATE "C",
    title         TEXT COLLATE "C",
    picture       TEXT COLLATE "C",
    changed_at_ms BIGINT NOT NULL
);

CREATE TABLE history_begins (
    source   TEXT COLLATE "C" NOT NULL,
    -- Days in UTC since the Unix epoch.
    day      BIGINT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (source, day)
);
