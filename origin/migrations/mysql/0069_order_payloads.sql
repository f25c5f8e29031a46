-- What buyers say with their orders, such as an address, and what sales want of it.
-- The tables of migrations/sqlite are the same: change both.

CREATE TABLE payload_schemas (
    sale_id  VARCHAR(64) NOT NULL PRIMARY KEY,
    -- A JSON Schema.
    document TEXT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Apart from the orders, which every search reads; it stays when an order moves to the archive.
CREATE TABLE order_payloads (
    order_id VARCHAR(96) NOT NULL PRIMARY KEY,
    payload  TEXT NOT NULL
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
