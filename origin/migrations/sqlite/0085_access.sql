-- Who may use the admin routes, and who has changed what.
-- The tables of migrations/mysql are the same: change both.

CREATE TABLE access_keys (
    id            TEXT    NOT NULL PRIMARY KEY,
    name          TEXT    NOT NULL,
    -- SHA-256 of the key, which is shown once and kept nowhere.
    hash          BLOB    NOT NULL,
    -- NULL: what it may do is in `scopes`.
    role          TEXT,
    -- Words with a space between them.
    scopes        TEXT    NOT NULL,
    -- A JSON list each: which links it is about; empty: all.
    domains       TEXT    NOT NULL,
    tags          TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL,
    -- The id of the key that made it, or `admin-token`.
    created_by    TEXT    NOT NULL,
    expires_at_ms INTEGER,
    revoked_at_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE access_sessions (
    id            TEXT    NOT NULL PRIMARY KEY,
    -- The id of the key that opened it, or `admin-token`.
    key_id        TEXT    NOT NULL,
    -- An HMAC of the session's secret under what is known of the key: a key that was replaced opens nothing.
    proof         BLOB    NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX access_sessions_by_end ON access_sessions (expires_at_ms);

-- What is about to be done. Rows are never changed, only deleted when they are old.
CREATE TABLE audit_trail (
    -- The time in milliseconds, shifted by 20 bits, and random ones: in the order of time.
    id            INTEGER NOT NULL PRIMARY KEY,
    at_ms         INTEGER NOT NULL,
    actor         TEXT    NOT NULL,
    -- The key's name at that time.
    actor_name    TEXT    NOT NULL,
    is_session    INTEGER NOT NULL,
    method        TEXT    NOT NULL,
    route         TEXT    NOT NULL,
    path          TEXT    NOT NULL,
    -- The address of the connection; empty: not known.
    source        TEXT    NOT NULL
) STRICT;

CREATE INDEX audit_trail_by_actor ON audit_trail (actor, id);

-- What became of it. No row: not known, as the origin has died or was not answered.
CREATE TABLE audit_verdicts (
    id            INTEGER NOT NULL PRIMARY KEY,
    at_ms         INTEGER NOT NULL,
    status        INTEGER NOT NULL,
    -- The path of what was made; empty: nothing was.
    made          TEXT    NOT NULL
) STRICT;
