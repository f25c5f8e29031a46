-- Vehicles, SKUs and what fits what.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../mysql has the same tables: change both.

-- One row. Whoever changes anything of fitment updates it first, so that changes of all origins come one after the other.
CREATE TABLE fitment_head (
    id            INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    -- The last version that was given away. Each change has one of its own.
    version       INTEGER NOT NULL,
    -- Of the map of vehicles: it grows when one is retired, and when the map must be made anew.
    generation    INTEGER NOT NULL,
    -- Pages of what fits a vehicle that have another one are stale.
    stamp         INTEGER NOT NULL,
    -- A rebuild of Redis has come to this SKU; NULL: none is under way.
    rebuilt_up_to INTEGER
) STRICT;

INSERT INTO fitment_head (id, version, generation, stamp) VALUES (1, 0, 1, 0);

-- A vehicle and its offset, which no other ever has: rows stay.
CREATE TABLE fitment_vehicles (
    place   INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    -- The id of seven digits; NULL: it was retired.
    vehicle INTEGER UNIQUE,
    make    TEXT NOT NULL,
    model   TEXT NOT NULL,
    -- 0: not known.
    year    INTEGER NOT NULL,
    engine  TEXT NOT NULL
) STRICT;

CREATE INDEX fitment_vehicles_by_model ON fitment_vehicles (make, model, year);

-- What a user drives.
CREATE TABLE fitment_garages (
    user_id     TEXT NOT NULL,
    place       INTEGER NOT NULL,
    is_default  INTEGER NOT NULL,
    added_at_ms INTEGER NOT NULL,
    PRIMARY KEY (user_id, place)
) STRICT;

-- A part and what it fits.
CREATE TABLE fitment_skus (
    number       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    sku          TEXT NOT NULL UNIQUE,
    spu          TEXT NOT NULL,
    product_type TEXT NOT NULL,
    merchant     TEXT NOT NULL,
    -- The product was deleted. The row stays, for its version.
    is_deleted   INTEGER NOT NULL,
    -- Of its last change.
    version      INTEGER NOT NULL,
    -- Offsets, as a roaring bitmap; empty: nobody has said what it fits.
    fits         BLOB NOT NULL
) STRICT;

CREATE INDEX fitment_skus_by_spu ON fitment_skus (spu, number);

-- The same the other way round: 16 vehicles and 65,536 SKUs a row.
CREATE TABLE fitment_inverse (
    -- (place - 1) / 16
    vehicles INTEGER NOT NULL,
    -- number / 65,536
    skus     INTEGER NOT NULL,
    -- (place - 1) % 16 * 65,536 + number % 65,536, as a roaring bitmap.
    bits     BLOB NOT NULL,
    PRIMARY KEY (vehicles, skus)
) STRICT;

-- What a relation holds for, as far as more is said than that it fits.
CREATE TABLE fitment_qualifiers (
    number    INTEGER NOT NULL,
    place     INTEGER NOT NULL,
    -- 0: from the first year, up to the last.
    year_from INTEGER NOT NULL,
    year_to   INTEGER NOT NULL,
    engine    TEXT NOT NULL,
    position  TEXT NOT NULL,
    PRIMARY KEY (number, place)
) STRICT;

-- SKUs that Redis does not have as they are.
CREATE TABLE fitment_dirty (
    number   INTEGER NOT NULL PRIMARY KEY,
    version  INTEGER NOT NULL,
    -- `<version before> +<offset> -<offset> …`; NULL: it must be written whole.
    delta    TEXT,
    since_ms INTEGER NOT NULL
) STRICT;

-- Places in Redis that SKUs have left, until they are dropped there.
CREATE TABLE fitment_left (
    number  INTEGER NOT NULL,
    cluster TEXT NOT NULL,
    spu     TEXT NOT NULL,
    dropped_at_ms INTEGER,
    PRIMARY KEY (number, cluster, spu)
) STRICT;

CREATE INDEX fitment_left_dropped ON fitment_left (dropped_at_ms);

CREATE TABLE fitment_imports (
    id            INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    -- vehicles, products or relations
    kind          TEXT NOT NULL,
    -- csv or aces
    format        TEXT NOT NULL,
    -- merge or replace
    mode          TEXT NOT NULL,
    -- Its spool file.
    file          TEXT NOT NULL,
    -- waiting, reading, applying, done, failed
    state         TEXT NOT NULL,
    size          INTEGER NOT NULL,
    -- Where reading goes on, and the line there.
    position      INTEGER NOT NULL,
    line          INTEGER NOT NULL,
    records       INTEGER NOT NULL,
    errors        INTEGER NOT NULL,
    -- Why it failed as a whole, or nothing.
    message       TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    ended_at_ms   INTEGER,
    -- Who works on it, and until when nobody else may.
    holder         TEXT NOT NULL,
    lease_until_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX fitment_imports_by_state ON fitment_imports (state, id);

-- What is wrong in an import, the first thousand.
CREATE TABLE fitment_import_errors (
    import_id INTEGER NOT NULL,
    place     INTEGER NOT NULL,
    line      INTEGER NOT NULL,
    field     TEXT NOT NULL,
    reason    TEXT NOT NULL,
    PRIMARY KEY (import_id, place)
) STRICT;

-- What was read of an import of relations, until all of it is applied at once.
CREATE TABLE fitment_staged (
    import_id  INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    -- Where the piece begins in the file.
    position   INTEGER NOT NULL,
    -- Roaring bitmaps of offsets.
    added      BLOB NOT NULL,
    removed    BLOB NOT NULL,
    -- JSON: [[place, year_from, year_to, engine, position], …]
    qualifiers BLOB NOT NULL,
    PRIMARY KEY (import_id, number, position)
) STRICT;
