-- Access keys, sessions, the audit trail, tenants, and the outbox.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../mysql has the same tables: change both.

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
    revoked_at_ms INTEGER,
    -- NULL: the platform's.
    tenant        TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX access_keys_by_tenant ON access_keys (tenant, created_at_ms);

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
    source        TEXT    NOT NULL,
    -- Whose key it was; NULL: the platform's.
    tenant        TEXT
) STRICT;

CREATE INDEX audit_trail_by_actor ON audit_trail (actor, id);

CREATE INDEX audit_trail_by_tenant ON audit_trail (tenant, id);

-- What became of it. No row: not known, as the origin has died or was not answered.
CREATE TABLE audit_verdicts (
    id            INTEGER NOT NULL PRIMARY KEY,
    at_ms         INTEGER NOT NULL,
    status        INTEGER NOT NULL,
    -- The path of what was made; empty: nothing was.
    made          TEXT    NOT NULL
) STRICT;

CREATE TABLE tenants (
    name                TEXT    NOT NULL PRIMARY KEY,
    title               TEXT    NOT NULL,
    sales_max           INTEGER NOT NULL CHECK (sales_max >= 0),
    units_max           INTEGER NOT NULL CHECK (units_max >= 0),
    rooms_max           INTEGER NOT NULL CHECK (rooms_max >= 0),
    links_max           INTEGER NOT NULL CHECK (links_max >= 0),
    keys_max            INTEGER NOT NULL CHECK (keys_max >= 0),
    requests_per_second INTEGER NOT NULL CHECK (requests_per_second >= 1),
    requests_at_once    INTEGER NOT NULL CHECK (requests_at_once >= 1),
    created_at_ms       INTEGER NOT NULL,
    changed_at_ms       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The domains of links that are a tenant's: each is at most one's.
CREATE TABLE tenant_domains (
    domain TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX tenant_domains_by_tenant ON tenant_domains (tenant);

-- Changes that receivers must hear of, written in the transactions that make them.
CREATE TABLE outbox_changes (
    -- Whose change it is.
    source     TEXT NOT NULL CHECK (source IN ('order', 'link')),
    -- The id of the order or the link.
    subject    TEXT NOT NULL,
    -- 1, 2, 3 … of each subject. The last one is kept, or numbers would repeat.
    seq        INTEGER NOT NULL CHECK (seq >= 1),
    -- An order's sale, a link's domain.
    belongs_to TEXT NOT NULL,
    kind       TEXT NOT NULL,
    -- The JSON that is sent, the same at every try; empty once it is pruned.
    body       TEXT NOT NULL,
    at_ms      INTEGER NOT NULL,
    -- As `at_ms`; NULL once it is pruned, so that the index holds only what is not pruned.
    kept_ms    INTEGER,
    PRIMARY KEY (source, subject, seq)
) STRICT;

CREATE INDEX outbox_changes_by_age ON outbox_changes (source, kept_ms);

-- For each receiver, the subjects of which it does not have every change.
CREATE TABLE outbox_deliveries (
    source     TEXT NOT NULL CHECK (source IN ('order', 'link')),
    subject    TEXT NOT NULL,
    sink       TEXT NOT NULL CHECK (sink IN ('webhook', 'events')),
    -- The first change that it does not have, and the last one that there is.
    next_seq   INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL,
    -- Since when it waits.
    since_ms   INTEGER NOT NULL,
    -- When it is tried; of one that is being tried, when another origin may.
    due_at_ms  INTEGER NOT NULL,
    -- Who tries it; 0: nobody.
    holder     INTEGER NOT NULL DEFAULT 0,
    tries      INTEGER NOT NULL DEFAULT 0,
    last_error TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (source, subject, sink)
) STRICT;

CREATE INDEX outbox_deliveries_by_turn ON outbox_deliveries (source, sink, due_at_ms);

CREATE INDEX outbox_deliveries_by_age ON outbox_deliveries (source, sink, since_ms);

-- What holds for all sales, or for all links.
CREATE TABLE settings (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
