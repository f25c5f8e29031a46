-- Draws among those who have reserved.
-- The tables of migrations/sqlite are the same: change both.

CREATE TABLE draws (
    sale_id        VARCHAR(64) NOT NULL PRIMARY KEY,
    -- What decides, in hex: secret until the draw is done.
    seed           VARCHAR(64) NOT NULL,
    -- What is told of it before anybody reserves.
    commitment     VARCHAR(64) NOT NULL,
    winners        BIGINT NOT NULL CHECK (winners >= 1),
    -- Since when nobody enters or leaves. The steps behind it are in the order of the columns.
    closed_at_ms   BIGINT,
    entries        BIGINT,
    list_sha256    VARCHAR(64),
    drawn_at_ms    BIGINT,
    -- Since when gateways know the winners.
    admitted_at_ms BIGINT,
    CHECK ((entries IS NULL) = (list_sha256 IS NULL))
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The name under which a user stands in the list of a draw; empty: the sale has none.
ALTER TABLE reservations ADD COLUMN ticket VARCHAR(32) NOT NULL DEFAULT '';

-- 0: the draw has not chosen the user, or not yet.
ALTER TABLE reservations ADD COLUMN admitted BIGINT NOT NULL DEFAULT 1 CHECK (admitted IN (0, 1));

-- Of a winner: 1, 2, 3 …
ALTER TABLE reservations ADD COLUMN place BIGINT;

CREATE INDEX reservations_by_ticket ON reservations (sale_id, ticket);
