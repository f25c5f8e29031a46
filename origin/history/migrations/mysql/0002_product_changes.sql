-- The version of the last change that the system with the products told; 0: none.
ALTER TABLE history_products ADD COLUMN source_version BIGINT NOT NULL DEFAULT 0;
