-- Who may use the admin routes, and who has changed what.
-- The tables of migrations/sqlite are the same: change both.

CREATE TABLE access_keys (
    id            VARCHAR(32)   NOT NULL PRIMARY KEY,
    name          VARCHAR(80)   NOT NULL,
    -- SHA-256 of the key, which is shown once and kept nowhere.
    hash          VARBINARY(32) NOT NULL,
    -- NULL: what it may do is in `scopes`.
    role          VARCHAR(16),
    -- Words with a space between them.
    scopes        VARCHAR(512)  NOT NULL,
    -- A JSON list each: which links it is about; empty: all.
    domains       TEXT          NOT NULL,
    tags          TEXT          NOT NULL,
    created_at_ms BIGINT        NOT NULL,
    -- The id of the key that made it, or `admin-token`.
    created_by    VARCHAR(32)   NOT NULL,
    expires_at_ms BIGINT,
    revoked_at_ms BIGINT
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE access_sessions (
    id            VARCHAR(32)   NOT NULL PRIMARY KEY,
    -- The id of the key that opened it, or `admin-token`.
    key_id        VARCHAR(32)   NOT NULL,
    -- An HMAC of the session's secret under what is known of the key: a key that was replaced opens nothing.
    proof         VARBINARY(32) NOT NULL,
    created_at_ms BIGINT        NOT NULL,
    expires_at_ms BIGINT        NOT NULL,
    INDEX access_sessions_by_end (expires_at_ms)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What is about to be done. Rows are never changed, only deleted when they are old.
CREATE TABLE audit_trail (
    -- The time in milliseconds, shifted by 20 bits, and random ones: in the order of time.
    id            BIGINT        NOT NULL PRIMARY KEY,
    at_ms         BIGINT        NOT NULL,
    actor         VARCHAR(32)   NOT NULL,
    -- The key's name at that time.
    actor_name    VARCHAR(80)   NOT NULL,
    is_session    BIGINT        NOT NULL,
    method        VARCHAR(16)   NOT NULL,
    route         VARCHAR(512)  NOT NULL,
    path          VARCHAR(512)  NOT NULL,
    -- The address of the connection; empty: not known.
    source        VARCHAR(64)   NOT NULL,
    INDEX audit_trail_by_actor (actor, id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What became of it. No row: not known, as the origin has died or was not answered.
CREATE TABLE audit_verdicts (
    id            BIGINT        NOT NULL PRIMARY KEY,
    at_ms         BIGINT        NOT NULL,
    status        BIGINT        NOT NULL,
    -- The path of what was made; empty: nothing was.
    made          VARCHAR(512)  NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
