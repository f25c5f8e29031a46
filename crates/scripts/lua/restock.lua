-- restock: puts right what a loss of data has made wrong, if the shard is as an audit has seen it.
--
-- KEYS: 1 stock, 2 epoch, 3 sequence (see claim.lua)
-- ARGV: 1 units, added to the stock; may be below 0, 2 epoch and 3 sequence as the audit saw them
--
-- Returns 1 if it did; 0 if the shard has changed since, is cold, or has fewer units than are to be
-- taken. The same call again answers 0, since the epoch has moved.

local stock = tonumber(redis.call('GET', KEYS[1]))
if not stock then return 0 end
if (redis.call('GET', KEYS[2]) or '0') ~= ARGV[2] or (redis.call('GET', KEYS[3]) or '0') ~= ARGV[3] then
  return 0
end
local units = tonumber(ARGV[1])
if units <= 0 and stock + units < 0 then return 0 end
redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('INCR', KEYS[2])
return 1
