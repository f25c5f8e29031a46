-- Access keys, sessions, the audit trail, tenants, and the outbox.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../sqlite and ../mysql have the same tables: change all.

CREATE TABLE access_keys (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name          TEXT COLLATE "C" NOT NULL,
    -- SHA-256 of the key. The key is shown once and not stored.
    hash          BYTEA NOT NULL,
    -- NULL: `scopes` applies.
    role          TEXT COLLATE "C",
    -- Separated by spaces.
    scopes        TEXT COLLATE "C" NOT NULL,
    -- JSON lists: the links that the key may access; empty: all.
    domains       TEXT COLLATE "C" NOT NULL,
    tags          TEXT COLLATE "C" NOT NULL,
    created_at_ms BIGINT NOT NULL,
    -- The ID of the key that created it, or `admin-token`.
    created_by    TEXT COLLATE "C" NOT NULL,
    expires_at_ms BIGINT,
    revoked_at_ms BIGINT,
    -- NULL: a platform key.
    tenant        TEXT COLLATE "C"
);

CREATE INDEX access_keys_by_tenant ON access_keys (tenant, created_at_ms);

CREATE TABLE access_sessions (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- The ID of the key that opened it, or `admin-token`.
    key_id        TEXT COLLATE "C" NOT NULL,
    -- An HMAC of the session's secret and the key's data. Replacing the key ends its sessions.
    proof         BYTEA NOT NULL,
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT NOT NULL
);

CREATE INDEX access_sessions_by_end ON access_sessions (expires_at_ms);

-- Intended operations. Rows never change. Only old rows are deleted.
CREATE TABLE audit_trail (
    -- The time in milliseconds, shifted by 20 bits, plus random bits: ordered by time.
    id            BIGINT NOT NULL PRIMARY KEY,
    at_ms         BIGINT NOT NULL,
    actor         TEXT COLLATE "C" NOT NULL,
    -- The key's name at the time of the operation.
    actor_name    TEXT COLLATE "C" NOT NULL,
    is_session    BIGINT NOT NULL,
    method        TEXT COLLATE "C" NOT NULL,
    route         TEXT COLLATE "C" NOT NULL,
    path          TEXT COLLATE "C" NOT NULL,
    -- The client's address; empty: unknown.
    source        TEXT COLLATE "C" NOT NULL,
    -- The key's tenant; NULL: a platform key.
    tenant        TEXT COLLATE "C"
);

CREATE INDEX audit_trail_by_actor ON audit_trail (actor, id);

CREATE INDEX audit_trail_by_tenant ON audit_trail (tenant, id);

-- Outcomes of operations. Without a row, the outcome is unknown: the origin stopped, or a call was not answered.
CREATE TABLE audit_verdicts (
    id            BIGINT NOT NULL PRIMARY KEY,
    at_ms         BIGINT NOT NULL,
    status        BIGINT NOT NULL,
    -- The path of the created resource; empty: none.
    created          TEXT COLLATE "C" NOT NULL,
    -- The changed members, from and to; empty: not recorded.
    detail        TEXT COLLATE "C" NOT NULL
);

CREATE TABLE tenants (
    name                TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    title               TEXT COLLATE "C" NOT NULL,
    sales_max           BIGINT NOT NULL CHECK (sales_max >= 0),
    units_max           BIGINT NOT NULL CHECK (units_max >= 0),
    rooms_max           BIGINT NOT NULL CHECK (rooms_max >= 0),
    links_max           BIGINT NOT NULL CHECK (links_max >= 0),
    keys_max            BIGINT NOT NULL CHECK (keys_max >= 0),
    requests_per_second BIGINT NOT NULL CHECK (requests_per_second >= 1),
    requests_at_once    BIGINT NOT NULL CHECK (requests_at_once >= 1),
    created_at_ms       BIGINT NOT NULL,
    changed_at_ms       BIGINT NOT NULL
);

-- Link domains of tenants. A domain belongs to at most one tenant.
CREATE TABLE tenant_domains (
    domain TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    tenant TEXT COLLATE "C" NOT NULL
);

CREATE INDEX tenant_domains_by_tenant ON tenant_domains (tenant);

-- Changes to send to receivers, written in the same transactions as the changes.
CREATE TABLE outbox_changes (
    -- The kind of the changed resource.
    source     TEXT COLLATE "C" NOT NULL CHECK (source IN ('order', 'link')),
    -- The ID of the order or the link.
    subject    TEXT COLLATE "C" NOT NULL,
    -- 1, 2, 3, … within each subject. The last row of a subject is never deleted, because numbers must not repeat.
    seq        BIGINT NOT NULL CHECK (seq >= 1),
    -- The order's sale or the link's domain.
    belongs_to TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    -- The JSON to send, the same for every attempt; empty after pruning.
    body       TEXT COLLATE "C" NOT NULL,
    at_ms      BIGINT NOT NULL,
    -- Same as `at_ms`; NULL after pruning, so that the index contains only rows to prune.
    kept_ms    BIGINT,
    PRIMARY KEY (source, subject, seq)
);

CREATE INDEX outbox_changes_by_age ON outbox_changes (source, kept_ms);

-- For each receiver, the subjects with undelivered changes.
CREATE TABLE outbox_deliveries (
    source     TEXT COLLATE "C" NOT NULL CHECK (source IN ('order', 'link')),
    subject    TEXT COLLATE "C" NOT NULL,
    sink       TEXT COLLATE "C" NOT NULL CHECK (sink IN ('webhook', 'events')),
    -- The first undelivered change, and the last existing one.
    next_seq   BIGINT NOT NULL,
    last_seq   BIGINT NOT NULL,
    -- The time since which it waits.
    since_ms   BIGINT NOT NULL,
    -- The time of the next attempt; during an attempt, the time from which another origin may take over.
    due_at_ms  BIGINT NOT NULL,
    -- The origin that attempts the delivery; 0: none.
    holder     BIGINT NOT NULL DEFAULT 0,
    tries      BIGINT NOT NULL DEFAULT 0,
    last_error TEXT COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (source, subject, sink)
);

CREATE INDEX outbox_deliveries_by_turn ON outbox_deliveries (source, sink, due_at_ms);

CREATE INDEX outbox_deliveries_by_age ON outbox_deliveries (source, sink, since_ms);

-- Settings for all sales or for all links.
CREATE TABLE settings (
    name  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value TEXT COLLATE "C" NOT NULL
);
