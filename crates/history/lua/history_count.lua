-- history_count: stores a count, if its reservation is still valid.
--
-- KEYS: 1 count: see history_view.lua
-- ARGV: 1 name of the reservation, see history_read.lua, 2 count, 3 lifetime in milliseconds
--
-- Returns 1, or 0 if the list has changed since the reservation: then the count is outdated.

if redis.call('GET', KEYS[1]) ~= '?' .. ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
