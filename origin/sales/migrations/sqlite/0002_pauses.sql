-- Since when a sale is paused: SQL has lost orders of it that Redis was told of, and an operator has yet to decide.
ALTER TABLE sales ADD COLUMN paused_at_ms INTEGER;

-- How often it was paused. An origin that has found the loss before the last decision does not pause the sale once more.
ALTER TABLE sales ADD COLUMN pauses INTEGER NOT NULL DEFAULT 0;

CREATE INDEX sales_paused ON sales (paused_at_ms) WHERE paused_at_ms IS NOT NULL;
