-- The time since which a sale is paused: SQL has lost orders that Redis contains, and an operator must decide.
ALTER TABLE sales ADD COLUMN paused_at_ms BIGINT;

-- The number of pauses. An origin that found the loss before the last decision does not pause the sale again.
ALTER TABLE sales ADD COLUMN pauses BIGINT NOT NULL DEFAULT 0;

CREATE INDEX sales_paused ON sales (paused_at_ms) WHERE paused_at_ms IS NOT NULL;
