-- Vehicles, SKUs and what fits what.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../sqlite has the same tables: change both.

-- One row. Whoever changes anything of fitment updates it first, so that changes of all origins come one after the other.
CREATE TABLE fitment_head (
    id            BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    -- The last version that was given away. Each change has one of its own.
    version       BIGINT NOT NULL,
    -- Of the map of vehicles: it grows when one is retired, and when the map must be made anew.
    generation    BIGINT NOT NULL,
    -- Pages of what fits a vehicle that have another one are stale.
    stamp         BIGINT NOT NULL,
    -- A rebuild of Redis has come to this SKU; NULL: none is under way.
    rebuilt_up_to BIGINT
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

INSERT INTO fitment_head (id, version, generation, stamp) VALUES (1, 0, 1, 0);

-- A vehicle and its offset, which no other ever has: rows stay.
CREATE TABLE fitment_vehicles (
    place   BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    -- The id of seven digits; NULL: it was retired.
    vehicle BIGINT UNIQUE,
    make    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    model   VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    -- 0: not known.
    year    BIGINT NOT NULL,
    engine  VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE INDEX fitment_vehicles_by_model ON fitment_vehicles (make, model, year);

-- What a user drives.
CREATE TABLE fitment_garages (
    user_id     VARCHAR(128) NOT NULL,
    place       BIGINT NOT NULL,
    is_default  BIGINT NOT NULL,
    added_at_ms BIGINT NOT NULL,
    PRIMARY KEY (user_id, place)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- A part and what it fits.
CREATE TABLE fitment_skus (
    number       BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    sku          VARCHAR(64) NOT NULL UNIQUE,
    spu          VARCHAR(64) NOT NULL,
    product_type VARCHAR(64) NOT NULL,
    merchant     VARCHAR(64) NOT NULL,
    -- The product was deleted. The row stays, for its version.
    is_deleted   BIGINT NOT NULL,
    -- Of its last change.
    version      BIGINT NOT NULL,
    -- Offsets, as a roaring bitmap; empty: nobody has said what it fits.
    fits         MEDIUMBLOB NOT NULL
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE INDEX fitment_skus_by_spu ON fitment_skus (spu, number);

-- The same the other way round: 16 vehicles and 65,536 SKUs a row.
CREATE TABLE fitment_inverse (
    -- (place - 1) / 16
    vehicles BIGINT NOT NULL,
    -- number / 65,536
    skus     BIGINT NOT NULL,
    -- (place - 1) % 16 * 65,536 + number % 65,536, as a roaring bitmap.
    bits     MEDIUMBLOB NOT NULL,
    PRIMARY KEY (vehicles, skus)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- What a relation holds for, as far as more is said than that it fits.
CREATE TABLE fitment_qualifiers (
    number    BIGINT NOT NULL,
    place     BIGINT NOT NULL,
    -- 0: from the first year, up to the last.
    year_from BIGINT NOT NULL,
    year_to   BIGINT NOT NULL,
    engine    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    position  VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (number, place)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- SKUs that Redis does not have as they are.
CREATE TABLE fitment_dirty (
    number   BIGINT NOT NULL PRIMARY KEY,
    version  BIGINT NOT NULL,
    -- `<version before> +<offset> -<offset> …`; NULL: it must be written whole.
    delta    VARCHAR(4096),
    since_ms BIGINT NOT NULL
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- Places in Redis that SKUs have left, until they are dropped there.
CREATE TABLE fitment_left (
    number  BIGINT NOT NULL,
    cluster VARCHAR(32) NOT NULL,
    spu     VARCHAR(64) NOT NULL,
    dropped_at_ms BIGINT NULL,
    PRIMARY KEY (number, cluster, spu)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE INDEX fitment_left_dropped ON fitment_left (dropped_at_ms);

CREATE TABLE fitment_imports (
    id            BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    -- vehicles, products or relations
    kind          VARCHAR(16) NOT NULL,
    -- csv or aces
    format        VARCHAR(16) NOT NULL,
    -- merge or replace
    mode          VARCHAR(16) NOT NULL,
    -- Its spool file.
    file          VARCHAR(255) NOT NULL,
    -- waiting, reading, applying, done, failed
    state         VARCHAR(16) NOT NULL,
    size          BIGINT NOT NULL,
    -- Where reading goes on, and the line there.
    position      BIGINT NOT NULL,
    line          BIGINT NOT NULL,
    records       BIGINT NOT NULL,
    errors        BIGINT NOT NULL,
    -- Why it failed as a whole, or nothing.
    message       VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    created_at_ms BIGINT NOT NULL,
    ended_at_ms   BIGINT,
    -- Who works on it, and until when nobody else may.
    holder         VARCHAR(64) NOT NULL,
    lease_until_ms BIGINT NOT NULL
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE INDEX fitment_imports_by_state ON fitment_imports (state, id);

-- What is wrong in an import, the first thousand.
CREATE TABLE fitment_import_errors (
    import_id BIGINT NOT NULL,
    place     BIGINT NOT NULL,
    line      BIGINT NOT NULL,
    field     VARCHAR(64) NOT NULL,
    reason    VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (import_id, place)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- What was read of an import of relations, until all of it is applied at once.
CREATE TABLE fitment_staged (
    import_id  BIGINT NOT NULL,
    number     BIGINT NOT NULL,
    -- Where the piece begins in the file.
    position   BIGINT NOT NULL,
    -- Roaring bitmaps of offsets.
    added      MEDIUMBLOB NOT NULL,
    removed    MEDIUMBLOB NOT NULL,
    -- JSON: [[place, year_from, year_to, engine, position], …]
    qualifiers MEDIUMBLOB NOT NULL,
    PRIMARY KEY (import_id, number, position)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
