-- Orders are looked for by sale and by user, in the order in which they were made.
-- The tables of migrations/mysql are the same: change both.

CREATE INDEX orders_by_sale_and_time ON orders (sale_id, created_at_ms, id);

CREATE INDEX orders_by_user_and_time ON orders (user_id, created_at_ms, id);

CREATE INDEX orders_archive_by_sale_and_time ON orders_archive (sale_id, created_at_ms, id);

CREATE INDEX orders_archive_by_user_and_time ON orders_archive (user_id, created_at_ms, id);

-- What the operator who gave money back wrote down, such as the provider's name of the refund.
ALTER TABLE payments ADD COLUMN reference TEXT NOT NULL DEFAULT '';
