-- Tenants: who shares this origin, with what limits. What is a tenant's is told by its name, or by a link's domain.
-- The tables of migrations/sqlite are the same: change both.

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

-- NULL: the platform's.
ALTER TABLE access_keys ADD COLUMN tenant VARCHAR(20);

CREATE INDEX access_keys_by_tenant ON access_keys (tenant, created_at_ms);

-- Whose key it was; NULL: the platform's.
ALTER TABLE audit_trail ADD COLUMN tenant VARCHAR(20);

CREATE INDEX audit_trail_by_tenant ON audit_trail (tenant, id);
