-- write_check: whether Redis takes writes.
--
-- KEYS: 1 a key that nothing else uses
-- ARGV: for how many milliseconds it is kept
--
-- Returns 1.

redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
return 1
