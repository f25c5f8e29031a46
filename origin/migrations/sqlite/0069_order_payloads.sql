-- What buyers say with their orders, such as an address, and what sales want of it.
-- The tables of migrations/mysql are the same: change both.

CREATE TABLE payload_schemas (
    sale_id  TEXT NOT NULL PRIMARY KEY,
    -- A JSON Schema.
    document TEXT NOT NULL
) STRICT;

-- Apart from the orders, which every search reads; it stays when an order moves to the archive.
CREATE TABLE order_payloads (
    order_id TEXT NOT NULL PRIMARY KEY,
    payload  TEXT NOT NULL
) STRICT;
