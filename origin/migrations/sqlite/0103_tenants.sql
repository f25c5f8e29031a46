-- Tenants: who shares this origin, with what limits. What is a tenant's is told by its name, or by a link's domain.
-- The tables of migrations/mysql are the same: change both.

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

-- NULL: the platform's.
ALTER TABLE access_keys ADD COLUMN tenant TEXT;

CREATE INDEX access_keys_by_tenant ON access_keys (tenant, created_at_ms);

-- Whose key it was; NULL: the platform's.
ALTER TABLE audit_trail ADD COLUMN tenant TEXT;

CREATE INDEX audit_trail_by_tenant ON audit_trail (tenant, id);
