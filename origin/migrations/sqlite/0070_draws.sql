-- Draws among those who have reserved.
-- The tables of migrations/mysql are the same: change both.

CREATE TABLE draws (
    sale_id        TEXT    NOT NULL PRIMARY KEY,
    -- What decides, in hex: secret until the draw is done.
    seed           TEXT    NOT NULL,
    -- What is told of it before anybody reserves.
    commitment     TEXT    NOT NULL,
    winners        INTEGER NOT NULL CHECK (winners >= 1),
    -- Since when nobody enters or leaves. The steps behind it are in the order of the columns.
    closed_at_ms   INTEGER,
    entries        INTEGER,
    list_sha256    TEXT,
    drawn_at_ms    INTEGER,
    -- Since when gateways know the winners.
    admitted_at_ms INTEGER,
    CHECK ((entries IS NULL) = (list_sha256 IS NULL))
) STRICT;

-- The name under which a user stands in the list of a draw; empty: the sale has none.
ALTER TABLE reservations ADD COLUMN ticket TEXT NOT NULL DEFAULT '';

-- 0: the draw has not chosen the user, or not yet.
ALTER TABLE reservations ADD COLUMN admitted INTEGER NOT NULL DEFAULT 1 CHECK (admitted IN (0, 1));

-- Of a winner: 1, 2, 3 …
ALTER TABLE reservations ADD COLUMN place INTEGER;

CREATE INDEX reservations_by_ticket ON reservations (sale_id, ticket);
