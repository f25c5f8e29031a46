-- For `weir_origin_link_numbers_left`: the numbers reserved in the last days.
CREATE INDEX link_segments_by_time ON link_segments (digits, reserved_at_ms);
