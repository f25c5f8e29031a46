-- By which key which order was made, so that trying again with it never makes another.
-- The tables of migrations/sqlite are the same: change both.

CREATE TABLE idempotency_keys (
    sale_id     VARCHAR(64) NOT NULL,
    user_id     VARCHAR(128) NOT NULL,
    -- As the client gave it, without quotes.
    attempt_key VARCHAR(128) NOT NULL,
    order_id    VARCHAR(96) NOT NULL,
    -- SHA-256 of the request's body, in hex: the key counts for this request only.
    body_sha256 VARCHAR(64) NOT NULL,
    PRIMARY KEY (sale_id, user_id, attempt_key)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
