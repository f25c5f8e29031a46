-- What the risk check looks at besides the name: kept until it has said something.
-- The tables of migrations/mysql are the same: change both.

ALTER TABLE reservations ADD COLUMN address TEXT NOT NULL DEFAULT '';

ALTER TABLE reservations ADD COLUMN agent TEXT NOT NULL DEFAULT '';
