-- Who lets a hold expire unpaid may not buy for a while, and after several not again.
-- The tables of migrations/sqlite are the same: change both.

-- Orders of the user that were not paid in time.
ALTER TABLE buyers ADD COLUMN expired_holds BIGINT NOT NULL DEFAULT 0;

-- Until when the user may not buy; NULL: may, and Redis knows it.
ALTER TABLE buyers ADD COLUMN cooldown_until_ms BIGINT;

CREATE INDEX buyers_by_cooldown ON buyers (cooldown_until_ms);
