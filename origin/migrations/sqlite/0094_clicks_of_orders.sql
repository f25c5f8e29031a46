-- Which click on which link an order came of.
-- The same as migrations/mysql: change both.

-- NULL: none that is known. The same columns in the same order: orders are copied whole.
ALTER TABLE orders ADD COLUMN click_link TEXT;
ALTER TABLE orders ADD COLUMN click_id TEXT;

ALTER TABLE orders_archive ADD COLUMN click_link TEXT;
ALTER TABLE orders_archive ADD COLUMN click_id TEXT;

CREATE INDEX orders_by_click ON orders (click_link, created_at_ms) WHERE click_link IS NOT NULL;
CREATE INDEX orders_archive_by_click ON orders_archive (click_link, created_at_ms) WHERE click_link IS NOT NULL;
