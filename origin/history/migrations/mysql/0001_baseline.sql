-- Browse history: the cold store, deletions and products.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../sqlite has the same tables: change both.

-- A list as the cold store keeps it.
CREATE TABLE history_cold (
    -- `weir_history::cold::key`.
    owner_key    VARCHAR(400) NOT NULL PRIMARY KEY,
    -- `weir_history::cold`.
    value        BLOB NOT NULL,
    -- One more with every write. The first one is the time: who had read a list that is gone writes over no other.
    version      BIGINT NOT NULL CHECK (version >= 0),
    -- The list's latest view: it is gone when that has become too old.
    newest_at_ms BIGINT NOT NULL
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE INDEX history_cold_by_age ON history_cold (newest_at_ms);

-- Views of these products up to then are away.
CREATE TABLE history_deleted (
    -- `weir_history::Owner`.
    owner VARCHAR(400) NOT NULL,
    sku   VARCHAR(64) NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (owner, sku)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE INDEX history_deleted_by_age ON history_deleted (at_ms);

-- All views up to then are away.
CREATE TABLE history_cleared (
    owner VARCHAR(400) NOT NULL PRIMARY KEY,
    at_ms BIGINT NOT NULL
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE INDEX history_cleared_by_age ON history_cleared (at_ms);

-- Removals that Redis may not have followed.
CREATE TABLE history_unapplied (
    owner    VARCHAR(400) NOT NULL,
    -- One of its own for each removal.
    op       VARCHAR(32) NOT NULL,
    since_ms BIGINT NOT NULL,
    PRIMARY KEY (owner, op)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE INDEX history_unapplied_by_age ON history_unapplied (since_ms);

-- How far the lists that changed on a day are copied to the cold store.
CREATE TABLE history_folds (
    -- Of UTC, counted from the epoch.
    day            BIGINT NOT NULL,
    -- A part of the slots.
    part           BIGINT NOT NULL,
    -- The next slot of the part.
    next_slot      BIGINT NOT NULL,
    -- Who works on it, and until when nobody else may.
    holder         VARCHAR(64) NOT NULL,
    lease_until_ms BIGINT NOT NULL,
    done_at_ms     BIGINT,
    PRIMARY KEY (day, part)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE TABLE history_products (
    sku           VARCHAR(64) NOT NULL PRIMARY KEY,
    spu           VARCHAR(64),
    title         VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    picture       VARCHAR(2048),
    changed_at_ms BIGINT NOT NULL
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE TABLE history_begins (
    source   VARCHAR(192) NOT NULL,
    -- Of UTC, counted from the epoch.
    day      BIGINT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (source, day)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
