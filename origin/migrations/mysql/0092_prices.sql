-- What a unit of a sale is called in the shop, and what it costs; and both of each order, as they were when it was made.
-- The same as migrations/sqlite: change both.

-- NULL: the sale has none. Amounts are in the currency's smallest unit; with one goes a currency.
ALTER TABLE sales ADD COLUMN sku VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
ALTER TABLE sales ADD COLUMN unit_amount BIGINT CHECK (unit_amount >= 0);
ALTER TABLE sales ADD COLUMN currency VARCHAR(3) CHARACTER SET ascii COLLATE ascii_bin;

-- The same columns in the same order: orders are copied whole.
ALTER TABLE orders ADD COLUMN sku VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
ALTER TABLE orders ADD COLUMN unit_amount BIGINT CHECK (unit_amount >= 0);
ALTER TABLE orders ADD COLUMN currency VARCHAR(3) CHARACTER SET ascii COLLATE ascii_bin;

ALTER TABLE orders_archive ADD COLUMN sku VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
ALTER TABLE orders_archive ADD COLUMN unit_amount BIGINT CHECK (unit_amount >= 0);
ALTER TABLE orders_archive ADD COLUMN currency VARCHAR(3) CHARACTER SET ascii COLLATE ascii_bin;
