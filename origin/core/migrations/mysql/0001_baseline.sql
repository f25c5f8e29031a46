-- Access keys, sessions, the audit trail, tenants, and the outbox.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../sqlite has the same tables: change both.

CREATE TABLE access_keys (
    id            VARCHAR(32)   NOT NULL PRIMARY KEY,
    name          VARCHAR(80)   NOT NULL,
    -- SHA-256 of the key. The key is shown once and not stored.
    hash          VARBINARY(32) NOT NULL,
    -- NULL: `scopes` applies.
    role          VARCHAR(16),
    -- Separated by spaces.
    scopes        VARCHAR(512)  NOT NULL,
    -- JSON lists: the links that the key may access; empty: all.
    domains       TEXT          NOT NULL,
    tags          TEXT          NOT NULL,
    created_at_ms BIGINT        NOT NULL,
    -- The ID of the key that created it, or `admin-token`.
    created_by    VARCHAR(32)   NOT NULL,
    expires_at_ms BIGINT,
    revoked_at_ms BIGINT,
    -- NULL: a platform key.
    tenant        VARCHAR(20)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX access_keys_by_tenant ON access_keys (tenant, created_at_ms);

CREATE TABLE access_sessions (
    id            VARCHAR(32)   NOT NULL PRIMARY KEY,
    -- The ID of the key that opened it, or `admin-token`.
    key_id        VARCHAR(32)   NOT NULL,
    -- An HMAC of the session's secret and the key's data. Replacing the key ends its sessions.
    proof         VARBINARY(32) NOT NULL,
    created_at_ms BIGINT        NOT NULL,
    expires_at_ms BIGINT        NOT NULL,
    INDEX access_sessions_by_end (expires_at_ms)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Intended operations. Rows never change. Only old rows are deleted.
CREATE TABLE audit_trail (
    -- The time in milliseconds, shifted by 20 bits, plus random bits: ordered by time.
    id            BIGINT        NOT NULL PRIMARY KEY,
    at_ms         BIGINT        NOT NULL,
    actor         VARCHAR(32)   NOT NULL,
    -- The key's name at the time of the operation.
    actor_name    VARCHAR(80)   NOT NULL,
    is_session    BIGINT        NOT NULL,
    method        VARCHAR(16)   NOT NULL,
    route         VARCHAR(512)  NOT NULL,
    path          VARCHAR(512)  NOT NULL,
    -- The client's address; empty: unknown.
    source        VARCHAR(64)   NOT NULL,
    -- The key's tenant; NULL: a platform key.
    tenant        VARCHAR(20),
    INDEX audit_trail_by_actor (actor, id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX audit_trail_by_tenant ON audit_trail (tenant, id);

-- Outcomes of operations. Without a row, the outcome is unknown: the origin stopped, or a call was not answered.
CREATE TABLE audit_verdicts (
    id            BIGINT        NOT NULL PRIMARY KEY,
    at_ms         BIGINT        NOT NULL,
    status        BIGINT        NOT NULL,
    -- The path of the created resource; empty: none.
    created          VARCHAR(512)  NOT NULL,
    -- The changed members, from and to; empty: not recorded.
    detail        VARCHAR(512)  NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE tenants (
    name                VARCHAR(20) NOT NULL PRIMARY KEY,
    title               VARCHAR(80) NOT NULL,
    sales_max           BIGINT      NOT NULL CHECK (sales_max >= 0),
    units_max           BIGINT      NOT NULL CHECK (units_max >= 0),
    rooms_max           BIGINT      NOT NULL CHECK (rooms_max >= 0),
    links_max           BIGINT      NOT NULL CHECK (links_max >= 0),
    keys_max            BIGINT      NOT NULL CHECK (keys_max >= 0),
    requests_per_second BIGINT      NOT NULL CHECK (requests_per_second >= 1),
    requests_at_once    BIGINT      NOT NULL CHECK (requests_at_once >= 1),
    created_at_ms       BIGINT      NOT NULL,
    changed_at_ms       BIGINT      NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Link domains of tenants. A domain belongs to at most one tenant.
CREATE TABLE tenant_domains (
    domain VARCHAR(16) NOT NULL PRIMARY KEY,
    tenant VARCHAR(20) NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX tenant_domains_by_tenant ON tenant_domains (tenant);

-- Changes to send to receivers, written in the same transactions as the changes.
CREATE TABLE outbox_changes (
    -- The kind of the changed resource.
    source     VARCHAR(8) NOT NULL CHECK (source IN ('order', 'link')),
    -- The ID of the order or the link.
    subject    VARCHAR(96) NOT NULL,
    -- 1, 2, 3, … within each subject. The last row of a subject is never deleted, because numbers must not repeat.
    seq        BIGINT NOT NULL CHECK (seq >= 1),
    -- The order's sale or the link's domain.
    belongs_to VARCHAR(64) NOT NULL,
    kind       VARCHAR(32) NOT NULL,
    -- The JSON to send, the same for every attempt; empty after pruning.
    body       MEDIUMTEXT NOT NULL,
    at_ms      BIGINT NOT NULL,
    -- Same as `at_ms`; NULL after pruning, so that the index contains only rows to prune.
    kept_ms    BIGINT,
    PRIMARY KEY (source, subject, seq)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX outbox_changes_by_age ON outbox_changes (source, kept_ms);

-- For each receiver, the subjects with undelivered changes.
CREATE TABLE outbox_deliveries (
    source     VARCHAR(8) NOT NULL CHECK (source IN ('order', 'link')),
    subject    VARCHAR(96) NOT NULL,
    sink       VARCHAR(32) NOT NULL CHECK (sink IN ('webhook', 'events')),
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
    last_error VARCHAR(255) NOT NULL DEFAULT '',
    PRIMARY KEY (source, subject, sink)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX outbox_deliveries_by_turn ON outbox_deliveries (source, sink, due_at_ms);

CREATE INDEX outbox_deliveries_by_age ON outbox_deliveries (source, sink, since_ms);

-- Settings for all sales or for all links.
CREATE TABLE settings (
    name  VARCHAR(64) NOT NULL PRIMARY KEY,
    value VARCHAR(255) NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
