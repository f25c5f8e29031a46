-- Vehicles, SKUs, and which vehicles each SKU fits.

-- One row. Every change of fitment data updates it first, which serializes the changes of all origins.
CREATE TABLE fitment_head (
    id            BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    -- The last assigned version. Each change has its own.
    version       BIGINT NOT NULL,
    -- The generation of the vehicle map. It grows when a vehicle is retired, and when the map must be rebuilt.
    generation    BIGINT NOT NULL,
    -- Cached pages of SKUs that fit a vehicle are stale if they have another stamp.
    stamp         BIGINT NOT NULL,
    -- The last SKU that a running rebuild of Redis has written; NULL: no rebuild.
    rebuilt_up_to BIGINT
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

INSERT INTO fitment_head (id, version, generation, stamp) VALUES (1, 0, 1, 0);

-- Vehicles and their offsets. Rows are never deleted, so offsets are never reused.
CREATE TABLE fitment_vehicles (
    place   BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    -- The ID of seven digits; NULL: retired.
    vehicle BIGINT UNIQUE,
    make    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    model   VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    -- 0: unknown.
    year    BIGINT NOT NULL,
    engine  VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE INDEX fitment_vehicles_by_model ON fitment_vehicles (make, model, year);

-- The vehicles of a user.
CREATE TABLE fitment_garages (
    user_id     VARCHAR(128) NOT NULL,
    place       BIGINT NOT NULL,
    is_default  BIGINT NOT NULL,
    added_at_ms BIGINT NOT NULL,
    PRIMARY KEY (user_id, place)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- SKUs and the vehicles that they fit.
CREATE TABLE fitment_skus (
    number       BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    sku          VARCHAR(64) NOT NULL UNIQUE,
    spu          VARCHAR(64) NOT NULL,
    product_type VARCHAR(64) NOT NULL,
    merchant     VARCHAR(64) NOT NULL,
    -- Whether the product was deleted. The row stays to preserve the version.
    is_deleted   BIGINT NOT NULL,
    -- The version of its last change.
    version      BIGINT NOT NULL,
    -- Offsets as a roaring bitmap; empty: no fitment data.
    fits         MEDIUMBLOB NOT NULL
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE INDEX fitment_skus_by_spu ON fitment_skus (spu, number);

-- The inverse: 16 vehicles and 65,536 SKUs per row.
CREATE TABLE fitment_inverse (
    -- (place - 1) / 16
    vehicles BIGINT NOT NULL,
    -- number / 65,536
    skus     BIGINT NOT NULL,
    -- (place - 1) % 16 * 65,536 + number % 65,536, as a roaring bitmap.
    bits     MEDIUMBLOB NOT NULL,
    PRIMARY KEY (vehicles, skus)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- Qualifiers of relations; a relation without a row has none.
CREATE TABLE fitment_qualifiers (
    number    BIGINT NOT NULL,
    place     BIGINT NOT NULL,
    -- 0: from the first year, or up to the last.
    year_from BIGINT NOT NULL,
    year_to   BIGINT NOT NULL,
    engine    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    position  VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (number, place)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- SKUs that are missing or outdated in Redis.
CREATE TABLE fitment_dirty (
    number   BIGINT NOT NULL PRIMARY KEY,
    version  BIGINT NOT NULL,
    -- `<version before> +<offset> -<offset> …`; NULL: the whole SKU must be written.
    delta    VARCHAR(4096),
    since_ms BIGINT NOT NULL
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- Former routes of SKUs, until their data is dropped in Redis.
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
    -- The spool file.
    file          VARCHAR(255) NOT NULL,
    -- waiting, reading, applying, done, failed
    state         VARCHAR(16) NOT NULL,
    size          BIGINT NOT NULL,
    -- The position at which reading continues, and its line number.
    position      BIGINT NOT NULL,
    line          BIGINT NOT NULL,
    records       BIGINT NOT NULL,
    errors        BIGINT NOT NULL,
    -- The reason of a failure of the whole import; empty: none.
    message       VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    created_at_ms BIGINT NOT NULL,
    ended_at_ms   BIGINT,
    -- The origin that works on it, and the time up to which no other origin may.
    holder         VARCHAR(64) NOT NULL,
    lease_until_ms BIGINT NOT NULL
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

CREATE INDEX fitment_imports_by_state ON fitment_imports (state, id);

-- The first thousand errors of an import.
CREATE TABLE fitment_import_errors (
    import_id BIGINT NOT NULL,
    place     BIGINT NOT NULL,
    line      BIGINT NOT NULL,
    field     VARCHAR(64) NOT NULL,
    reason    VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (import_id, place)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;

-- Relations that were read from an import, until they are applied all at once.
CREATE TABLE fitment_staged (
    import_id  BIGINT NOT NULL,
    number     BIGINT NOT NULL,
    -- The position of the piece in the file.
    position   BIGINT NOT NULL,
    -- Roaring bitmaps of offsets.
    added      MEDIUMBLOB NOT NULL,
    removed    MEDIUMBLOB NOT NULL,
    -- JSON: [[place, year_from, year_to, engine, position], …]
    qualifiers MEDIUMBLOB NOT NULL,
    PRIMARY KEY (import_id, number, position)
) DEFAULT CHARACTER SET ascii COLLATE ascii_bin;
