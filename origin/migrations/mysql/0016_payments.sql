-- Payments at a provider, and what it has said of them.
-- The tables of migrations/sqlite are the same: change both.

CREATE TABLE payments (
    -- `<order>.p<number>`: by this name the provider speaks of it.
    id            VARCHAR(112) NOT NULL PRIMARY KEY,
    order_id      VARCHAR(96) NOT NULL,
    user_id       VARCHAR(128) NOT NULL,
    state         VARCHAR(16) NOT NULL
        CHECK (state IN ('started', 'paid', 'failed', 'refund_due', 'refunded')),
    -- Why money must be, or was, given back; empty otherwise.
    reason        VARCHAR(32) NOT NULL DEFAULT '',
    started_at_ms BIGINT NOT NULL,
    decided_at_ms BIGINT
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX payments_by_order ON payments (order_id);

CREATE INDEX payments_by_state ON payments (state, decided_at_ms);

-- Each event counts once, however often it is delivered.
CREATE TABLE payment_events (
    event_id    VARCHAR(128) NOT NULL PRIMARY KEY,
    payment_id  VARCHAR(112) NOT NULL,
    -- SHA-256 of what was received, in hex.
    body_sha256 VARCHAR(64) NOT NULL,
    at_ms       BIGINT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
