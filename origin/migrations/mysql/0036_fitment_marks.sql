-- When a SKU was dropped in a place that it had left; NULL: it is still there. An hour later its mark in Redis goes, and the row.
-- The tables of migrations/sqlite are the same: change both.

ALTER TABLE fitment_left ADD COLUMN dropped_at_ms BIGINT NULL;

CREATE INDEX fitment_left_dropped ON fitment_left (dropped_at_ms);
