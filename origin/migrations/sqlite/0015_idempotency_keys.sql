-- By which key which order was made, so that trying again with it never makes another.
-- The tables of migrations/mysql are the same: change both.

CREATE TABLE idempotency_keys (
    sale_id     TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    -- As the client gave it, without quotes.
    attempt_key TEXT NOT NULL,
    order_id    TEXT NOT NULL,
    -- SHA-256 of the request's body, in hex: the key counts for this request only.
    body_sha256 TEXT NOT NULL,
    PRIMARY KEY (sale_id, user_id, attempt_key)
) STRICT, WITHOUT ROWID;
