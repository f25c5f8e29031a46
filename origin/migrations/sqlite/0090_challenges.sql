-- What a sale wants of whoever asks for an order token.
-- The same as migrations/mysql: change both.

-- JSON, as gateways read it; NULL: nothing.
ALTER TABLE sales ADD COLUMN challenge TEXT;
