-- Access keys, sessions, the audit trail, tenants, and the outbox.
-- Times (`…_ms`) are milliseconds since the Unix epoch.
-- ../sqlite has the same tables: change both.

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
    revoked_at_ms BIGINT,
    -- NULL: the platform's.
    tenant        VARCHAR(20)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX access_keys_by_tenant ON access_keys (tenant, created_at_ms);

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
    -- Whose key it was; NULL: the platform's.
    tenant        VARCHAR(20),
    INDEX audit_trail_by_actor (actor, id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX audit_trail_by_tenant ON audit_trail (tenant, id);

-- What became of it. No row: not known, as the origin has died or was not answered.
CREATE TABLE audit_verdicts (
    id            BIGINT        NOT NULL PRIMARY KEY,
    at_ms         BIGINT        NOT NULL,
    status        BIGINT        NOT NULL,
    -- The path of what was made; empty: nothing was.
    made          VARCHAR(512)  NOT NULL
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

-- The domains of links that are a tenant's: each is at most one's.
CREATE TABLE tenant_domains (
    domain VARCHAR(16) NOT NULL PRIMARY KEY,
    tenant VARCHAR(20) NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX tenant_domains_by_tenant ON tenant_domains (tenant);

-- Changes that receivers must hear of, written in the transactions that make them.
CREATE TABLE outbox_changes (
    -- Whose change it is.
    source     VARCHAR(8) NOT NULL CHECK (source IN ('order', 'link')),
    -- The id of the order or the link.
    subject    VARCHAR(96) NOT NULL,
    -- 1, 2, 3 … of each subject. The last one is kept, or numbers would repeat.
    seq        BIGINT NOT NULL CHECK (seq >= 1),
    -- An order's sale, a link's domain.
    belongs_to VARCHAR(64) NOT NULL,
    kind       VARCHAR(32) NOT NULL,
    -- The JSON that is sent, the same at every try; empty once it is pruned.
    body       MEDIUMTEXT NOT NULL,
    at_ms      BIGINT NOT NULL,
    -- As `at_ms`; NULL once it is pruned, so that the index holds only what is not pruned.
    kept_ms    BIGINT,
    PRIMARY KEY (source, subject, seq)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX outbox_changes_by_age ON outbox_changes (source, kept_ms);

-- For each receiver, the subjects of which it does not have every change.
CREATE TABLE outbox_deliveries (
    source     VARCHAR(8) NOT NULL CHECK (source IN ('order', 'link')),
    subject    VARCHAR(96) NOT NULL,
    sink       VARCHAR(32) NOT NULL CHECK (sink IN ('webhook', 'events')),
    -- The first change that it does not have, and the last one that there is.
    next_seq   BIGINT NOT NULL,
    last_seq   BIGINT NOT NULL,
    -- Since when it waits.
    since_ms   BIGINT NOT NULL,
    -- When it is tried; of one that is being tried, when another origin may.
    due_at_ms  BIGINT NOT NULL,
    -- Who tries it; 0: nobody.
    holder     BIGINT NOT NULL DEFAULT 0,
    tries      BIGINT NOT NULL DEFAULT 0,
    last_error VARCHAR(255) NOT NULL DEFAULT '',
    PRIMARY KEY (source, subject, sink)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX outbox_deliveries_by_turn ON outbox_deliveries (source, sink, due_at_ms);

CREATE INDEX outbox_deliveries_by_age ON outbox_deliveries (source, sink, since_ms);

-- What holds for all sales, or for all links.
CREATE TABLE settings (
    name  VARCHAR(64) NOT NULL PRIMARY KEY,
    value VARCHAR(255) NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
