-- lend: units of this shard leave for another.
--
-- KEYS: 1 stock, 2 transfers (hash: target shard -> "<id> <units> <at_ms>"), 3 sequence
-- ARGV: 1 target shard, 2 wanted, 3 now_ms
--
-- Returns:
--   {1, id, units}   lent: the transfer to that shard that was open already, else a new one of at
--                    least `wanted` and at least half of the stock, but no more than all
--   {2}              there is nothing to lend
--   {3}              cold shard
-- A shard has one open transfer to each other at a time, and ids only grow: so a target need only
-- remember the last id, and no step does harm when it is done again.

local stock = tonumber(redis.call('GET', KEYS[1]))
if not stock then return { 3 } end
local open = redis.call('HGET', KEYS[2], ARGV[1])
if open then
  local id, units = string.match(open, '^(%d+) (%d+) ')
  return { 1, tonumber(id), tonumber(units) }
end
if stock <= 0 then return { 2 } end
local units = math.min(stock, math.max(math.ceil(stock / 2), tonumber(ARGV[2])))
local id = math.max(tonumber(redis.call('GET', KEYS[3]) or 0) + 1, tonumber(ARGV[3]))
redis.call('DECRBY', KEYS[1], string.format('%.0f', units))
redis.call('SET', KEYS[3], string.format('%.0f', id))
redis.call('HSET', KEYS[2], ARGV[1], string.format('%.0f %.0f %s', id, units, ARGV[3]))
return { 1, id, units }
