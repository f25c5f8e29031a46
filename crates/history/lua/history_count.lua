-- history_count: keeps a count that was promised.
--
-- KEYS: 1 count: see history_view.lua
-- ARGV: 1 the promise's name, 2 the count, 3 how long it is kept, in milliseconds
--
-- Returns 1, or 0 if the list has changed since the promise: then the count is another.

if redis.call('GET', KEYS[1]) ~= '?' .. ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
