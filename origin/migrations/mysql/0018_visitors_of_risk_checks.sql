-- What the risk check looks at besides the name: kept until it has said something.
-- The tables of migrations/sqlite are the same: change both.

ALTER TABLE reservations ADD COLUMN address VARCHAR(64) NOT NULL DEFAULT '';

ALTER TABLE reservations ADD COLUMN agent VARCHAR(512) NOT NULL DEFAULT '';
