-- The version of the last change from the product system; 0: none.
ALTER TABLE fitment_skus ADD COLUMN source_version BIGINT NOT NULL DEFAULT 0;
