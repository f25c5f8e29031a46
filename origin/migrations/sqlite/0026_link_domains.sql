-- The domains of short links: one document, which all origins share and publish.
-- The tables of migrations/mysql are the same: change both.

-- One row, of id 1. Whoever inserts it has seeded the domains, from the file of --links.
CREATE TABLE link_domain_documents (
    id            INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    -- 1, and one more with every change.
    version       INTEGER NOT NULL CHECK (version >= 1),
    -- `weir_link::domain::DomainsConfig`, as JSON.
    document      TEXT NOT NULL,
    changed_at_ms INTEGER NOT NULL
) STRICT;
