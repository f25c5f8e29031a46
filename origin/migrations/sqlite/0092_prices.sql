-- What a unit of a sale is called in the shop, and what it costs; and both of each order, as they were when it was made.
-- The same as migrations/mysql: change both.

-- NULL: the sale has none. Amounts are in the currency's smallest unit; with one goes a currency.
ALTER TABLE sales ADD COLUMN sku TEXT;
ALTER TABLE sales ADD COLUMN unit_amount INTEGER CHECK (unit_amount >= 0);
ALTER TABLE sales ADD COLUMN currency TEXT;

-- The same columns in the same order: orders are copied whole.
ALTER TABLE orders ADD COLUMN sku TEXT;
ALTER TABLE orders ADD COLUMN unit_amount INTEGER CHECK (unit_amount >= 0);
ALTER TABLE orders ADD COLUMN currency TEXT;

ALTER TABLE orders_archive ADD COLUMN sku TEXT;
ALTER TABLE orders_archive ADD COLUMN unit_amount INTEGER CHECK (unit_amount >= 0);
ALTER TABLE orders_archive ADD COLUMN currency TEXT;
