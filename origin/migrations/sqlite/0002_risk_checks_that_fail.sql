-- A risk check that fails goes behind the others.
-- The tables of migrations/mysql are the same: change both.

ALTER TABLE reservations ADD COLUMN failed_checks INTEGER NOT NULL DEFAULT 0;

-- From when on the user is to be checked.
ALTER TABLE reservations ADD COLUMN check_at_ms INTEGER NOT NULL DEFAULT 0;

UPDATE reservations SET check_at_ms = at_ms;

DROP INDEX reservations_by_risk;

CREATE INDEX reservations_by_check ON reservations (risk_state, check_at_ms);
