-- Which click on which link an order came of.
-- The same as migrations/sqlite: change both.

-- NULL: none that is known. The same columns in the same order: orders are copied whole.
ALTER TABLE orders ADD COLUMN click_link VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
ALTER TABLE orders ADD COLUMN click_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

ALTER TABLE orders_archive ADD COLUMN click_link VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
ALTER TABLE orders_archive ADD COLUMN click_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX orders_by_click ON orders (click_link, created_at_ms);
CREATE INDEX orders_archive_by_click ON orders_archive (click_link, created_at_ms);
