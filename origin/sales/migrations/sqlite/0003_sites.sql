-- Sites: one sale is sold from several Redis. Without sites, the first two tables are empty.
-- ../mysql has the same tables: change both.

-- The numbers under which sites sell. A site that returns gets a new number.
CREATE TABLE fences (
    -- Determines the numbers of the shards: fence f has the 64 shards from 64 · f on. Never reused.
    fence        INTEGER NOT NULL PRIMARY KEY,
    site         TEXT NOT NULL,
    -- 'draining': it sells until its units have moved. 'closed': its claims no longer become orders.
    state        TEXT NOT NULL CHECK (state IN ('live', 'draining', 'closed')),
    joined_at_ms INTEGER NOT NULL,
    closed_at_ms INTEGER,
    CHECK ((state = 'closed') = (closed_at_ms IS NOT NULL))
) STRICT;

CREATE INDEX fences_by_site ON fences (site, fence);

-- The units of a sale that each fence has: in its Redis, in transfers from it, in its claims and in its orders. They add
-- up to `sales.total`. A sale that is not warmed has one row: of the fence that loads all units.
CREATE TABLE allotments (
    sale_id TEXT NOT NULL,
    fence   INTEGER NOT NULL,
    units   INTEGER NOT NULL,
    -- The units that the fence asks others for.
    wanted  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (sale_id, fence)
) STRICT, WITHOUT ROWID;

-- The fence whose shards apply the change; 0 without sites.
ALTER TABLE stock_changes ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;

-- The fence that gets the withdrawn units; NULL: the units leave the sale.
ALTER TABLE stock_changes ADD COLUMN to_fence INTEGER;

-- 'transfer': units leave `fence` for `to_fence`. 'arrival': units of another fence arrive.
ALTER TABLE stock_changes ADD COLUMN reason TEXT NOT NULL DEFAULT 'operator'
    CHECK (reason IN ('operator', 'transfer', 'arrival'));

-- Each Redis that an origin has used lately. Two of one site are a mistake, which `weir-origin doctor` finds.
CREATE TABLE redis_seen (
    -- The random name in this Redis.
    identity   TEXT NOT NULL PRIMARY KEY,
    -- The site of the origin; empty without sites.
    site       TEXT NOT NULL,
    seen_at_ms INTEGER NOT NULL
) STRICT;
