-- lend: takes units from this shard for a transfer to another.
--
-- KEYS: 1 stock, 2 transfers (hash: target shard to "<id> <units> <at_ms>"), 3 sequence, 4 epoch, 5 sums (see shard.lua)
-- ARGV: 1 target shard, 2 wanted
--
-- Returns:
--   {1, id, units}   the open transfer to that shard, or a new one: of at least `wanted` and at least half of the stock,
--                    but not more than the stock
--   {2}              the shard has no units
--   {3}              cold shard
-- A shard has at most one open transfer to each other shard, and IDs only grow. So a target stores only the last ID, and
-- every step is repeatable.

local shard = load(KEYS[1], KEYS[4], KEYS[5])
if not shard then return { 3 } end
local open = redis.call('HGET', KEYS[2], ARGV[1])
if open then
  local id, units = string.match(open, '^(%d+) (%d+) ')
  return { 1, tonumber(id), tonumber(units) }
end
if shard.stock <= 0 then return { 2 } end
local units = math.min(shard.stock, math.max(math.ceil(shard.stock / 2), tonumber(ARGV[2])))
local id = next_after(tonumber(redis.call('GET', KEYS[3]) or 0))
local at_ms = math.floor(now_us() / 1000)
change_stock(shard, -units)
shard.version = shard.version + 1
redis.call('SET', KEYS[3], number(id))
redis.call('HSET', KEYS[2], ARGV[1], string.format('%d %d %d', id, units, at_ms))
save(shard)
return { 1, id, units }
