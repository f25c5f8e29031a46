-- When a SKU was dropped in a place that it had left; NULL: it is still there. An hour later its mark in Redis goes, and the row.
-- The tables of migrations/mysql are the same: change both.

ALTER TABLE fitment_left ADD COLUMN dropped_at_ms INTEGER;

CREATE INDEX fitment_left_dropped ON fitment_left (dropped_at_ms);
