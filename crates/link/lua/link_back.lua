-- link_back: returns a click that led nowhere. It may have been used, may be used later, or may never have arrived.
--
-- KEYS: 1 clicks (integer: how many were used), 2 the click's mark: see link_read.lua
-- ARGV: 1 lifetime of the mark in milliseconds
--
-- Returns 1 if the click had been used, 0 if not. In both cases it cannot be used while the mark exists. A repeated call
-- changes nothing.

local mark = redis.call('GET', KEYS[2])
redis.call('SET', KEYS[2], 'back', 'PX', ARGV[1])
if not mark or mark == 'back' then return 0 end
local used = tonumber(redis.call('GET', KEYS[1]) or 0)
-- DECR preserves the time to live.
if used > 1 then redis.call('DECR', KEYS[1]) else redis.call('DEL', KEYS[1]) end
return 1
