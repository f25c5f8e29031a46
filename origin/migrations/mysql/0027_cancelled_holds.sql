-- Who cancels a hold just before it expires, again and again, keeps a unit from others as one who lets it expire.
-- The tables of migrations/sqlite are the same: change both.

-- How long orders that the user cancelled had their units, since that last counted as a hold that expired.
ALTER TABLE buyers ADD COLUMN cancelled_hold_ms BIGINT NOT NULL DEFAULT 0;
