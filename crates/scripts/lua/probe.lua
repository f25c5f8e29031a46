-- probe: shards at a glance, for a gateway that looks for units.
--
-- KEYS, four a shard: stock, epoch, pending, transfers (see claim.lua and lend.lua). On Redis Cluster
-- all shards of one call must be of one slot.
-- ARGV: none
--
-- Returns one array a shard: {stock, epoch, open claims, open transfers}; {} for a cold shard.

local replies = {}
for k = 1, #KEYS, 4 do
  local stock = tonumber(redis.call('GET', KEYS[k]))
  replies[#replies + 1] = stock and {
    stock, tonumber(redis.call('GET', KEYS[k + 1]) or 0), redis.call('ZCARD', KEYS[k + 2]),
    redis.call('HLEN', KEYS[k + 3]),
  } or {}
end
return replies
