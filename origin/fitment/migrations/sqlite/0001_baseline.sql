-- Vehicles, SKUs, and which vehicles each SKU fits.

-- One row. Every change of fitment data updates it first, which serializes the changes of all origins.
CREATE TABLE fitment_head (
    id            INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    -- The last assigned version. Each change has its own.
    version       INTEGER NOT NULL,
    -- The generation of the vehicle map. It grows when a vehicle is retired, and when the map must be rebuilt.
    generation    INTEGER NOT NULL,
    -- Cached pages of SKUs that fit a vehicle are stale if they have another stamp.
    stamp         INTEGER NOT NULL,
    -- The last SKU that a running rebuild of Redis has written; NULL: no rebuild.
    rebuilt_up_to INTEGER
) STRICT;

INSERT INTO fitment_head (id, version, generation, stamp) VALUES (1, 0, 1, 0);

-- Vehicles and their offsets. Rows are never deleted, so offsets are never reused.
CREATE TABLE fitment_vehicles (
    place   INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    -- The ID of seven digits; NULL: retired.
    vehicle INTEGER UNIQUE,
    make    TEXT NOT NULL,
    model   TEXT NOT NULL,
    -- 0: unknown.
    year    INTEGER NOT NULL,
    engine  TEXT NOT NULL
) STRICT;

CREATE INDEX fitment_vehicles_by_model ON fitment_vehicles (make, model, year);

-- The vehicles of a user.
CREATE TABLE fitment_garages (
    user_id     TEXT NOT NULL,
    place       INTEGER NOT NULL,
    is_default  INTEGER NOT NULL,
    added_at_ms INTEGER NOT NULL,
    PRIMARY KEY (user_id, place)
) STRICT;

-- SKUs and the vehicles that they fit.
CREATE TABLE fitment_skus (
    number       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    sku          TEXT NOT NULL UNIQUE,
    spu          TEXT NOT NULL,
    product_type TEXT NOT NULL,
    merchant     TEXT NOT NULL,
    -- Whether the product was deleted. The row stays to preserve the version.
    is_deleted   INTEGER NOT NULL,
    -- The version of its last change.
    version      INTEGER NOT NULL,
    -- Offsets as a roaring bitmap; empty: no fitment data.
    fits         BLOB NOT NULL
) STRICT;

CREATE INDEX fitment_skus_by_spu ON fitment_skus (spu, number);

-- The inverse: 16 vehicles and 65,536 SKUs per row.
CREATE TABLE fitment_inverse (
    -- (place - 1) / 16
    vehicles INTEGER NOT NULL,
    -- number / 65,536
    skus     INTEGER NOT NULL,
    -- (place - 1) % 16 * 65,536 + number % 65,536, as a roaring bitmap.
    bits     BLOB NOT NULL,
    PRIMARY KEY (vehicles, skus)
) STRICT;

-- Qualifiers of relations; a relation without a row has none.
CREATE TABLE fitment_qualifiers (
    number    INTEGER NOT NULL,
    place     INTEGER NOT NULL,
    -- 0: from the first year, or up to the last.
    year_from INTEGER NOT NULL,
    year_to   INTEGER NOT NULL,
    engine    TEXT NOT NULL,
    position  TEXT NOT NULL,
    PRIMARY KEY (number, place)
) STRICT;

-- SKUs that are missing or outdated in Redis.
CREATE TABLE fitment_dirty (
    number   INTEGER NOT NULL PRIMARY KEY,
    version  INTEGER NOT NULL,
    -- `<version before> +<offset> -<offset> …`; NULL: the whole SKU must be written.
    delta    TEXT,
    since_ms INTEGER NOT NULL
) STRICT;

-- Former routes of SKUs, until their data is dropped in Redis.
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
    -- The spool file.
    file          TEXT NOT NULL,
    -- waiting, reading, applying, done, failed
    state         TEXT NOT NULL,
    size          INTEGER NOT NULL,
    -- The position at which reading continues, and its line number.
    position      INTEGER NOT NULL,
    line          INTEGER NOT NULL,
    records       INTEGER NOT NULL,
    errors        INTEGER NOT NULL,
    -- The reason of a failure of the whole import; empty: none.
    message       TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    ended_at_ms   INTEGER,
    -- The origin that works on it, and the time up to which no other origin may.
    holder         TEXT NOT NULL,
    lease_until_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX fitment_imports_by_state ON fitment_imports (state, id);

-- The first thousand errors of an import.
CREATE TABLE fitment_import_errors (
    import_id INTEGER NOT NULL,
    place     INTEGER NOT NULL,
    line      INTEGER NOT NULL,
    field     TEXT NOT NULL,
    reason    TEXT NOT NULL,
    PRIMARY KEY (import_id, place)
) STRICT;

-- Relations that were read from an import, until they are applied all at once.
CREATE TABLE fitment_staged (
    import_id  INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    -- The position of the piece in the file.
    position   INTEGER NOT NULL,
    -- Roaring bitmaps of offsets.
    added      BLOB NOT NULL,
    removed    BLOB NOT NULL,
    -- JSON: [[place, year_from, year_to, engine, position], …]
    qualifiers BLOB NOT NULL,
    PRIMARY KEY (import_id, number, position)
) STRICT;
