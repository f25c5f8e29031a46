-- cancel: ends an order, or its claim if that is still open, and returns its units to the stock.
--
-- KEYS: 1 stock, 2 claims, 3 pending, 4 epoch, 5 sums, 6 bought (see shard.lua, record.lua), 7 mark (see raise_mark.lua)
-- ARGV: 1 user, 2 bucket, 3 generation of the order's claim
--
-- Returns 1 if it ended, 0 if there is no such order or claim (any more), 2 if the shard is cold.

local shard = load(KEYS[1], KEYS[4], KEYS[5])
if not shard then return 2 end
local r = find(KEYS[2], KEYS[6], ARGV[1], ARGV[2])
local units, changes = 0, 1
if r.held > 0 and r.generation == tonumber(ARGV[3]) then
  -- Two changes: SQL has created the order and ended it.
  units, changes = close(shard, KEYS[3], ARGV[1], r), 2
else
  local rest, mark, ordered_units = without(r.orders, ARGV[3])
  if not mark then return 0 end
  r.orders = rest
  count_order(shard, ARGV[3], mark, ordered_units, -1)
  shard.version = shard.version + 1
  if mark == ':' then units = ordered_units end
end
if units > 0 then change_stock(shard, units) end
keep(KEYS[2], KEYS[6], ARGV[1], ARGV[2], r)
save(shard)
redis.call('INCRBY', KEYS[7], changes)
return 1
