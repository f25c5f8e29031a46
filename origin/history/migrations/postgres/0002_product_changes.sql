-- The version of the last change from the product system; 0: none.
ALTER TABLE history_products ADD COLUMN source_version BIGINT NOT NULL DEFAULT 0;
