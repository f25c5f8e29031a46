-- Waiting rooms.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../mysql has the same tables: change both.

CREATE TABLE rooms (
    name          TEXT    NOT NULL PRIMARY KEY,
    -- 1, and one more with every change.
    version       INTEGER NOT NULL CHECK (version > 0),
    mode          TEXT    NOT NULL,
    per_minute    INTEGER NOT NULL CHECK (per_minute >= 0),
    active_max    INTEGER NOT NULL CHECK (active_max >= 0),
    -- 0: no such time.
    opens_at_ms   INTEGER NOT NULL CHECK (opens_at_ms >= 0),
    changed_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
