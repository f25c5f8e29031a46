-- Waiting rooms.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../mysql has the same tables: change both.

CREATE TABLE rooms (
    name          TEXT    NOT NULL PRIMARY KEY,
    -- Starts at 1 and grows by 1 with each change.
    version       INTEGER NOT NULL CHECK (version > 0),
    mode          TEXT    NOT NULL,
    per_minute    INTEGER NOT NULL CHECK (per_minute >= 0),
    active_max    INTEGER NOT NULL CHECK (active_max >= 0),
    -- 0: no opening.
    opens_at_ms   INTEGER NOT NULL CHECK (opens_at_ms >= 0),
    changed_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
