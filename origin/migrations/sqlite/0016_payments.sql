-- Payments at a provider, and what it has said of them.
-- The tables of migrations/mysql are the same: change both.

CREATE TABLE payments (
    -- `<order>.p<number>`: by this name the provider speaks of it.
    id            TEXT    NOT NULL PRIMARY KEY,
    order_id      TEXT    NOT NULL,
    user_id       TEXT    NOT NULL,
    state         TEXT    NOT NULL
        CHECK (state IN ('started', 'paid', 'failed', 'refund_due', 'refunded')),
    -- Why money must be, or was, given back; empty otherwise.
    reason        TEXT    NOT NULL DEFAULT '',
    started_at_ms INTEGER NOT NULL,
    decided_at_ms INTEGER
) STRICT;

CREATE INDEX payments_by_order ON payments (order_id);

CREATE INDEX payments_by_state ON payments (state, decided_at_ms);

-- Each event counts once, however often it is delivered.
CREATE TABLE payment_events (
    event_id    TEXT    NOT NULL PRIMARY KEY,
    payment_id  TEXT    NOT NULL,
    -- SHA-256 of what was received, in hex.
    body_sha256 TEXT    NOT NULL,
    at_ms       INTEGER NOT NULL
) STRICT;
