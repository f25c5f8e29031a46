-- Waiting rooms.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../sqlite has the same tables: change both.

CREATE TABLE rooms (
    name          VARCHAR(48) NOT NULL PRIMARY KEY,
    -- Starts at 1 and grows by 1 with each change.
    version       BIGINT      NOT NULL CHECK (version > 0),
    mode          VARCHAR(16) NOT NULL,
    per_minute    BIGINT      NOT NULL CHECK (per_minute >= 0),
    active_max    BIGINT      NOT NULL CHECK (active_max >= 0),
    -- 0: no opening.
    opens_at_ms   BIGINT      NOT NULL CHECK (opens_at_ms >= 0),
    changed_at_ms BIGINT      NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
